//! Prompts of slots: a voice and a text, whose keys and values are computed for many positions at once.

use super::{Decoder, MAX_ROWS, Row, bucket};
use crate::error::Error;
use std::sync::Arc;

/// The prompt of one slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotPrompt<'a> {
    /// Index of the slot.
    pub slot: usize,
    /// The voice, `[latents, width]`.
    pub voice: &'a [f32],
    /// Text tokens, START and STOP included.
    pub text: &'a [i32],
}

impl Decoder {
    /// Writes voices and texts into the caches of slots, as many positions at a time as a batch has rows. A voice
    /// the slot already holds is not computed again. Returns how many rows each slot has afterwards.
    pub fn prompt(&mut self, prompts: &[SlotPrompt<'_>]) -> Result<Vec<usize>, Error> {
        assert!(self.in_flight.is_none(), "steps are still in flight");
        let (latents, width) = (self.sizes.latents, self.sizes.width);
        let mut rows_to_write: Vec<(Row, &[f32])> = Vec::new();
        let mut voices = Vec::with_capacity(prompts.len());
        for &SlotPrompt { slot, voice, text } in prompts {
            assert_eq!(voice.len(), latents * width, "the voice has a different size");
            assert!(slot < self.sizes.slots && text.len() <= self.sizes.text_positions);
            let is_there = self.has_voice(slot, voice);
            voices.push(self.known_voice(voice).unwrap_or_else(|| Arc::from(voice)));
            let row_at = |position: usize, code: i32| Row {
                slot: slot as i32,
                position: position as i32,
                code,
                ..Row::EMPTY
            };
            if !is_there {
                self.voices[slot] = None;
                rows_to_write
                    .extend(voice.chunks_exact(width).enumerate().map(|(i, row)| (row_at(i, 0), row)));
            }
            rows_to_write
                .extend(text.iter().enumerate().map(|(i, &token)| (row_at(latents + i, token), &[][..])));
        }
        self.cuda.bind()?;
        for chunk in rows_to_write.chunks(MAX_ROWS) {
            let mut rows: Vec<Row> = chunk.iter().map(|(row, _)| *row).collect();
            let mut voice = Vec::new();
            for (i, (_, vector)) in chunk.iter().enumerate() {
                // Positions of a slot are adjacent: everything before the first of them in this batch is already in
                // the cache.
                rows[i].fresh = match i.checked_sub(1).map(|before| rows[before]) {
                    Some(before) if before.slot == rows[i].slot => before.fresh,
                    _ => rows[i].position,
                };
                rows[i].code_index = (voice.len() / width) as i32;
                voice.extend_from_slice(vector);
            }
            rows.resize(bucket(rows.len()), Row::EMPTY);
            self.buffers.write_prompt(&self.cuda, &rows, &voice)?;
            self.run_prompt(rows.len())?;
        }
        self.cuda.synchronize()?;
        for (prompt, voice) in prompts.iter().zip(voices) {
            self.voices[prompt.slot] = Some(voice);
        }
        Ok(prompts.iter().map(|prompt| latents + prompt.text.len()).collect())
    }

    /// Whether the slot's cache holds this voice from its last prompt.
    pub fn has_voice(&self, slot: usize, voice: &[f32]) -> bool {
        self.voices[slot].as_deref() == Some(voice)
    }

    fn known_voice(&self, voice: &[f32]) -> Option<Arc<[f32]>> {
        self.voices.iter().flatten().find(|known| known[..] == *voice).cloned()
    }
}
