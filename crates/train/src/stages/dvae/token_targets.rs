//! The token that is spoken in each mel frame, as a target for codes.
//!
//! Codes that only have to reconstruct a mel spend their capacity on loudness and pitch. A linear classifier over each
//! code's vector, trained to predict the token, makes the codes keep the distinctions between phonemes.

use crate::align::Alignments;
use crate::overlay::position;
use myxtts_data::cache::audio_overlay::DVAE_AUDIO;
use myxtts_data::record::{Column, DVAE_MEL, Overlay, RecordError, RecordSource};
use std::sync::Arc;

/// A mel frame and, as its last number, the id of the token that is spoken in it; negative where none is known.
pub(super) const MEL_WITH_TOKEN: Column = with_token(DVAE_MEL);
/// The same with the first hop of the frame's waveform instead of the mel.
pub(super) const AUDIO_WITH_TOKEN: Column = with_token(DVAE_AUDIO);

/// A column of frames with a token each.
const fn with_token(frames: Column) -> Column {
    Column { name: "dvae_mel_with_token", width: frames.width + 1, dtype: frames.dtype }
}

/// Targets of the codes in addition to the mel.
#[derive(Clone, Debug)]
pub struct TokenTargets {
    /// Weight of the classifier's loss.
    pub weight: f64,
    /// Number of tokens.
    pub vocabulary: usize,
    /// The token spoken at each code.
    pub alignments: Arc<Alignments>,
}

/// Records with [`MEL_WITH_TOKEN`] or [`AUDIO_WITH_TOKEN`] as their last column.
pub(super) struct WithTokens {
    base: Arc<dyn RecordSource>,
    columns: Vec<Column>,
    /// Position and type of the frames in the base.
    frames: (usize, Column),
    alignments: Arc<Alignments>,
    frames_per_code: usize,
}

impl WithTokens {
    /// The records of `base`, which have [`DVAE_MEL`] or [`DVAE_AUDIO`] as `frames`.
    pub fn new(
        base: Arc<dyn RecordSource>,
        frames: Column,
        alignments: Arc<Alignments>,
        frames_per_code: usize,
    ) -> WithTokens {
        let mut columns = base.columns().to_vec();
        columns.push(with_token(frames));
        let frames = (position(&*base, frames), frames);
        WithTokens { base, columns, frames, alignments, frames_per_code }
    }
}

impl Overlay for WithTokens {
    fn base(&self) -> &dyn RecordSource {
        &*self.base
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.base.rows(record, if column + 1 == self.columns.len() { self.frames.0 } else { column })
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if column + 1 < self.columns.len() {
            return self.base.read(record, column, first_row, out);
        }
        let (at, narrow) = (self.frames.0, self.frames.1.row_bytes());
        let wide = with_token(self.frames.1).row_bytes();
        let mut mel = vec![0; out.len() / wide * narrow];
        let rows = self.base.read(record, at, first_row, &mut mel)?;
        let aligned = self.alignments.get(record as u32);
        let frames = mel.chunks_exact(narrow).zip(out.chunks_exact_mut(wide)).take(rows as usize);
        for (i, (frame, out)) in frames.enumerate() {
            let code = (first_row as usize + i) / self.frames_per_code;
            let token = aligned.and_then(|a| a.tokens.get(*a.at_code.get(code)? as usize));
            out[..narrow].copy_from_slice(frame);
            out[narrow..].copy_from_slice(&token.map_or(-1.0, |&id| id as f32).to_le_bytes());
        }
        Ok(rows)
    }

    // The base's own: batches and their order are the same.
    fn fingerprint(&self) -> [u8; 32] {
        self.base.fingerprint()
    }
}

/// Splits the frames of a batch into mel or waveform and the token of every code, which is that of its third frame. A row of
/// the batch is `window` frames plus the extra frames that its waveform needs.
pub(super) fn split(
    column: Column,
    frames: &[f32],
    (window, overlap): (usize, usize),
    frames_per_code: usize,
) -> (Vec<f32>, Vec<i32>) {
    let wide = column.width as usize;
    let narrow = wide - 1;
    let mel = frames.chunks_exact(wide).flat_map(|frame| &frame[..narrow]).copied().collect();
    let of_code = |code: &[f32]| {
        let frame = (frames_per_code / 2).min(code.len() / wide - 1);
        // Padding is negative as well.
        let token = code[frame * wide + narrow];
        if token < 0.0 { -1 } else { token as i32 }
    };
    let rows = frames.chunks_exact((window + overlap) * wide);
    let codes = rows.flat_map(|row| row[..window * wide].chunks(frames_per_code * wide)).map(of_code);
    (mel, codes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_the_token_of_its_middle_and_padding_has_none() {
        let (wide, narrow) = (MEL_WITH_TOKEN.width as usize, DVAE_MEL.width as usize);
        // Six frames: a code in which the token changes, and one that ends in padding.
        let tokens = [7.0, 7.0, 9.0, 9.0, -1.0, -11.5];
        let mut frames = vec![0f32; tokens.len() * wide];
        for (i, token) in tokens.iter().enumerate() {
            frames[i * wide..][..narrow].fill(i as f32);
            frames[i * wide + narrow] = *token;
        }
        let (mel, codes) = split(MEL_WITH_TOKEN, &frames, (6, 0), 4);
        assert_eq!(codes, [9, -1]);
        let first: Vec<f32> = mel.iter().step_by(narrow).copied().collect();
        assert_eq!((mel.len(), first), (6 * narrow, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        // Two rows of a window of two frames, plus one frame that only the waveform needs.
        assert_eq!(split(MEL_WITH_TOKEN, &frames, (2, 1), 2).1, [7, -1]);
    }
}
