//! Behaviour of the engine, one module per noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "tensor/collective.rs"]
mod collective;
#[path = "tensor/gemm.rs"]
mod gemm;
#[path = "tensor/gpu_times.rs"]
mod gpu_times;
