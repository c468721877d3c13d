//! The operations, one file each: CPU code, CUDA launch, gradient. Every file adds its operation to `Tape` as a method.

pub mod activation;
pub mod adamw;
pub(crate) mod addends;
pub mod all_reduce;
pub mod attention;
pub mod cast;
pub mod conv1d;
pub mod conv2d;
pub mod conv_transpose1d;
pub(crate) mod convolution;
pub mod cross_entropy;
pub mod dot;
pub mod embedding;
pub mod fill;
pub(crate) mod geometry;
pub mod linear;
pub mod norm;
pub mod reshape;
pub mod seed;
