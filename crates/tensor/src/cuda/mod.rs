//! The CUDA side of the engine.

pub mod gemm;
