//! What CPU code of operations stands on: matrix products and vector arithmetic on all cores.

pub mod attention;
pub mod columns;
pub mod matrix;
pub mod vector;
