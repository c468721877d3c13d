//! The opened model as the speaker of the pieces of a text, with totals over all pieces.

use std::collections::BTreeSet;
use std::time::Instant;

use myxtts_model::{SamplingOptions, StopReason};
use myxtts_speak::narration::{Speaker, Spoken};
use myxtts_speak::{Attempt, Flaw, SpeakError, SpeakOptions, Synthesizer, Voice, Waveform};

/// Number of pieces submitted per decoding slot.
const GROUP: usize = 2;

/// Speaks pieces, and adds up their results.
pub struct ModelSpeaker<'m> {
    pub synthesizer: &'m mut Synthesizer,
    pub voice: Voice,
    pub language: String,
    pub options: SpeakOptions,
    /// Whether audio is passed on while codes are still generated.
    pub is_streamed: bool,
    pub totals: Totals,
}

/// Totals over all pieces.
#[derive(Default)]
pub struct Totals {
    /// The cleaned text.
    pub cleaned: String,
    pub tokens: usize,
    pub codes: usize,
    pub unknown: BTreeSet<char>,
    /// How the first piece without a regular end ended, or how the last piece ended.
    pub ended: Option<StopReason>,
    /// The first flaw that retries did not remove.
    pub flaw: Option<Flaw>,
    /// All attempts in their order.
    pub attempts: Vec<Attempt>,
    /// Why the first refused piece could not be spoken.
    pub refused: Option<SpeakError>,
    /// Time of the first audio.
    pub first_audio: Option<Instant>,
}

impl Speaker for ModelSpeaker<'_> {
    type Error = SpeakError;

    fn rate(&self) -> u32 {
        self.synthesizer.quality().rate()
    }

    fn speak(
        &mut self,
        text: &str,
        seed: u64,
        out: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Spoken, SpeakError> {
        let sampling = SamplingOptions { seed, ..self.options.sampling.clone() };
        let options = SpeakOptions { sampling, ..self.options.clone() };
        let (language, voice) = (self.language.as_str(), &self.voice);
        let first_audio = &mut self.totals.first_audio;
        let mut sink = |samples: &[f32]| {
            first_audio.get_or_insert_with(Instant::now);
            out(samples)
        };
        let spoken = if self.is_streamed {
            self.synthesizer.speak_streamed(text, language, voice, &options, &mut sink)
        } else {
            let spoken = self.synthesizer.speak_with(text, language, voice, &options);
            spoken.inspect(|spoken| {
                sink(&spoken.samples);
            })
        };
        Ok(self.totals.add(spoken)?.1)
    }

    fn batch_size(&self) -> usize {
        match (self.is_streamed, self.synthesizer.slots()) {
            (true, _) | (_, 1) => 1,
            // Enough that a slot which is free has a next piece.
            (false, slots) => GROUP * slots,
        }
    }

    fn speak_many(&mut self, texts: &[(&str, u64)]) -> Result<Vec<(Vec<f32>, Spoken)>, SpeakError> {
        let spoken = self.synthesizer.speak_many(texts, &self.language, &self.voice, &self.options)?;
        self.totals.first_audio.get_or_insert_with(Instant::now);
        spoken.into_iter().map(|spoken| self.totals.add(spoken)).collect()
    }
}

impl Totals {
    /// Adds the result of a piece, and returns its audio.
    fn add(&mut self, spoken: Result<Waveform, SpeakError>) -> Result<(Vec<f32>, Spoken), SpeakError> {
        let spoken = match spoken {
            Err(error @ (SpeakError::NothingToSay { .. } | SpeakError::UnknownLetters { .. })) => {
                let reason = error.to_string();
                self.refused.get_or_insert(error);
                return Ok((Vec::new(), Spoken::Nothing(reason)));
            }
            spoken => spoken?,
        };
        if !self.cleaned.is_empty() {
            self.cleaned.push(' ');
        }
        self.cleaned += &spoken.cleaned;
        self.tokens += spoken.tokens;
        self.codes += spoken.codes;
        self.unknown.extend(spoken.unknown);
        if matches!(self.ended, None | Some(StopReason::Stop)) {
            self.ended = Some(spoken.ended);
        }
        self.attempts.extend(spoken.attempts);
        self.flaw = self.flaw.or(spoken.flaw);
        Ok((spoken.samples, Spoken::Said(spoken.flaw.map(|flaw| flaw.to_string()))))
    }
}
