//! The CUDA side of the engine.

pub mod cupti;
pub mod gemm;
pub mod nccl;
mod shared_library;
