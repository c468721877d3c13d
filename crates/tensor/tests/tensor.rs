//! Integration tests of the engine, one module per part.

// Clippy exempts only functions marked as tests from this lint; test helpers need it too.
#![allow(clippy::unwrap_used)]

#[path = "tensor/collective.rs"]
mod collective;
#[path = "tensor/fill.rs"]
mod fill;
#[path = "tensor/gemm.rs"]
mod gemm;
#[path = "tensor/gpu.rs"]
mod gpu;
#[path = "tensor/gpu_times.rs"]
mod gpu_times;
#[path = "tensor/kernels.rs"]
mod kernels;
#[path = "tensor/large_scores.rs"]
mod large_scores;
#[cfg(unix)]
#[path = "tensor/nccl.rs"]
mod nccl;
#[path = "../examples/gpt_step/network.rs"]
#[allow(dead_code)]
mod network;
#[path = "tensor/ops/mod.rs"]
mod ops;
#[path = "tensor/suite.rs"]
mod suite;
#[path = "tensor/training.rs"]
mod training;
#[path = "tensor/update.rs"]
mod update;
