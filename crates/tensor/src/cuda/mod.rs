//! CUDA support. The libraries are loaded at run time and never linked.

pub mod cache;
pub(crate) mod columns;
pub mod compile;
pub mod context;
pub(crate) mod conv_tiles;
pub mod cupti;
pub mod gemm;
pub(crate) mod graph;
pub(crate) mod launch;
pub mod library;
pub mod memory;
pub mod nccl;
pub(crate) mod shared_library;

pub use context::Cuda;
