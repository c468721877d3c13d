//! CUDA: its libraries, found at run time, and kernels, compiled at first use.

pub mod cache;
pub mod compile;
pub mod library;
