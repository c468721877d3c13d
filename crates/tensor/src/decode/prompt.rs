//! What slots begin with: a voice and a text, whose keys and values are made for many places at once.

use super::{Decoder, MOST_ROWS, Row, bucket};
use crate::error::Error;
use std::sync::Arc;

/// What a slot is to begin with.
#[derive(Clone, Copy, Debug)]
pub struct SlotPrompt<'a> {
    /// Which slot.
    pub slot: usize,
    /// The voice `[latents, width]`.
    pub voice: &'a [f32],
    /// The text, START and STOP included.
    pub text: &'a [i32],
}

impl Decoder {
    /// Puts voices and texts into the caches of slots, as many places at a time as a batch has rows. A voice that a slot
    /// began with before is there already. Says how many rows each slot has afterwards.
    pub fn prompt(&mut self, prompts: &[SlotPrompt<'_>]) -> Result<Vec<usize>, Error> {
        assert!(self.in_flight.is_none(), "steps are still on their way");
        let (latents, width) = (self.sizes.latents, self.sizes.width);
        let mut places: Vec<(Row, &[f32])> = Vec::new();
        let mut voices = Vec::with_capacity(prompts.len());
        for &SlotPrompt { slot, voice, text } in prompts {
            assert_eq!(voice.len(), latents * width, "a voice of another size");
            assert!(slot < self.sizes.slots && text.len() <= self.sizes.text_places);
            let is_there = self.has_voice(slot, voice);
            voices.push(self.known_voice(voice).unwrap_or_else(|| Arc::from(voice)));
            let place = |position: usize, code: i32| Row {
                slot: slot as i32,
                position: position as i32,
                code,
                ..Row::EMPTY
            };
            if !is_there {
                self.voices[slot] = None;
                places.extend(voice.chunks_exact(width).enumerate().map(|(i, row)| (place(i, 0), row)));
            }
            places.extend(text.iter().enumerate().map(|(i, &token)| (place(latents + i, token), &[][..])));
        }
        self.cuda.bind()?;
        for some in places.chunks(MOST_ROWS) {
            let mut rows: Vec<Row> = some.iter().map(|(row, _)| *row).collect();
            let mut voice = Vec::new();
            for (i, (_, vector)) in some.iter().enumerate() {
                // Places of a slot stand together: what was before the first of them in this batch is there.
                rows[i].fresh = match i.checked_sub(1).map(|before| rows[before]) {
                    Some(before) if before.slot == rows[i].slot => before.fresh,
                    _ => rows[i].position,
                };
                rows[i].place = (voice.len() / width) as i32;
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

    /// Whether a slot began with this voice when it last began: its keys and values are there.
    pub fn has_voice(&self, slot: usize, voice: &[f32]) -> bool {
        self.voices[slot].as_deref() == Some(voice)
    }

    fn known_voice(&self, voice: &[f32]) -> Option<Arc<[f32]>> {
        self.voices.iter().flatten().find(|known| known[..] == *voice).cloned()
    }
}
