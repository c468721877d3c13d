//! The kinds of numbers that weight files hold.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// A kind of number, under its safetensors name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum Kind {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    U8,
    Bool,
}

impl Kind {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Kind::F64 | Kind::I64 => 8,
            Kind::F32 | Kind::I32 => 4,
            Kind::F16 | Kind::Bf16 => 2,
            Kind::U8 | Kind::Bool => 1,
        }
    }

    /// Is it a floating-point kind? Those are all f32 in our folder.
    pub fn is_float(self) -> bool {
        matches!(self, Kind::F64 | Kind::F32 | Kind::F16 | Kind::Bf16)
    }

    /// The name torch has for a storage of it.
    pub fn storage(self) -> &'static str {
        match self {
            Kind::F64 => "DoubleStorage",
            Kind::F32 => "FloatStorage",
            Kind::F16 => "HalfStorage",
            Kind::Bf16 => "BFloat16Storage",
            Kind::I64 => "LongStorage",
            Kind::I32 => "IntStorage",
            Kind::U8 => "ByteStorage",
            Kind::Bool => "BoolStorage",
        }
    }

    /// The kind of a torch storage class.
    pub fn of_storage(name: &str) -> Option<Kind> {
        const ALL: [Kind; 8] =
            [Kind::F64, Kind::F32, Kind::F16, Kind::Bf16, Kind::I64, Kind::I32, Kind::U8, Kind::Bool];
        ALL.into_iter().find(|kind| kind.storage() == name)
    }

    /// The kind that safetensors calls so, where it is one of ours.
    pub fn of_safetensors(kind: safetensors::Dtype) -> Option<Kind> {
        use safetensors::Dtype;
        Some(match kind {
            Dtype::F64 => Kind::F64,
            Dtype::F32 => Kind::F32,
            Dtype::F16 => Kind::F16,
            Dtype::BF16 => Kind::Bf16,
            Dtype::I64 => Kind::I64,
            Dtype::I32 => Kind::I32,
            Dtype::U8 => Kind::U8,
            Dtype::BOOL => Kind::Bool,
            _ => return None,
        })
    }

    /// Little-endian bytes of a floating-point kind as f32; none for other kinds.
    pub fn to_f32(self, bytes: &[u8]) -> Option<Vec<f32>> {
        fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
            bytes.as_chunks::<N>().0.iter().map(|&chunk| read(chunk)).collect()
        }
        Some(match self {
            Kind::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
            Kind::F32 => each(bytes, f32::from_le_bytes),
            Kind::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
            Kind::Bf16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            Kind::I64 | Kind::I32 | Kind::U8 | Kind::Bool => return None,
        })
    }
}
