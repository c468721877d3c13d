//! Matrix products on the GPU with cuBLASLt.
//!
//! A [`Gemm`] describes one product of row-major matrices and is the key of everything stored about it;
//! [`GemmEngine`] runs it; [`GemmTable`] stores on disk which of the library's algorithms was the fastest, so that
//! the choice, and with it every bit of the result, is the same in the next run.

mod engine;
mod lt;
mod operands;
mod plan;
mod table;

use serde::{Deserialize, Serialize};

pub use engine::{AlgorithmChoice, DEFAULT_WORKSPACE, GemmEngine};
pub use lt::Lt;
pub use operands::{Alignment, Key, Operands};
pub use table::{Entry, GemmTable, pin};

/// Element type of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// 32-bit float.
    F32,
    /// bfloat16.
    Bf16,
}

impl Element {
    /// Size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }
}

/// Memory layout of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Matrix {
    /// Whether the product uses the transpose of the stored matrix.
    pub transposed: bool,
    /// Elements between consecutive stored rows.
    pub ld: usize,
    /// Elements between consecutive matrices of the batch; 0 if all share one.
    pub batch_stride: i64,
}

impl Matrix {
    /// A packed `[rows, columns]` matrix, not transposed.
    pub fn packed(columns: usize) -> Matrix {
        Matrix { transposed: false, ld: columns, batch_stride: 0 }
    }

    /// The same storage, transposed.
    pub fn transpose(self) -> Matrix {
        Matrix { transposed: !self.transposed, ..self }
    }

    /// The same storage, with one matrix every `stride` elements.
    pub fn every(self, stride: i64) -> Matrix {
        Matrix { batch_stride: stride, ..self }
    }
}

/// Operation applied to the product before it is stored.
///
/// `bias` and `aux` have the output's element type; `aux` has the layout of the output, with a row stride that is a
/// multiple of 8 elements. GELU is the tanh form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Epilogue {
    /// No epilogue.
    None,
    /// `d = x + bias[n]`.
    Bias,
    /// `d = gelu(x + bias[n])`.
    GeluBias,
    /// `aux = x; d = gelu(x)`.
    GeluAux,
    /// `aux = x + bias[n]; d = gelu(aux)`.
    GeluAuxBias,
    /// `d = x * gelu'(aux)`.
    DGelu,
    /// As `DGelu`; also writes `bias[n]`, the sum of `d` over its rows.
    DGeluBiasGrad,
    /// `d = x`; also writes `bias[m]`, the sum of `op(a)` over k: the bias gradient along with `dW[out, in] = dY^T
    /// X`. Never accumulated, even where `d` is.
    BiasGradA,
    /// `d = x`; also writes `bias[n]`, the sum of `op(b)` over k: the bias gradient along with `dW[in, out] = X^T
    /// dY`. Never accumulated, even where `d` is.
    BiasGradB,
}

impl Epilogue {
    /// Whether it needs a bias (or bias gradient) pointer.
    pub fn has_bias(self) -> bool {
        !matches!(self, Epilogue::None | Epilogue::GeluAux | Epilogue::DGelu)
    }

    /// Whether the bias is written rather than read.
    pub(crate) fn writes_bias(self) -> bool {
        matches!(self, Epilogue::DGeluBiasGrad | Epilogue::BiasGradA | Epilogue::BiasGradB)
    }

    /// Whether it needs a pointer to the input of GELU.
    pub fn has_aux(self) -> bool {
        matches!(self, Epilogue::GeluAux | Epilogue::GeluAuxBias | Epilogue::DGelu | Epilogue::DGeluBiasGrad)
    }
}

/// One product: `d[m, n] = epilogue(alpha * op(a)[m, k] * op(b)[k, n] (+ c))`, `batch` times, everything row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gemm {
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// Length of the summed dimension.
    pub k: usize,
    /// Number of products in the batch.
    pub batch: usize,
    /// Left matrix, stored `[m, k]`, or `[k, m]` if transposed.
    pub a: Matrix,
    /// Right matrix, stored `[k, n]`, or `[n, k]` if transposed.
    pub b: Matrix,
    /// Elements between consecutive rows of the output and of `c`.
    pub c_ld: usize,
    /// Elements between consecutive outputs of the batch.
    pub c_batch_stride: i64,
    /// Element type of `a` and `b`.
    pub input: Element,
    /// Element type of `c`, `d`, bias and aux. bf16 inputs may have f32 outputs (weight
    /// gradients); f32 inputs need f32 outputs.
    pub output: Element,
    /// Add `c`, which may be `d` itself.
    pub accumulate: bool,
    /// Allow rounding f32 inputs to TF32 (10 bits of mantissa) for the tensor cores.
    pub tf32: bool,
    /// Operation applied before the output is stored.
    pub epilogue: Epilogue,
}

