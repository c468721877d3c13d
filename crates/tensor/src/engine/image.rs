//! Where the inputs of a tape lie, so that whoever makes a batch writes it as the device will have it: one piece.

use crate::memory::{ALIGN, describe};
use crate::shape::{DType, Shape};
use crate::tape::{Storage, Tape, Value};
use half::bf16;

/// The inputs a tape has had so far. A tape that gets more of them later keeps these where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    places: Vec<(Value, Place)>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: usize,
    shape: Shape,
    dtype: DType,
}

impl Image {
    /// Of the inputs a tape has now.
    pub fn of(tape: &Tape) -> Image {
        let (mut places, mut bytes) = (Vec::new(), 0);
        for (v, info) in tape.values.iter().enumerate() {
            if info.storage == Storage::Input {
                let (shape, dtype) = (info.shape, info.dtype);
                places.push((Value(v as u32), Place { offset: bytes, shape, dtype }));
                bytes += (shape.len() * dtype.size()).next_multiple_of(ALIGN).max(ALIGN);
            }
        }
        Image { places, bytes }
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where an input starts, and how many bytes it has.
    pub fn range(&self, value: Value) -> std::ops::Range<usize> {
        let place = self.place(value);
        place.offset..place.offset + place.shape.len() * place.dtype.size()
    }

    fn place(&self, value: Value) -> Place {
        let found = self.places.iter().find(|(other, _)| *other == value);
        found.unwrap_or_else(|| panic!("not an input of this tape")).1
    }

    /// Writes a float input, rounding to its type.
    pub fn write(&self, into: &mut [u8], value: Value, data: &[f32]) {
        let place = self.place(value);
        assert_eq!(place.shape.len(), data.len(), "the input holds {}", describe(place.shape));
        let into = &mut into[self.range(value)];
        match place.dtype {
            DType::F32 => into.copy_from_slice(bytemuck::cast_slice(data)),
            DType::Bf16 => {
                for (to, &x) in into.chunks_exact_mut(2).zip(data) {
                    to.copy_from_slice(&bf16::from_f32(x).to_le_bytes());
                }
            }
            DType::I32 => panic!("the input holds integers"),
        }
    }

    /// Writes a float input, each row of it divided by `by`, number by number, and rounded to its type.
    pub fn write_divided(&self, into: &mut [u8], value: Value, data: &[f32], by: &[f32]) {
        let place = self.place(value);
        assert_eq!(place.shape.len(), data.len(), "the input holds {}", describe(place.shape));
        assert!(!by.is_empty() && data.len().is_multiple_of(by.len()), "rows of {} numbers", by.len());
        let into = &mut into[self.range(value)];
        for (to, row) in into.chunks_exact_mut(place.dtype.size() * by.len()).zip(data.chunks_exact(by.len()))
        {
            let divided = row.iter().zip(by).map(|(x, by)| x / by);
            match place.dtype {
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
        let place = self.place(value);
        assert_eq!(place.dtype, DType::I32, "the input holds floats");
        assert_eq!(place.shape.len(), data.len(), "the input holds {}", describe(place.shape));
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
    fn rows_are_divided_as_if_before() {
        for dtype in [DType::F32, DType::Bf16] {
            let mut tape = Tape::new(Arc::new(LayoutBuilder::new().finish()), Precision::F32);
            let (_, value) = (tape.input([3], DType::I32), tape.input([5, 3], dtype));
            let image = Image::of(&tape);
            let (data, by) = ((0..15).map(|x| x as f32 - 7.3).collect::<Vec<_>>(), [0.7, 3.0, -1.1]);
            let divided: Vec<f32> = data.iter().zip(by.iter().cycle()).map(|(x, by)| x / by).collect();
            let [mut one, mut other] = [(); 2].map(|()| vec![9u8; image.bytes()]);
            image.write_divided(&mut one, value, &data, &by);
            image.write(&mut other, value, &divided);
            assert_eq!(one, other, "{dtype:?}");
        }
    }
}
