//! Byte layout of a batch. A batch is one slab, so that it is copied to the device at once.
//!
//! | field | shape | dtype | content |
//! |---|---|---|---|
//! | each part, by its name | `[rows, capacity, width]` | the column's | the array, padded |
//! | its name + `_rows` | `[rows]` | i32 | number of its rows that are not padding |
//! | `record` | `[rows]` | i32 | record number; -1 if the row is empty |
//! | `companion` | `[rows]` | i32 | the companion's record number; -1 if there is none |
//! | `speaker`, `language` | `[rows]` | i32 | their numbers; 0 if the row is empty |

use crate::batch::ladder::Rung;
use crate::batch::settings::{Part, Take};
use crate::record::{Dtype, TOKENS};

/// Alignment of every field in bytes: the alignment of device memory.
pub const ALIGNMENT: usize = 256;

/// Content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The array of the part with this index.
    Part(usize),
    /// The valid lengths of the part with this index.
    Rows(usize),
    /// Record numbers.
    Record,
    /// Companions' record numbers.
    Companion,
    /// Speaker numbers.
    Speaker,
    /// Language numbers.
    Language,
}

/// One array of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, unique in the layout.
    pub name: String,
    /// What the field holds.
    pub content: Content,
    /// Element type.
    pub dtype: Dtype,
    /// Extents; row-major.
    pub shape: Vec<usize>,
    /// Byte offset in the slab.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
}

/// The fields of a batch of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    rows: u32,
    rung: Rung,
    fields: Vec<Field>,
    /// Field index of each part's array, by part.
    arrays: Vec<usize>,
    bytes: usize,
}

impl Layout {
    /// Computes the layout of `rows` rows with the capacity of `rung`. `None` if it exceeds the largest possible allocation.
    pub fn new(rows: u32, rung: Rung, parts: &[Part]) -> Option<Layout> {
        let mut layout = Layout { rows, rung, fields: Vec::new(), arrays: Vec::new(), bytes: 0 };
        for (i, part) in parts.iter().enumerate() {
            let capacity = match part.take {
                Take::Window(window) => window.saturating_add(part.overlap),
                Take::Whole if part.column == TOKENS => rung.tokens,
                Take::Whole => rung.frames,
            };
            let shape = vec![rows as usize, capacity as usize, part.column.width as usize];
            layout.arrays.push(layout.fields.len());
            layout.push(part.name(), Content::Part(i), part.column.dtype, shape)?;
        }
        // Small fields follow the large ones.
        for (i, part) in parts.iter().enumerate() {
            layout.push(
                format!("{}_rows", part.name()),
                Content::Rows(i),
                Dtype::I32,
                vec![rows as usize],
            )?;
        }
        for (name, content) in [
            ("record", Content::Record),
            ("companion", Content::Companion),
            ("speaker", Content::Speaker),
            ("language", Content::Language),
        ] {
            layout.push(name.into(), content, Dtype::I32, vec![rows as usize])?;
        }
        Some(layout)
    }

    fn push(&mut self, name: String, content: Content, dtype: Dtype, shape: Vec<usize>) -> Option<()> {
        let bytes = shape.iter().try_fold(dtype.size(), |product, &n| product.checked_mul(n))?;
        let offset = self.bytes;
        self.bytes = offset.checked_add(bytes)?.checked_next_multiple_of(ALIGNMENT)?;
        self.fields.push(Field { name, content, dtype, shape, offset, bytes });
        // The maximum size of an allocation.
        (self.bytes <= isize::MAX as usize).then_some(())
    }

    /// Returns the number of rows of a batch.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the capacity of a row.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// Returns the fields in the order of their offsets.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the field of a name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the size of a batch in bytes, a multiple of 256.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the size of the parts' arrays alone in bytes, the reference for padding.
    pub fn array_bytes(&self) -> usize {
        self.arrays.iter().map(|&i| self.fields[i].bytes).sum()
    }

    /// Returns the bytes of row `row` of part `part`.
    pub fn row_range(&self, part: usize, row: u32) -> std::ops::Range<usize> {
        let field = &self.fields[self.arrays[part]];
        let bytes = field.bytes / self.rows as usize;
        let start = field.offset + row as usize * bytes;
        start..start + bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CONDITIONING_MEL, DVAE_MEL, WAVEFORM};

    #[test]
    fn fields_are_aligned_and_do_not_overlap() {
        let parts = [
            Part::whole(TOKENS),
            Part::whole(DVAE_MEL),
            Part::companion(CONDITIONING_MEL, 517),
            Part::window(WAVEFORM, 7),
        ];
        let layout = Layout::new(3, Rung { frames: 96, tokens: 48 }, &parts).unwrap();
        let mut end = 0;
        for field in layout.fields() {
            assert_eq!(field.offset % ALIGNMENT, 0, "{}", field.name);
            assert!(field.offset >= end, "{}", field.name);
            assert_eq!(field.bytes, field.shape.iter().product::<usize>() * field.dtype.size());
            end = field.offset + field.bytes;
        }
        assert_eq!(layout.bytes(), end.next_multiple_of(ALIGNMENT));
        assert_eq!(layout.field("dvae_mel").unwrap().shape, [3, 96, 80]);
        assert_eq!(layout.field("companion_conditioning_mel").unwrap().shape, [3, 517, 80]);
        assert_eq!(layout.row_range(0, 2).len(), 48 * 4);
    }

    #[test]
    fn a_batch_larger_than_memory_has_no_layout() {
        let rung = Rung { frames: u32::MAX, tokens: u32::MAX };
        assert!(Layout::new(u32::MAX, rung, &[Part::whole(DVAE_MEL)]).is_none());
    }
}
