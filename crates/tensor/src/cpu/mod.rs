//! Building blocks of the operations' CPU code: matrix products and vector arithmetic on all cores.

pub mod attention;
pub(crate) mod columns;
pub mod matrix;
pub mod reduce;
pub mod row_sums;
pub mod vector;
