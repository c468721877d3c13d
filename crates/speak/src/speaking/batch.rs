//! Speaking several texts in one batch. The audio of a text does not depend on the batch.

use super::{AttemptOutput, CODES_PER_SECOND, SpeakOptions, undecoded};
use crate::error::SpeakError;
use crate::guard::{Attempt, ExpectedLength, is_better};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use crate::waveform::Waveform;
use myxtts_data::tokenizer::Encoded;
use myxtts_model::generate::{Guided, SpeechRequest};
use myxtts_model::{SamplingOptions, Spoken, StopReason};

/// A text of the batch.
struct BatchText {
    encoded: Encoded,
    textless: Vec<i32>,
    expected: ExpectedLength,
    /// Upper limit of its codes.
    max_codes: usize,
    seed: u64,
    attempts: Vec<Attempt>,
    best: Option<AttemptOutput>,
    is_done: bool,
}

impl Synthesizer {
    /// Number of texts decoded at the same time.
    pub fn slots(&self) -> usize {
        self.generator.at_once()
    }

    /// Speaks texts, each with its own seed and as [`Synthesizer::speak_with`] speaks it. Flawed ones are retried together. A
    /// text that cannot be spoken is an inner error; an error that stops the batch is the outer one.
    pub fn speak_many(
        &mut self,
        texts: &[(&str, u64)],
        language: &str,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<Vec<Result<Waveform, SpeakError>>, SpeakError> {
        let mut all: Vec<Result<BatchText, SpeakError>> =
            texts.iter().map(|&(text, seed)| self.text(text, seed, language)).collect();
        // Greedy decoding gives the same codes every time.
        let retries = if options.sampling.greedy { 0 } else { options.retries };
        let candidates = self.candidates(options) as u64;
        for number in 0..=retries as u64 {
            let mut open: Vec<&mut BatchText> =
                all.iter_mut().flatten().filter(|text| !text.is_done).collect();
            if open.is_empty() {
                break;
            }
            // The candidates of a text follow each other, each with its own seed.
            let request = |text: &&mut BatchText, candidate: u64| {
                let seed = text.seed.wrapping_add(number * candidates + candidate);
                let max_codes = options.sampling.max_codes.min(text.max_codes);
                SamplingOptions { seed, max_codes, ..options.sampling.clone() }
            };
            let requests: Vec<SpeechRequest<'_>> = open
                .iter()
                .flat_map(|text| (0..candidates).map(move |candidate| (text, candidate)))
                .map(|(text, candidate)| SpeechRequest {
                    voice: &voice.conditioning,
                    text: Guided { text: &text.encoded.ids, textless: Some(&text.textless) },
                    options: request(text, candidate),
                })
                .collect();
            let seeds: Vec<u64> = requests.iter().map(|request| request.options.seed).collect();
            let mut spoken = self.generator.speak_many(&requests)?.into_iter().zip(seeds);
            let mut outputs = Vec::with_capacity(open.len());
            for text in &mut open {
                let of_text = spoken.by_ref().take(candidates as usize).collect();
                outputs.push(self.best_candidate(text, of_text, options.length_penalty)?);
            }
            // Only codes without a flaw are decoded, all together.
            let flawless =
                outputs.iter_mut().map(|(_, output)| output).filter(|output| output.flaw.is_none());
            self.decode_outputs(flawless.collect(), voice, options)?;
            for (text, (attempt, output)) in open.iter_mut().zip(outputs) {
                text.attempts[attempt].flaw = output.flaw;
                text.is_done = output.flaw.is_none();
                if text.best.as_ref().is_none_or(|best| is_better(output.flaw, best.flaw)) {
                    text.best = Some(output);
                }
            }
        }
        let best = all.iter_mut().flatten().filter_map(|text| text.best.as_mut());
        self.decode_outputs(best.collect(), voice, options)?;
        let finished = |text: BatchText| match text.best {
            Some(best) => Ok(self.build_waveform(text.encoded, best, text.attempts)),
            // There is at least one attempt.
            None => Err(SpeakError::NothingToSay { text: text.encoded.cleaned }),
        };
        Ok(all.into_iter().map(|text| text.and_then(finished)).collect())
    }

    /// Number of candidates that [`Synthesizer::speak_many`] generates for each text. One where they cannot be ranked, and
    /// for greedy decoding, which gives the same codes every time.
    pub fn candidates(&self, options: &SpeakOptions) -> usize {
        let can_choose = self.can_proofread() && !options.sampling.greedy;
        if can_choose { options.candidates.max(1) } else { 1 }
    }

    /// Returns the best-ranked candidate of a text, without its audio, and the index of its attempt.
    fn best_candidate(
        &self,
        text: &mut BatchText,
        candidates: Vec<(Spoken, u64)>,
        length_penalty: f64,
    ) -> Result<(usize, AttemptOutput), SpeakError> {
        let mut best: Option<(usize, Spoken)> = None;
        for (mut spoken, seed) in candidates {
            if spoken.ended == StopReason::Limit && spoken.codes.len() == text.max_codes {
                spoken.ended = StopReason::TooManyForText;
            }
            let (ended, codes) = (spoken.ended, spoken.codes.len());
            let flaw = text.expected.find_flaw(ended, codes, CODES_PER_SECOND);
            let mismatch = self.mismatch(&text.encoded, &spoken);
            text.attempts.push(Attempt { seed, ended, codes, flaw, mismatch });
            let this = text.attempts.len() - 1;
            let attempts = &text.attempts;
            let is_best = |best: usize| attempts[this].ranks_before(&attempts[best], length_penalty);
            if best.as_ref().is_none_or(|&(best, _)| is_best(best)) {
                best = Some((this, spoken));
            }
        }
        let Some((chosen, spoken)) = best else {
            return Err(SpeakError::NothingToSay { text: text.encoded.cleaned.clone() });
        };
        Ok((chosen, undecoded(&text.expected, spoken)))
    }

    fn text(&self, text: &str, seed: u64, language: &str) -> Result<BatchText, SpeakError> {
        let encoded = self.encode(text, language)?;
        let expected = ExpectedLength::from_text(&encoded.cleaned);
        Ok(BatchText {
            textless: self.textless(&encoded),
            max_codes: (expected.most * CODES_PER_SECOND) as usize,
            expected,
            encoded,
            seed,
            attempts: Vec::new(),
            best: None,
            is_done: false,
        })
    }
}
