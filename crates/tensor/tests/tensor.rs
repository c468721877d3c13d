//! The engine from outside, one module per part.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "tensor/gemm.rs"]
mod gemm;
#[path = "tensor/kernels.rs"]
mod kernels;
