//! Continuous batching: texts join when a slot is free, advance together and leave at any moment. The audio of a text does not
//! depend on the others: it is what [`Synthesizer::speak_streamed`] returns.
//!
//! | call | blocks until | effect |
//! |---|---|---|
//! | [`Synthesizer::join`] | the prompt is computed | takes a slot |
//! | [`Synthesizer::advance`] | does not block on a GPU | queues the given number of steps for all texts |
//! | [`Synthesizer::take_audio`] | the decoder is done | returns samples of the codes collected before |
//! | [`Synthesizer::collect`] | the queued steps are done | collects the codes of one text |
//!
//! In this order the decoder works on earlier codes while the next ones are sampled.

use super::{CODES_PER_SECOND, SpeakOptions};
use crate::error::SpeakError;
use crate::guard::{Attempt, ExpectedLength, Flaw, SilenceDetector, is_better};
use crate::stream::{LeadingSilence, Streamer};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use myxtts_data::tokenizer::Encoded;
use myxtts_model::generate::{Guided, SlotId};
use myxtts_model::{GenerateError, SamplingOptions, Spoken, StopReason};
use std::sync::Arc;

/// A text that is spoken in a slot. Return it with [`Synthesizer::leave`].
pub struct Speech {
    encoded: Encoded,
    textless: Vec<i32>,
    expected: ExpectedLength,
    /// Upper limit of its codes.
    max_codes: usize,
    voice: Arc<Voice>,
    options: SpeakOptions,
    /// `None` once it needs no slot.
    slot: Option<SlotId>,
    current: CurrentAttempt,
    attempts: Vec<Attempt>,
    /// Flaw, samples and number of codes of the best earlier attempt; none of its samples were delivered.
    best: Option<(Option<Flaw>, Vec<f32>, usize)>,
    is_done: bool,
}

/// The attempt in progress.
struct CurrentAttempt {
    seed: u64,
    /// `None` for a model without a decoder.
    streamer: Option<Streamer>,
    start: Option<LeadingSilence>,
    silences: SilenceDetector,
    codes: Vec<i32>,
    /// Latents that are not decoded yet, `[rows, width]`.
    latents: Vec<f32>,
    /// Number of latents passed to the decoder.
    decoded: usize,
    /// Whether samples were delivered: there is no further attempt then.
    delivered: bool,
    /// Why generation ended, and the number of latents to decode.
    ended: Option<(StopReason, usize)>,
}

impl Speech {
    /// Whether all samples were delivered.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Number of tokens of the text.
    pub fn tokens(&self) -> usize {
        self.encoded.ids.len()
    }

    /// Number of codes of the current attempt so far.
    pub fn codes(&self) -> usize {
        self.current.codes.len()
    }
}

impl Synthesizer {
    /// Number of texts that can join now; 0 if the model was not opened with
    /// [`Decoding::Continuous`](crate::Decoding::Continuous).
    pub fn free_slots(&mut self) -> usize {
        self.generator.slots().map_or(0, |slots| slots.free())
    }

    /// Starts to speak a text.
    pub fn join(
        &mut self,
        text: &str,
        language: &str,
        voice: &Arc<Voice>,
        options: &SpeakOptions,
    ) -> Result<Speech, SpeakError> {
        let encoded = self.encode(text, language)?;
        let expected = ExpectedLength::from_text(&encoded.cleaned);
        self.vocoder.reserve_windows()?;
        let mut speech = Speech {
            textless: self.textless(&encoded),
            max_codes: (expected.most * CODES_PER_SECOND) as usize,
            current: self.new_attempt(voice, options, options.sampling.seed)?,
            expected,
            encoded,
            voice: Arc::clone(voice),
            options: options.clone(),
            slot: None,
            attempts: Vec::new(),
            best: None,
            is_done: false,
        };
        self.enter(&mut speech)?;
        Ok(speech)
    }

    fn new_attempt(
        &self,
        voice: &Voice,
        options: &SpeakOptions,
        seed: u64,
    ) -> Result<CurrentAttempt, SpeakError> {
        let rate = self.quality().rate();
        let streamer = match self.vocoder.decoder_sizes() {
            Some(sizes) => Some(Streamer::new(sizes, self.vocoder.check_speaker(voice.speaker.as_deref())?)),
            None => None,
        };
        Ok(CurrentAttempt {
            seed,
            streamer,
            start: options.audible_start.map(|options| LeadingSilence::new(options, rate)),
            silences: SilenceDetector::new(rate),
            codes: Vec::new(),
            latents: Vec::new(),
            decoded: 0,
            delivered: false,
            ended: None,
        })
    }

    /// Takes a slot for the current attempt.
    fn enter(&mut self, speech: &mut Speech) -> Result<(), SpeakError> {
        let is_guided = self.generator.is_guided();
        let slots = self.generator.slots().ok_or(GenerateError::NoFreeSlot { slots: 0 })?;
        let sampling = &speech.options.sampling;
        let max_codes = sampling.max_codes.min(speech.max_codes);
        let sampling = SamplingOptions { seed: speech.current.seed, max_codes, ..sampling.clone() };
        let textless = is_guided.then_some(&speech.textless[..]);
        let guided = Guided { text: &speech.encoded.ids, textless };
        speech.slot = Some(slots.join(&speech.voice.conditioning, guided, &sampling)?);
        Ok(())
    }

