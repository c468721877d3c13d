//! Shapes and element types. Tensors are contiguous, row-major, at most four-dimensional.

use std::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// bfloat16: the upper half of a 32-bit float. CUDA only.
    Bf16,
    /// 32-bit integer, for ids, lengths and masks.
    I32,
}

impl DType {
    /// Size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::Bf16 => 2,
        }
    }

    /// Suffix of the names of kernels for this type.
    pub fn suffix(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::I32 => "i32",
        }
    }
}

/// Sizes of up to four dimensions. A scalar is `[1]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    sizes: [usize; 4],
    rank: usize,
}

impl Shape {
    /// The sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.sizes[..self.rank]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dims().iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the innermost dimension: channels.
    pub fn last(&self) -> usize {
        self.sizes[self.rank - 1]
    }

    /// Product of all dimensions but the innermost: rows of channels.
    pub fn rows(&self) -> usize {
        self.dims()[..self.rank - 1].iter().product()
    }

    /// Size of dimension `i`.
    pub fn dim(&self, i: usize) -> usize {
        self.dims()[i]
    }

    /// The same shape with another innermost size.
    pub(crate) fn with_last(&self, channels: usize) -> Shape {
        let mut other = *self;
        other.sizes[self.rank - 1] = channels;
        other
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Shape {
        Shape::from(&sizes[..])
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        assert!((1..=4).contains(&dims.len()), "a tensor has one to four dimensions, not {}", dims.len());
        let mut sizes = [1; 4];
        sizes[..dims.len()].copy_from_slice(dims);
        Shape { sizes, rank: dims.len() }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<String> = self.dims().iter().map(usize::to_string).collect();
        write!(f, "[{}]", text.join(" x "))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
