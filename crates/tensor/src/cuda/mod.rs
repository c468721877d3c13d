//! CUDA, reached at run time: the libraries are looked for, never linked.

pub mod cache;
pub(crate) mod columns;
pub mod compile;
pub mod context;
pub(crate) mod conv_tiles;
pub mod cupti;
pub mod gemm;
pub mod graph;
pub mod launch;
pub mod library;
pub mod memory;
pub mod nccl;
pub mod shared_library;

pub use context::Cuda;
