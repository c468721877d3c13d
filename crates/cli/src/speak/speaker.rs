//! The opened model as the one who says the pieces of a text, and what is known of all it said.

use std::collections::BTreeSet;
use std::time::Instant;

use myxtts_model::{Ended, SamplingOptions};
use myxtts_speak::narration::{Speaker, Spoken};
use myxtts_speak::{Attempt, Flaw, SpeakError, SpeakOptions, Synthesizer, Voice, Waveform};

/// Pieces for each that is spoken at a time.
const GROUP: usize = 2;

/// Says pieces, and adds up what came of them.
pub struct ModelSpeaker<'m> {
    pub synthesizer: &'m mut Synthesizer,
    pub voice: Voice,
    pub language: String,
    pub options: SpeakOptions,
    /// Sound is wanted while codes still come.
    pub is_streamed: bool,
    pub totals: Totals,
}

/// What all pieces came to.
#[derive(Default)]
pub struct Totals {
    /// The text as it was read.
    pub cleaned: String,
    pub tokens: usize,
    pub codes: usize,
    pub unknown: BTreeSet<char>,
    /// The first end that was not the model's own, or how the last piece ended.
    pub ended: Option<Ended>,
    /// The first thing that is wrong still.
    pub flaw: Option<Flaw>,
    /// All tries in their order.
    pub attempts: Vec<Attempt>,
    /// Why a piece could not be said.
    pub refused: Option<SpeakError>,
    /// When the first sound was there.
    pub first_sound: Option<Instant>,
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
        let first_sound = &mut self.totals.first_sound;
        let mut sink = |samples: &[f32]| {
            first_sound.get_or_insert_with(Instant::now);
            out(samples)
        };
        let said = if self.is_streamed {
            self.synthesizer.speak_streamed(text, language, voice, &options, &mut sink)
        } else {
            let said = self.synthesizer.speak_with(text, language, voice, &options);
            said.inspect(|said| {
                sink(&said.samples);
            })
        };
        let (_, spoken) = self.totals.add(said)?;
        Ok(spoken)
    }

    fn at_once(&self) -> usize {
        match (self.is_streamed, self.synthesizer.at_once()) {
            (true, _) | (_, 1) => 1,
            // So many that a slot which is done has something to go on with.
            (false, slots) => GROUP * slots,
        }
    }

    fn speak_many(&mut self, texts: &[(&str, u64)]) -> Result<Vec<(Vec<f32>, Spoken)>, SpeakError> {
        let said = self.synthesizer.speak_many(texts, &self.language, &self.voice, &self.options)?;
        self.totals.first_sound.get_or_insert_with(Instant::now);
        said.into_iter().map(|said| self.totals.add(said)).collect()
    }
}

impl Totals {
    /// Adds what came of a piece; gives its sound.
    fn add(&mut self, said: Result<Waveform, SpeakError>) -> Result<(Vec<f32>, Spoken), SpeakError> {
        let said = match said {
            Err(error @ (SpeakError::NothingToSay { .. } | SpeakError::UnknownLetters { .. })) => {
                let reason = error.to_string();
                self.refused.get_or_insert(error);
                return Ok((Vec::new(), Spoken::Nothing(reason)));
            }
            said => said?,
        };
        if !self.cleaned.is_empty() {
            self.cleaned.push(' ');
        }
        self.cleaned += &said.cleaned;
        self.tokens += said.tokens;
        self.codes += said.codes;
        self.unknown.extend(said.unknown);
        if matches!(self.ended, None | Some(Ended::Stop)) {
            self.ended = Some(said.ended);
        }
        self.attempts.extend(said.attempts);
        self.flaw = self.flaw.or(said.flaw);
        Ok((said.samples, Spoken::Said(said.flaw.map(|flaw| flaw.to_string()))))
    }
}
