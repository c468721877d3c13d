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
/// | `places` | `[rows, frames]` | i32 | index of every frame's mel: in the table, or among those computed from the waveform |
/// | `sound` | `[rows + 1, frames + 3, 256]` | f32 | samples, the last row silent; absent if mels are in a table |
pub(in crate::stages) struct ConditioningInput {
    /// The memory of both parts: page-locked for a GPU.
    pub slot: Slot,
    pub rows: usize,
    pub places: Range<usize>,
    pub sound: Option<Range<usize>>,
    /// Range of the result in the inputs of the batch.
    pub made: Range<usize>,
}

impl ConditioningInput {
    /// Writes indices of mels in a table; negative ones become `silence`.
    pub fn write_places(&mut self, places: &[i32], silence: i32) -> Result<(), TrainError> {
        let into = &mut self.slot.bytes()?[self.places.clone()];
        assert_eq!(into.len(), 4 * places.len(), "one index per frame");
        for (to, &place) in into.as_chunks_mut().0.iter_mut().zip(places) {
            *to = (if place < 0 { silence } else { place }).to_le_bytes();
        }
        Ok(())
    }

    /// Writes the waveforms of all rows, with `heard` valid frames each, and the indices of the mels that will be computed
    /// from them.
    pub fn write_sound(&mut self, sound: &[u8], heard: &[i32]) -> Result<(), TrainError> {
        let (rows, frames) = (self.rows, self.places.len() / 4 / self.rows);
        let row = sound.len() / rows;
        let hop = row / (frames + AUDIO_OVERLAP as usize);
        let place = self.sound.clone().unwrap_or_default();
        assert_eq!(place.len(), sound.len() + row, "one waveform per row, and a silent one");
        let bytes = self.slot.bytes()?;
        let silence = (rows * frames) as i32;
        for (row, (into, &heard)) in
            bytes[self.places.clone()].chunks_exact_mut(4 * frames).zip(heard).enumerate()
        {
            for (frame, to) in into.as_chunks_mut().0.iter_mut().enumerate() {
                let sounds = (frame as i32) < heard;
                *to = (if sounds { (row * frames + frame) as i32 } else { silence }).to_le_bytes();
            }
        }
        let (own, silent) = bytes[place].split_at_mut(sound.len());
        for ((to, from), &heard) in own.chunks_exact_mut(row).zip(sound.chunks_exact(row)).zip(heard) {
            // Data behind the end is padding for mels, not samples.
            let sounding = match usize::try_from(heard) {
                Err(_) | Ok(0) => 0,
                Ok(heard) => (heard + AUDIO_OVERLAP as usize) * hop,
            };
            to[..sounding].copy_from_slice(&from[..sounding]);
            to[sounding..].fill(0);
        }
        silent.fill(0);
        Ok(())
    }

    /// Repeats the `heard` frames of every row to the full length.
    pub fn repeat(&mut self, heard: &[i32]) -> Result<(), TrainError> {
        repeat_frames(&mut self.slot.bytes()?[self.places.clone()], 4, heard);
        Ok(())
    }
}