impl Gemm {
    /// A single product of packed matrices without an epilogue; the output has the input's type.
    pub fn packed(m: usize, n: usize, k: usize, element: Element) -> Gemm {
        Gemm {
            m,
            n,
            k,
            batch: 1,
            a: Matrix::packed(k),
            b: Matrix::packed(n),
            c_ld: n,
            c_batch_stride: 0,
            input: element,
            output: element,
            accumulate: false,
            tf32: false,
            epilogue: Epilogue::None,
        }
    }

    /// Whether the output has no elements.
    pub fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch == 0
    }

    /// Rejects with a message what the library would reject with a bare status.
    pub fn validate(&self) -> Result<(), GemmError> {
        let wrong = |what: String| Err(GemmError::Shape { what, gemm: Box::new(*self) });
        if self.is_empty() {
            return Ok(());
        }
        if self.k == 0 {
            return wrong("k is 0: the sum has no terms; fill the output instead".into());
        }
        for (name, columns, ld) in [
            ("a", if self.a.transposed { self.m } else { self.k }, self.a.ld),
            ("b", if self.b.transposed { self.k } else { self.n }, self.b.ld),
            ("c", self.n, self.c_ld),
        ] {
            if ld < columns {
                return wrong(format!("rows of {name} have {columns} elements but a stride of only {ld}"));
            }
        }
        // Dimensions are unsigned 64-bit in the API, but its kernels index rows with 32 bits.
        if self.m.max(self.n).max(self.k).max(self.batch) > i32::MAX as usize {
            return wrong("a dimension exceeds 2^31 - 1".into());
        }
        if self.input == Element::F32 && self.output == Element::Bf16 {
            return wrong("f32 inputs need an f32 output".into());
        }
        if self.batch > 1 && self.c_batch_stride == 0 {
            return wrong("all products of the batch would be written to the same address".into());
        }
        if self.epilogue.has_aux() && (!self.c_ld.is_multiple_of(8) || self.c_batch_stride % 8 != 0) {
            return wrong(
                "storing the input of GELU needs row and batch strides that are a multiple of 8".into(),
            );
        }
        if self.batch > 1
            && matches!(self.epilogue, Epilogue::DGeluBiasGrad | Epilogue::BiasGradA | Epilogue::BiasGradB)
        {
            return wrong("bias gradients are not supported for a batch of products".into());
        }
        Ok(())
    }

    /// The same product in the library's terms. Row-major `D` is column-major `D^T = op(B)^T op(A)^T`, so the
    /// operands swap places. Row-major storage reads as its transpose, so the transpose flags stay the same.
    pub(crate) fn column_major(&self) -> ColumnMajor {
        let (m, n, k) = (self.m as u64, self.n as u64, self.k as u64);
        let side = |matrix: &Matrix, rows: u64, columns: u64| {
            let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
            StoredMatrix {
                transposed: matrix.transposed,
                rows,
                columns,
                ld: matrix.ld as i64,
                stride: matrix.batch_stride,
            }
        };
        ColumnMajor {
            first: side(&self.b, n, k),
            second: side(&self.a, k, m),
            out: StoredMatrix {
                transposed: false,
                rows: n,
                columns: m,
                ld: self.c_ld as i64,
                stride: self.c_batch_stride,
            },
        }
    }
}

/// A stored column-major matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredMatrix {
    pub transposed: bool,
    pub rows: u64,
    pub columns: u64,
    pub ld: i64,
    pub stride: i64,
}

/// A product in the library's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColumnMajor {
    pub first: StoredMatrix,
    pub second: StoredMatrix,
    pub out: StoredMatrix,
}

