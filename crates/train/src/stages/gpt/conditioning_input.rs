//! The input of conditioning, or other mels, that a device computes for a batch. It is copied once, from the loader's memory
//! to the memory that is sent to the device.

use crate::error::TrainError;
use myxtts_data::cache::audio_overlay::AUDIO_OVERLAP;
use myxtts_model::sequence::repeat_frames;
use myxtts_tensor::engine::Slot;
use std::ops::Range;

/// Input of a [`ConditioningEngine`](super::conditioning_engine::ConditioningEngine) for one batch.
///
/// | part | shape | dtype | content |
/// |---|---|---|---|
/// | `mel_indices` | `[rows, frames]` | i32 | index of every frame's mel: in the table, or among those computed from the waveform |
/// | `waveforms` | `[rows + 1, frames + 3, 256]` | f32 | samples, the last row silent; absent if mels are in a table |
pub(in crate::stages) struct ConditioningInput {
    /// The memory of both parts: page-locked for a GPU.
    pub slot: Slot,
    pub rows: usize,
    pub mel_indices: Range<usize>,
    pub waveforms: Option<Range<usize>>,
    /// Range of the result in the inputs of the batch.
    pub made: Range<usize>,
}

impl ConditioningInput {
    /// Writes indices of mels in a table; negative ones become `silence`.
    pub fn write_mel_indices(&mut self, indices: &[i32], silence: i32) -> Result<(), TrainError> {
        let into = &mut self.slot.bytes()?[self.mel_indices.clone()];
        assert_eq!(into.len(), 4 * indices.len(), "one index per frame");
        for (to, &index) in into.as_chunks_mut().0.iter_mut().zip(indices) {
            *to = (if index < 0 { silence } else { index }).to_le_bytes();
        }
        Ok(())
    }

    /// Writes the waveforms of all rows, with `valid_frames` frames each, and the indices of the mels computed
    /// from them.
    pub fn write_waveforms(&mut self, waveforms: &[u8], valid_frames: &[i32]) -> Result<(), TrainError> {
        let (rows, frames) = (self.rows, self.mel_indices.len() / 4 / self.rows);
        let row = waveforms.len() / rows;
        let hop = row / (frames + AUDIO_OVERLAP as usize);
        let range = self.waveforms.clone().unwrap_or_default();
        assert_eq!(range.len(), waveforms.len() + row, "one waveform per row, and a silent one");
        let bytes = self.slot.bytes()?;
        let silence = (rows * frames) as i32;
        for (row, (into, &valid_frames)) in
            bytes[self.mel_indices.clone()].chunks_exact_mut(4 * frames).zip(valid_frames).enumerate()
        {
            for (frame, to) in into.as_chunks_mut().0.iter_mut().enumerate() {
                let is_valid = (frame as i32) < valid_frames;
                *to = (if is_valid { (row * frames + frame) as i32 } else { silence }).to_le_bytes();
            }
        }
        let (own, silent) = bytes[range].split_at_mut(waveforms.len());
        for ((to, from), &valid_frames) in
            own.chunks_exact_mut(row).zip(waveforms.chunks_exact(row)).zip(valid_frames)
        {
            // Data behind the end is padding for mels, not samples.
            let valid_bytes = match usize::try_from(valid_frames) {
                Err(_) | Ok(0) => 0,
                Ok(valid_frames) => (valid_frames + AUDIO_OVERLAP as usize) * hop,
            };
            to[..valid_bytes].copy_from_slice(&from[..valid_bytes]);
            to[valid_bytes..].fill(0);
        }
        silent.fill(0);
        Ok(())
    }

    /// Repeats the `valid_frames` frames of every row to the full length.
    pub fn repeat(&mut self, valid_frames: &[i32]) -> Result<(), TrainError> {
        repeat_frames(&mut self.slot.bytes()?[self.mel_indices.clone()], 4, valid_frames);
        Ok(())
    }
}