    /// Samples `steps` codes of every text.
    pub fn advance(&mut self, steps: usize) -> Result<(), SpeakError> {
        match self.generator.slots() {
            Some(slots) => Ok(slots.advance(steps)?),
            None => Ok(()),
        }
    }

    /// Collects the sampled codes of a text.
    pub fn collect(&mut self, speech: &mut Speech) -> Result<(), SpeakError> {
        let (Some(slot), Some(slots)) = (speech.slot, self.generator.slots()) else { return Ok(()) };
        if speech.current.ended.is_some() {
            return Ok(());
        }
        let taken = slots.take(slot)?;
        let CurrentAttempt { codes, latents, ended, streamer, delivered, .. } = &mut speech.current;
        codes.extend(taken.codes);
        if streamer.is_some() {
            latents.extend(taken.latents);
        }
        if let Some(mut end) = taken.ended {
            // If a retry is still possible, the slot is kept until that is known.
            if *delivered {
                slots.leave(slot)?;
                speech.slot = None;
            }
            codes.truncate(taken.total);
            if end == StopReason::Limit && taken.total == speech.max_codes {
                end = StopReason::TooManyForText;
            }
            *ended = Some((end, taken.total + usize::from(end == StopReason::Stop)));
        }
        Ok(())
    }

    /// Decodes the collected codes and returns their samples, none while there are too few. If a text is flawed and nothing of it
    /// was delivered, it starts again with the next seed.
    pub fn take_audio(&mut self, speech: &mut Speech) -> Result<Vec<f32>, SpeakError> {
        if speech.is_done {
            return Ok(Vec::new());
        }
        let current = &mut speech.current;
        let mut out = Vec::new();
        if let Some(streamer) = &mut current.streamer {
            let width = self.generator.sizes().width;
            let latents = std::mem::take(&mut current.latents);
            for latent in latents.chunks_exact(width) {
                let piece = streamer.push(&mut self.vocoder, latent)?;
                current.silences.push(&piece);
                out.extend(trim_start(&mut current.start, piece));
                current.decoded += 1;
                if current.silences.is_stuck() {
                    current.codes.truncate(current.decoded);
                    current.ended = Some((StopReason::Observer, current.decoded));
                    break;
                }
            }
            current.delivered |= !out.is_empty();
        }
        if let Some((ended, latents)) = speech.current.ended {
            out.extend(self.end(speech, ended, latents)?);
        }
        Ok(out)
    }

    /// Ends an attempt: returns the rest of its samples, or starts the next attempt.
    fn end(
        &mut self,
        speech: &mut Speech,
        ended: StopReason,
        latents: usize,
    ) -> Result<Vec<f32>, SpeakError> {
        self.exit(speech)?;
        let Speech { current, voice, expected, .. } = speech;
        let codes = current.codes.len();
        let code_flaw = expected.find_flaw(ended, codes, CODES_PER_SECOND);
        let spoken = Spoken { codes: current.codes.clone(), latents: Vec::new(), ended };
        let rest = match &mut current.streamer {
            Some(streamer) => streamer.finish(&mut self.vocoder, latents)?,
            None => self.vocoder.waveform(&spoken, voice.speaker.as_deref(), &self.mel_stats)?,
        };
        current.silences.push(&rest);
        let flaw = code_flaw.or_else(|| current.silences.find_flaw());
        let rest = trim_start(&mut current.start, rest);
        let mismatch = self.mismatch(&speech.encoded, &spoken);
        speech.attempts.push(Attempt { seed: current.seed, ended, codes, flaw, mismatch });
        if current.delivered || flaw.is_none() {
            speech.is_done = true;
            return Ok(rest);
        }
        let is_best = speech.best.as_ref().is_none_or(|(best, ..)| is_better(flaw, *best));
        if is_best {
            speech.best = Some((flaw, rest, codes));
        }
        let options = &speech.options;
        let max_attempts = if options.sampling.greedy { 1 } else { 1 + options.retries };
        if speech.attempts.len() < max_attempts {
            let seed = options.sampling.seed.wrapping_add(speech.attempts.len() as u64);
            speech.current = self.new_attempt(&speech.voice, &speech.options, seed)?;
            self.enter(speech)?;
            return Ok(Vec::new());
        }
        speech.is_done = true;
        let Some((_, samples, codes)) = speech.best.take() else { return Ok(Vec::new()) };
        speech.current.codes.truncate(codes);
        Ok(samples)
    }

    /// Frees the slot of a text, whether or not it has ended.
    pub fn leave(&mut self, mut speech: Speech) -> Result<(), SpeakError> {
        self.exit(&mut speech)
    }

    fn exit(&mut self, speech: &mut Speech) -> Result<(), SpeakError> {
        match (speech.slot.take(), self.generator.slots()) {
            (Some(slot), Some(slots)) => Ok(slots.leave(slot)?),
            _ => Ok(()),
        }
    }
}

/// Removes leading silence, if requested.
fn trim_start(start: &mut Option<LeadingSilence>, samples: Vec<f32>) -> Vec<f32> {
    match start {
        Some(start) => start.push(&samples),
        None => samples,
    }
}
