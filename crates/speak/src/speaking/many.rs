//! Several texts at once: each as it is said alone, so that how many there are changes nothing but the time.

use super::{CODES_PER_SECOND, SpeakOptions, Tried};
use crate::error::SpeakError;
use crate::guard::{Attempt, Expected, is_better};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use crate::waveform::Waveform;
use myxtts_data::tokenizer::Encoded;
use myxtts_model::generate::{Guided, SpeechRequest};
use myxtts_model::{Ended, SamplingOptions};

/// A text that is being said.
struct Text {
    encoded: Encoded,
    textless: Vec<i32>,
    expected: Expected,
    /// The most codes that it can have.
    most: usize,
    seed: u64,
    attempts: Vec<Attempt>,
    best: Option<Tried>,
    is_done: bool,
}

impl Synthesizer {
    /// Texts that are said at the same time.
    pub fn at_once(&self) -> usize {
        self.generator.at_once()
    }

    /// Says texts, each with its own seed, as [`Synthesizer::speak_with`] says it. Those that went wrong are said again
    /// together. A text that cannot be said is an error of its own; what stops all of them is the outer one.
    pub fn speak_many(
        &mut self,
        texts: &[(&str, u64)],
        language: &str,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<Vec<Result<Waveform, SpeakError>>, SpeakError> {
        let mut all: Vec<Result<Text, SpeakError>> =
            texts.iter().map(|&(text, seed)| self.text(text, seed, language)).collect();
        let tries = if options.sampling.greedy { 0 } else { options.further_tries };
        for number in 0..=tries as u64 {
            let mut open: Vec<&mut Text> = all.iter_mut().flatten().filter(|text| !text.is_done).collect();
            if open.is_empty() {
                break;
            }
            let request = |text: &&mut Text| {
                let seed = text.seed.wrapping_add(number);
                let max_codes = options.sampling.max_codes.min(text.most);
                SamplingOptions { seed, max_codes, ..options.sampling.clone() }
            };
            let sampling: Vec<SamplingOptions> = open.iter().map(request).collect();
            let requests: Vec<SpeechRequest<'_>> = open
                .iter()
                .zip(&sampling)
                .map(|(text, sampling)| SpeechRequest {
                    voice: &voice.conditioning,
                    text: Guided { text: &text.encoded.ids, textless: Some(&text.textless) },
                    options: sampling.clone(),
                })
                .collect();
            let said = self.generator.speak_many(&requests)?;
            for ((text, sampling), mut spoken) in open.iter_mut().zip(sampling).zip(said) {
                if spoken.ended == Ended::Limit && spoken.codes.len() == text.most {
                    spoken.ended = Ended::TooManyForText;
                }
                let tried = self.judged(&text.expected, spoken, voice, options.audible_start)?;
                let (ended, codes, flaw) = (tried.spoken.ended, tried.spoken.codes.len(), tried.flaw);
                text.attempts.push(Attempt { seed: sampling.seed, ended, codes, flaw });
                text.is_done = flaw.is_none();
                if text.best.as_ref().is_none_or(|best| is_better(flaw, best.flaw)) {
                    text.best = Some(tried);
                }
            }
        }
        let mut said = Vec::with_capacity(all.len());
        for text in all {
            said.push(match text {
                Err(error) => Err(error),
                Ok(Text { encoded, best, attempts, .. }) => {
                    Ok(self.chosen(encoded, best, attempts, voice, options)?)
                }
            });
        }
        Ok(said)
    }

    fn text(&self, text: &str, seed: u64, language: &str) -> Result<Text, SpeakError> {
        let encoded = self.encode(text, language)?;
        let expected = Expected::of(&encoded.cleaned);
        Ok(Text {
            textless: self.textless(&encoded),
            most: (expected.most * CODES_PER_SECOND) as usize,
            expected,
            encoded,
            seed,
            attempts: Vec::new(),
            best: None,
            is_done: false,
        })
    }
}
