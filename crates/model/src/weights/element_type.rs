//! Element types of weight files.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// Element type of a tensor; serialised under its safetensors name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum ElementType {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    U8,
    Bool,
}

impl ElementType {
    /// Size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            ElementType::F64 | ElementType::I64 => 8,
            ElementType::F32 | ElementType::I32 => 4,
            ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::U8 | ElementType::Bool => 1,
        }
    }

    /// Returns whether this is a floating-point type. Model folders store all of those as f32.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, ElementType::F64 | ElementType::F32 | ElementType::F16 | ElementType::Bf16)
    }

    /// Name of torch's storage class for this type.
    pub fn storage(self) -> &'static str {
        match self {
            ElementType::F64 => "DoubleStorage",
            ElementType::F32 => "FloatStorage",
            ElementType::F16 => "HalfStorage",
            ElementType::Bf16 => "BFloat16Storage",
            ElementType::I64 => "LongStorage",
            ElementType::I32 => "IntStorage",
            ElementType::U8 => "ByteStorage",
            ElementType::Bool => "BoolStorage",
        }
    }

    /// Returns the type of a torch storage class.
    pub(crate) fn from_storage(name: &str) -> Option<ElementType> {
        const ALL: [ElementType; 8] = [
            ElementType::F64,
            ElementType::F32,
            ElementType::F16,
            ElementType::Bf16,
            ElementType::I64,
            ElementType::I32,
            ElementType::U8,
            ElementType::Bool,
        ];
        ALL.into_iter().find(|kind| kind.storage() == name)
    }

    /// Converts a safetensors type; `None` if it is not supported here.
    pub(crate) fn from_safetensors(kind: safetensors::Dtype) -> Option<ElementType> {
        use safetensors::Dtype;
        Some(match kind {
            Dtype::F64 => ElementType::F64,
            Dtype::F32 => ElementType::F32,
            Dtype::F16 => ElementType::F16,
            Dtype::BF16 => ElementType::Bf16,
            Dtype::I64 => ElementType::I64,
            Dtype::I32 => ElementType::I32,
            Dtype::U8 => ElementType::U8,
            Dtype::BOOL => ElementType::Bool,
            _ => return None,
        })
    }

    /// Converts little-endian bytes of a floating-point type to f32; `None` for other types.
    pub fn to_f32(self, bytes: &[u8]) -> Option<Vec<f32>> {
        fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
            bytes.as_chunks::<N>().0.iter().map(|&chunk| read(chunk)).collect()
        }
        Some(match self {
            ElementType::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
            ElementType::F32 => each(bytes, f32::from_le_bytes),
            ElementType::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
            ElementType::Bf16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            ElementType::I64 | ElementType::I32 | ElementType::U8 | ElementType::Bool => return None,
        })
    }
}
