//! What a batch brings for conditioning, or other mels, that a device makes: written once, out of the loader's memory into that which the
//! device is sent, and into no other on the way.

use crate::error::TrainError;
use myxtts_data::cache::audio_overlay::AUDIO_OVERLAP;
use myxtts_model::sequence::repeat_frames;
use myxtts_tensor::engine::Slot;
use std::ops::Range;

/// | part | shape | dtype | content |
/// |---|---|---|---|
/// | `places` | `[rows, frames]` | i32 | of every frame the number of its mel: in the table, or among those made of the sound |
/// | `sound` | `[rows + 1, frames + 3, 256]` | f32 | samples, the last row silent; not there where mels lie in a table |
pub(in crate::stages) struct ConditioningInput {
    /// Where both are: page-locked for a GPU.
    pub slot: Slot,
    pub rows: usize,
    pub places: Range<usize>,
    pub sound: Option<Range<usize>>,
    /// Where the inputs of the batch have what is made of it.
    pub made: Range<usize>,
}

impl ConditioningInput {
    /// Numbers of mels in a table: what is below zero is none of them, and `silence` stands there.
    pub fn write_places(&mut self, places: &[i32], silence: i32) -> Result<(), TrainError> {
        let into = &mut self.slot.bytes()?[self.places.clone()];
        assert_eq!(into.len(), 4 * places.len(), "a number for every frame");
        for (to, &place) in into.as_chunks_mut().0.iter_mut().zip(places) {
            *to = (if place < 0 { silence } else { place }).to_le_bytes();
        }
        Ok(())
    }

    /// The sound of all rows, of which `heard` frames are, and the numbers of the mels that will be made of it.
    pub fn write_sound(&mut self, sound: &[u8], heard: &[i32]) -> Result<(), TrainError> {
        let (rows, frames) = (self.rows, self.places.len() / 4 / self.rows);
        let row = sound.len() / rows;
        let hop = row / (frames + AUDIO_OVERLAP as usize);
        let place = self.sound.clone().unwrap_or_default();
        assert_eq!(place.len(), sound.len() + row, "a row of sound for every row, and a silent one");
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
            // What stands behind the end was written for mels.
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

    /// Has every row say its `heard` frames again and again.
    pub fn repeat(&mut self, heard: &[i32]) -> Result<(), TrainError> {
        repeat_frames(&mut self.slot.bytes()?[self.places.clone()], 4, heard);
        Ok(())
    }
}
