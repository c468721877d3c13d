//! Matrix products on the CPU.

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

/// A matrix view: its data, row stride and column stride.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

impl<'a> Matrix<'a> {
    /// Contiguous rows of `columns` elements.
    pub fn rows(data: &'a [f32], columns: usize) -> Matrix<'a> {
        Matrix { data, row: columns, column: 1 }
    }

    /// Rows that start `stride` elements apart.
    pub fn strided(data: &'a [f32], stride: usize) -> Matrix<'a> {
        Matrix { data, row: stride, column: 1 }
    }

    /// The transposed view.
    pub fn transposed(self) -> Matrix<'a> {
        Matrix { row: self.column, column: self.row, ..self }
    }

    /// The view without its first rows.
    pub fn skip(self, rows: usize) -> Matrix<'a> {
        Matrix { data: &self.data[rows * self.row..], ..self }
    }

    fn check(&self, rows: usize, columns: usize) {
        if rows > 0 && columns > 0 {
            let last = (rows - 1) * self.row + (columns - 1) * self.column;
            assert!(last < self.data.len(), "a {rows} x {columns} matrix is longer than its memory");
        }
    }
}

/// Threads that compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread only, for products inside a parallel loop.
    One,
    /// The whole pool, where the product is large enough to pay.
    All,
}

/// `out[m, n] = scale * a[m, k] b[k, n]`, or added to `out` if `add`. Rows of `out` are `stride` apart.
#[expect(clippy::too_many_arguments, reason = "the shape of a matrix product")]
pub fn product(
    (m, n, k): (usize, usize, usize),
    a: Matrix<'_>,
    b: Matrix<'_>,
    out: &mut [f32],
    stride: usize,
    add: bool,
    scale: f32,
    threads: Threads,
) {
    if m == 0 || n == 0 {
        return;
    }
    a.check(m, k);
    b.check(k, n);
    assert!((m - 1) * stride + n <= out.len(), "a {m} x {n} result is longer than its memory");
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // The kernels write contiguous columns, and our rows are contiguous: they compute the transpose, `bᵀ aᵀ`.
    let (m, n, lhs, rhs, columns, rows) = match stride > 1 {
        true => (n, m, b.transposed(), a.transposed(), stride, 1),
        false => (m, n, a, b, 1, stride),
    };
    // SAFETY: the three checks above keep every access inside its slice, and `out` is borrowed mutably.
    unsafe {
        get_gemm_fn()(
            m,
            n,
            k,
            out.as_mut_ptr(),
            columns as isize,
            rows as isize,
            add,
            lhs.data.as_ptr(),
            lhs.column as isize,
            lhs.row as isize,
            rhs.data.as_ptr(),
            rhs.column as isize,
            rhs.row as isize,
            1.0,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}
