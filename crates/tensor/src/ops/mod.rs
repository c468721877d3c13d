//! The operations, one file each: CPU code, CUDA launch, gradient. Every file adds its operation to `Tape` as a method.

pub mod activation;
pub mod adamw;
pub mod all_reduce;
pub mod arithmetic;
pub mod attention;
pub mod batch_norm;
pub mod cast;
mod channel_norm;
pub mod cross_entropy;
pub mod dot;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod fill;
pub mod geglu;
pub mod group_norm;
pub mod linear;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod reduce;
pub mod reshape;
pub mod rms_norm;
pub mod seed;
pub mod softmax;
pub mod time;
pub mod weight_norm;