/// Why a product could not be run.
#[derive(Debug, thiserror::Error)]
pub enum GemmError {
    /// The library was not found or is not usable.
    #[error("cuBLASLt: {0}\n  Install it with: pip install nvidia-cublas-cu12 (or the CUDA toolkit)")]
    Library(String),
    /// The description is inconsistent.
    #[error("matrix product: {what}: {gemm:?}")]
    Shape {
        /// What is wrong with it.
        what: String,
        /// The product.
        gemm: Box<Gemm>,
    },
    /// The epilogue needs an operand that is missing.
    #[error("matrix product: there is no {name} operand: {gemm:?}")]
    Operand {
        /// Name of the missing operand.
        name: &'static str,
        /// The product.
        gemm: Box<Gemm>,
    },
    /// The library has no algorithm for it.
    #[error("matrix product: cuBLASLt has no algorithm for {0:?}")]
    Unsupported(Box<Key>),
    /// A step is being captured, and this product has not been run before.
    #[error("matrix product: new product during graph capture; run the step once before capturing it: {0:?}")]
    Capturing(Box<Key>),
    /// A call to the library failed.
    #[error("cuBLASLt: {call} failed with status {status} ({name})")]
    Status {
        /// Name of the function.
        call: &'static str,
        /// The returned status.
        status: i32,
        /// Name of the status.
        name: &'static str,
    },
    /// A call to the driver failed.
    #[error("CUDA, while choosing a matrix product's algorithm: {0}")]
    Driver(#[from] cudarc::driver::DriverError),
    /// The table could not be written.
    #[error("table of matrix products {path}: {source}")]
    Table {
        /// Path of the table.
        path: std::path::PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The column-major product of `first` and `second`, by the library's rules, over row-major memory.
    fn column_major_product(gemm: &Gemm, a: &[f32], b: &[f32], out: &mut [f32]) {
        let c = gemm.column_major();
        let at = |side: &StoredMatrix, row: u64, column: u64| {
            let (row, column) = if side.transposed { (column, row) } else { (row, column) };
            assert!(row < side.rows && column < side.columns && side.ld as u64 >= side.rows);
            row as usize + column as usize * side.ld as usize
        };
        for i in 0..c.out.rows {
            for j in 0..c.out.columns {
                let mut sum = 0.0;
                for l in 0..gemm.k as u64 {
                    sum += b[at(&c.first, i, l)] * a[at(&c.second, l, j)];
                }
                out[at(&c.out, i, j)] = sum;
            }
        }
    }

    #[test]
    fn column_major_mapping_gives_the_row_major_product() {
        let (m, n, k) = (3, 5, 4);
        for transposes in 0..4 {
            for padding in [0, 2] {
                let (ta, tb) = (transposes & 1 == 1, transposes & 2 == 2);
                let (ra, ca) = if ta { (k, m) } else { (m, k) };
                let (rb, cb) = if tb { (n, k) } else { (k, n) };
                let gemm = Gemm {
                    a: Matrix { transposed: ta, ld: ca + padding, batch_stride: 0 },
                    b: Matrix { transposed: tb, ld: cb + padding, batch_stride: 0 },
                    c_ld: n + padding,
                    ..Gemm::packed(m, n, k, Element::F32)
                };
                gemm.validate().unwrap();
                let a: Vec<f32> = (0..ra * (ca + padding)).map(|i| (i % 7) as f32 - 3.0).collect();
                let b: Vec<f32> = (0..rb * (cb + padding)).map(|i| (i % 5) as f32 - 2.0).collect();
                let mut out = vec![0.0; m * (n + padding)];
                column_major_product(&gemm, &a, &b, &mut out);
                for i in 0..m {
                    for j in 0..n {
                        let expected: f32 = (0..k)
                            .map(|l| {
                                let x = if ta { a[l * gemm.a.ld + i] } else { a[i * gemm.a.ld + l] };
                                let y = if tb { b[j * gemm.b.ld + l] } else { b[l * gemm.b.ld + j] };
                                x * y
                            })
                            .sum();
                        assert_eq!(out[i * gemm.c_ld + j], expected, "{gemm:?} at {i},{j}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_the_library_would_reject_give_a_message() {
        let good = Gemm::packed(8, 16, 4, Element::Bf16);
        good.validate().unwrap();
        let cases: [(Gemm, &str); 7] = [
            (Gemm { k: 0, ..good }, "k is 0"),
            (Gemm { a: Matrix::packed(3), ..good }, "rows of a"),
            (Gemm { b: Matrix { transposed: true, ..Matrix::packed(3) }, ..good }, "rows of b"),
            (Gemm { c_ld: 15, ..good }, "rows of c"),
            (Gemm { input: Element::F32, ..good }, "f32 output"),
            (Gemm { batch: 2, ..good }, "same address"),
            (Gemm { c_ld: 17, epilogue: Epilogue::GeluAuxBias, ..good }, "multiple of 8"),
        ];
        for (gemm, words) in cases {
            let error = gemm.validate().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        Gemm { m: 0, k: 0, ..good }.validate().unwrap();
    }
}
