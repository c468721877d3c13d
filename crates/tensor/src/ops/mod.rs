//! The operations, one file each: CPU code, CUDA launch, gradient. Every file adds its operation to `Tape` as a method.

pub mod activation;
pub mod all_reduce;
pub mod arithmetic;
pub mod cast;
pub mod concatenate;
pub mod cross_entropy;
pub mod dot;
pub mod dropout;
pub mod embedding;
pub mod fill;
pub mod geglu;
pub mod interpolate;
pub mod linear;
pub mod loss;
pub mod norm;
pub mod pad;
pub mod reduce;
pub mod reshape;
pub mod seed;
pub mod slice;
pub mod time;
pub mod transpose;
