//! The byte layout of a tape's inputs. A batch written in this layout can be copied to the device in one piece.

use crate::memory::{ALIGN, describe};
use crate::shape::{DType, Shape};
use crate::tape::{Storage, Tape, Value};
use half::bf16;

/// Byte offsets of the inputs a tape has so far. Inputs added to the tape later do not move these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputLayout {
    slots: Vec<(Value, InputSlot)>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InputSlot {
    offset: usize,
    shape: Shape,
    dtype: DType,
}

impl InputLayout {
    /// The layout of the inputs a tape has now.
    pub fn new(tape: &Tape) -> InputLayout {
        let (mut slots, mut bytes) = (Vec::new(), 0);
        for (v, info) in tape.values.iter().enumerate() {
            if info.storage == Storage::Input {
                let (shape, dtype) = (info.shape, info.dtype);
                slots.push((Value(v as u32), InputSlot { offset: bytes, shape, dtype }));
                bytes += (shape.len() * dtype.size()).next_multiple_of(ALIGN).max(ALIGN);
            }
        }
        InputLayout { slots, bytes }
    }

    /// Total size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Byte range of an input.
    pub fn range(&self, value: Value) -> std::ops::Range<usize> {
        let slot = self.slot(value);
        slot.offset..slot.offset + slot.shape.len() * slot.dtype.size()
    }

    fn slot(&self, value: Value) -> InputSlot {
        let found = self.slots.iter().find(|(other, _)| *other == value);
        found.unwrap_or_else(|| panic!("not an input of this tape")).1
    }

    /// Writes a float input, converting to its element type.
    pub fn write(&self, into: &mut [u8], value: Value, data: &[f32]) {
        let slot = self.slot(value);
        assert_eq!(slot.shape.len(), data.len(), "the input holds {}", describe(slot.shape));
        let into = &mut into[self.range(value)];
        match slot.dtype {
            DType::F32 => into.copy_from_slice(bytemuck::cast_slice(data)),
            DType::Bf16 => {
                for (to, &x) in into.chunks_exact_mut(2).zip(data) {
                    to.copy_from_slice(&bf16::from_f32(x).to_le_bytes());
                }
            }
            DType::I32 => panic!("the input holds integers"),
        }
    }

    /// Writes a float input, dividing each row element by element by `by` and converting to the input's element
    /// type.
    pub fn write_divided(&self, into: &mut [u8], value: Value, data: &[f32], by: &[f32]) {
        let slot = self.slot(value);
        assert_eq!(slot.shape.len(), data.len(), "the input holds {}", describe(slot.shape));
        assert!(!by.is_empty() && data.len().is_multiple_of(by.len()), "rows of {} numbers", by.len());
        let into = &mut into[self.range(value)];
        for (to, row) in into.chunks_exact_mut(slot.dtype.size() * by.len()).zip(data.chunks_exact(by.len()))
        {
            let divided = row.iter().zip(by).map(|(x, by)| x / by);
            match slot.dtype {
                DType::F32 => {
                    to.as_chunks_mut().0.iter_mut().zip(divided).for_each(|(to, x)| *to = x.to_le_bytes());
                }
                DType::Bf16 => {
                    let rounded = divided.map(|x| bf16::from_f32(x).to_le_bytes());
                    to.as_chunks_mut().0.iter_mut().zip(rounded).for_each(|(to, x)| *to = x);
                }
                DType::I32 => panic!("the input holds integers"),
            }
        }
    }

    /// Writes an integer input.
    pub fn write_i32(&self, into: &mut [u8], value: Value, data: &[i32]) {
        let slot = self.slot(value);
        assert_eq!(slot.dtype, DType::I32, "the input holds floats");
        assert_eq!(slot.shape.len(), data.len(), "the input holds {}", describe(slot.shape));
        into[self.range(value)].copy_from_slice(bytemuck::cast_slice(data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::LayoutBuilder;
    use crate::tape::Precision;
    use std::sync::Arc;

    #[test]
    fn dividing_while_writing_equals_dividing_before() {
        for dtype in [DType::F32, DType::Bf16] {
            let mut tape = Tape::new(Arc::new(LayoutBuilder::new().finish()), Precision::F32);
            let (_, value) = (tape.input([3], DType::I32), tape.input([5, 3], dtype));
            let image = InputLayout::new(&tape);
            let (data, by) = ((0..15).map(|x| x as f32 - 7.3).collect::<Vec<_>>(), [0.7, 3.0, -1.1]);
            let divided: Vec<f32> = data.iter().zip(by.iter().cycle()).map(|(x, by)| x / by).collect();
            let [mut one, mut other] = [(); 2].map(|()| vec![9u8; image.bytes()]);
            image.write_divided(&mut one, value, &data, &by);
            image.write(&mut other, value, &divided);
            assert_eq!(one, other, "{dtype:?}");
        }
    }
}
