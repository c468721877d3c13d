//! Targets of the acoustic head: the mels of the code that each position of the GPT has read.

use crate::overlay::position;
use myxtts_data::problem::Problem;
use myxtts_data::record::{DVAE_MEL, RecordError, RecordSource};
use myxtts_model::GptSizes;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Samples per frame of the mels that codes are made from.
const HOP: usize = 256;

/// Some codes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub record: u32,
    pub codes: Range<usize>,
}

/// Mel values per code: bands times frames.
pub(super) fn channels(sizes: &GptSizes) -> usize {
    frames_per_code(sizes) * sizes.conditioning.mels
}

fn frames_per_code(sizes: &GptSizes) -> usize {
    sizes.code_stride / HOP
}

/// The targets of a batch.
pub(super) struct BatchTargets {
    /// Mels `[rows, positions, channels]`, not yet divided by `mel_stats`.
    pub mels: Vec<f32>,
    /// Rows that could not be read, in their order; their mels are zeros.
    pub bad: Vec<BadRow>,
}

/// A row whose mels could not be read.
pub(super) struct BadRow {
    pub row: usize,
    /// The record of its first bad segment.
    pub record: u32,
    pub problem: Problem,
}

/// Reads the targets of batches.
pub(super) struct AcousticTargets {
    source: Arc<dyn RecordSource>,
    column: usize,
    bands: usize,
    frames: usize,
}

impl AcousticTargets {
    pub fn new(source: Arc<dyn RecordSource>, sizes: &GptSizes) -> AcousticTargets {
        let column = position(&*source, DVAE_MEL);
        AcousticTargets { source, column, bands: sizes.conditioning.mels, frames: frames_per_code(sizes) }
    }

    /// The targets of rows that consist of these segments. Position 0 has read START, position 1 the first code. Where no
    /// code was read there are zeros.
    ///
    /// # Errors
    /// If the storage failed: the record may be good. Bad records are returned with the targets.
    pub fn of(&self, rows: &[Vec<Segment>], positions: usize) -> Result<BatchTargets, RecordError> {
        let per_code = self.bands * self.frames;
        let mut mels = vec![0f32; rows.len() * positions * per_code];
        let targets = mels.par_chunks_mut((positions * per_code).max(1)).zip(rows).enumerate();
        let read = targets.map(|(row, (mels, segments))| match self.row(segments, mels) {
            Ok(()) => Ok(None),
            Err((record, RecordError::Bad(problem))) => {
                mels.fill(0.0);
                Ok(Some(BadRow { row, record, problem }))
            }
            Err((_, error)) => Err(error),
        });
        let bad: Vec<Option<BadRow>> = read.collect::<Result<_, RecordError>>()?;
        Ok(BatchTargets { mels, bad: bad.into_iter().flatten().collect() })
    }

    /// Reads the targets of a row; an error comes with its record.
    fn row(&self, segments: &[Segment], mels: &mut [f32]) -> Result<(), (u32, RecordError)> {
        let per_code = self.bands * self.frames;
        let (mut position, positions) = (1, mels.len() / per_code.max(1));
        for Segment { record, codes } in segments {
            let end = (position + codes.len()).min(positions);
            let into = &mut mels[position.min(end) * per_code..end * per_code];
            self.read(*record, codes.start, into).map_err(|error| (*record, error))?;
            position = end;
        }
        Ok(())
    }

    /// Reads the mels of a record from `code` on. The last code may have fewer frames than others: its last frame is
    /// repeated.
    fn read(&self, record: u32, code: usize, into: &mut [f32]) -> Result<(), RecordError> {
        if into.is_empty() {
            return Ok(());
        }
        let first = (code * self.frames) as u32;
        let rows = self.source.read(record as usize, self.column, first, bytemuck::cast_slice_mut(into))?;
        let filled = (rows as usize * self.bands).min(into.len());
        if filled >= self.bands {
            let last = into[filled - self.bands..filled].to_vec();
            into[filled..]
                .chunks_mut(self.bands)
                .for_each(|frame| frame.copy_from_slice(&last[..frame.len()]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myxtts_data::record::Column;

    /// Two records whose frame `f` holds `100 * record + f` in both bands; the second has half a code more.
    struct Frames([u32; 2]);

    impl RecordSource for Frames {
        fn columns(&self) -> &[Column] {
            &[DVAE_MEL]
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn rows(&self, record: usize, _: usize) -> u32 {
            self.0[record]
        }
        fn speaker(&self, _: usize) -> u32 {
            0
        }
        fn language(&self, _: usize) -> u32 {
            0
        }
        fn speakers(&self) -> &[String] {
            &[]
        }
        fn languages(&self) -> &[String] {
            &[]
        }
        fn id(&self, record: usize) -> String {
            record.to_string()
        }
        fn read(&self, record: usize, _: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
            let out: &mut [f32] = bytemuck::cast_slice_mut(out);
            let rows = self.0[record].saturating_sub(first).min(out.len() as u32 / 2);
            for (row, frame) in out.chunks_exact_mut(2).enumerate().take(rows as usize) {
                frame.fill(100.0 * record as f32 + (first as usize + row) as f32);
            }
            Ok(rows)
        }
        fn fingerprint(&self) -> [u8; 32] {
            [0; 32]
        }
    }

    #[test]
    fn every_position_gets_the_mels_of_the_code_it_has_read() {
        let targets = AcousticTargets { source: Arc::new(Frames([12, 10])), column: 0, bands: 2, frames: 4 };
        let segment = |record, codes| Segment { record, codes };
        // A recombined row, a row whose last code has two frames of four, and an empty row.
        let rows = [vec![segment(1, 1..2), segment(0, 0..2)], vec![segment(1, 0..3)], vec![]];
        let mels = targets.of(&rows, 5).expect("readable").mels;
        let code = |row: usize, position: usize| -> Vec<f32> {
            mels[(row * 5 + position) * 8..][..8].iter().copied().step_by(2).collect()
        };
        assert_eq!(code(0, 0), [0.0; 4], "START has read no code");
        assert_eq!(code(0, 1), [104.0, 105.0, 106.0, 107.0]);
        assert_eq!((code(0, 2), code(0, 3)), (vec![0.0, 1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0, 7.0]));
        assert_eq!(code(0, 4), [0.0; 4], "after the last code");
        assert_eq!(code(1, 3), [108.0, 109.0, 109.0, 109.0], "the last frame is repeated");
        assert!((0..5).all(|position| code(2, position) == [0.0; 4]));
        // A row with more codes than positions is cut.
        assert_eq!(targets.of(&rows[1..2], 2).expect("readable").mels.len(), 16);
    }
}
