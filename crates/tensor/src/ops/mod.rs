//! The operations, one file each: CPU code, CUDA launch, gradient. Every file adds its operation to `Tape` as a method.

pub mod activation;
pub mod all_reduce;
pub mod batch_norm;
pub mod cast;
mod channel_norm;
pub mod detach;
pub mod dot;
pub mod fill;
pub mod frames;
pub mod group_norm;
pub mod linear;
pub mod matmul;
pub mod mel;
pub mod norm;
pub mod quantize;
pub mod reshape;
pub mod rms_norm;
pub mod seed;
pub mod softmax;
pub mod stft;
pub mod transform;
pub mod weight_norm;
