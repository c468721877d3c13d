//! Several texts at once: each as it is said alone, so that how many there are changes nothing but the time.

use super::{CODES_PER_SECOND, SpeakOptions, Tried, judged};
use crate::error::SpeakError;
use crate::guard::{Attempt, Expected, is_better};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use crate::waveform::Waveform;
use myxtts_data::tokenizer::Encoded;
use myxtts_model::generate::{Guided, SpeechRequest};
use myxtts_model::{Ended, SamplingOptions, Spoken};

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
        // The most likely is the same every time, and what cannot be told apart need not be said twice.
        let tries = if options.sampling.greedy { 0 } else { options.further_tries };
        let can_choose = self.can_proofread() && !options.sampling.greedy;
        let takes = if can_choose { options.takes.max(1) as u64 } else { 1 };
        for number in 0..=tries as u64 {
            let mut open: Vec<&mut Text> = all.iter_mut().flatten().filter(|text| !text.is_done).collect();
            if open.is_empty() {
                break;
            }
            // Each text `takes` times in a row, every time with a seed of its own.
            let request = |text: &&mut Text, take: u64| {
                let seed = text.seed.wrapping_add(number * takes + take);
                let max_codes = options.sampling.max_codes.min(text.most);
                SamplingOptions { seed, max_codes, ..options.sampling.clone() }
            };
            let requests: Vec<SpeechRequest<'_>> = open
                .iter()
                .flat_map(|text| (0..takes).map(move |take| (text, take)))
                .map(|(text, take)| SpeechRequest {
                    voice: &voice.conditioning,
                    text: Guided { text: &text.encoded.ids, textless: Some(&text.textless) },
                    options: request(text, take),
                })
                .collect();
            let seeds: Vec<u64> = requests.iter().map(|request| request.options.seed).collect();
            let mut said = self.generator.speak_many(&requests)?.into_iter().zip(seeds);
            let mut tries = Vec::with_capacity(open.len());
            for text in &mut open {
                let of_text = said.by_ref().take(takes as usize).collect();
                tries.push(self.best_take(text, of_text)?);
            }
            // Only codes that are right become sound, all of them at once.
            let right = tries.iter_mut().map(|(_, tried)| tried).filter(|tried| tried.flaw.is_none());
            self.sound_out(right.collect(), voice, options)?;
            for (text, (attempt, tried)) in open.iter_mut().zip(tries) {
                text.attempts[attempt].flaw = tried.flaw;
                text.is_done = tried.flaw.is_none();
                if text.best.as_ref().is_none_or(|best| is_better(tried.flaw, best.flaw)) {
                    text.best = Some(tried);
                }
            }
        }
        let best = all.iter_mut().flatten().filter_map(|text| text.best.as_mut());
        self.sound_out(best.collect(), voice, options)?;
        let finished = |text: Text| match text.best {
            Some(best) => Ok(self.spoken(text.encoded, best, text.attempts)),
            // There is one try at least.
            None => Err(SpeakError::NothingToSay { text: text.encoded.cleaned }),
        };
        Ok(all.into_iter().map(|text| text.and_then(finished)).collect())
    }

    /// The take that says the text best, without its sound, and which attempt it is.
    fn best_take(&self, text: &mut Text, takes: Vec<(Spoken, u64)>) -> Result<(usize, Tried), SpeakError> {
        let mut best: Option<(usize, Spoken)> = None;
        for (mut spoken, seed) in takes {
            if spoken.ended == Ended::Limit && spoken.codes.len() == text.most {
                spoken.ended = Ended::TooManyForText;
            }
            let (ended, codes) = (spoken.ended, spoken.codes.len());
            let flaw = text.expected.judge(ended, codes, CODES_PER_SECOND);
            let mismatch = self.mismatch(&text.encoded, &spoken);
            text.attempts.push(Attempt { seed, ended, codes, flaw, mismatch });
            let this = text.attempts.len() - 1;
            if best.as_ref().is_none_or(|&(best, _)| text.attempts[this].says_more(&text.attempts[best])) {
                best = Some((this, spoken));
            }
        }
        let Some((chosen, spoken)) = best else {
            return Err(SpeakError::NothingToSay { text: text.encoded.cleaned.clone() });
        };
        Ok((chosen, judged(&text.expected, spoken)))
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
