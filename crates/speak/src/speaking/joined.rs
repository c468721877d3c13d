//! Texts that come and go while others are said: joined when there is room, advanced together, each with sound of its own, left at
//! any moment. What a text sounds like does not depend on the others: it is what [`Synthesizer::speak_streamed`] gives.
//!
//! | call | who waits | what it does |
//! |---|---|---|
//! | [`Synthesizer::join`] | the caller, for the prompt | takes a slot |
//! | [`Synthesizer::advance`] | nobody on a GPU | queues so many codes of all texts |
//! | [`Synthesizer::sound`] | the caller, for the decoder | samples of the codes that were collected before |
//! | [`Synthesizer::collect`] | the caller, for what was queued | codes of one text |
//!
//! In this order the decoder works on what was said before while the next codes are drawn.

use super::{CODES_PER_SECOND, SpeakOptions};
use crate::error::SpeakError;
use crate::guard::{Attempt, Expected, Flaw, Silences, is_better};
use crate::stream::{LeadingSilence, Streamer};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use myxtts_data::tokenizer::Encoded;
use myxtts_model::generate::{Guided, SlotId};
use myxtts_model::{Ended, GenerateError, SamplingOptions, Spoken};
use std::sync::Arc;

/// A text that is being said in a slot. To be given back with [`Synthesizer::leave`].
pub struct Speech {
    encoded: Encoded,
    textless: Vec<i32>,
    expected: Expected,
    /// The most codes that such a text can have.
    most: usize,
    voice: Arc<Voice>,
    options: SpeakOptions,
    /// None once it needs none.
    slot: Option<SlotId>,
    tried: Try,
    attempts: Vec<Attempt>,
    /// The best of earlier tries, of which nothing was given out.
    best: Option<(Option<Flaw>, Vec<f32>, usize)>,
    is_done: bool,
}

/// One try at it.
struct Try {
    seed: u64,
    /// None where a model without a decoder speaks.
    streamer: Option<Streamer>,
    start: Option<LeadingSilence>,
    silences: Silences,
    codes: Vec<i32>,
    /// States that wait to become sound, `[rows, width]`.
    latents: Vec<f32>,
    /// States that the decoder was given.
    states: usize,
    /// Whether anything was given out: there is no other try then.
    given: bool,
    /// Why no more codes come, and how many states are said.
    ended: Option<(Ended, usize)>,
}

impl Speech {
    /// Whether all of its sound was given out.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether some of its sound was given out.
    pub fn has_begun(&self) -> bool {
        self.tried.given
    }

    /// Tokens of its text.
    pub fn tokens(&self) -> usize {
        self.encoded.ids.len()
    }

    /// Codes of the try that is heard, so far.
    pub fn codes(&self) -> usize {
        self.tried.codes.len()
    }

    /// The tries that have ended.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}

impl Synthesizer {
    /// Texts that can be joined now; none where the model was not opened with
    /// [`Decoding::Joined`](crate::Decoding::Joined).
    pub fn free_slots(&mut self) -> usize {
        self.generator.slots().map_or(0, |slots| slots.free())
    }

    /// Begins to say a text.
    pub fn join(
        &mut self,
        text: &str,
        language: &str,
        voice: &Arc<Voice>,
        options: &SpeakOptions,
    ) -> Result<Speech, SpeakError> {
        let encoded = self.encode(text, language)?;
        let expected = Expected::of(&encoded.cleaned);
        self.sound.reserve_windows()?;
        let mut speech = Speech {
            textless: self.textless(&encoded),
            most: (expected.most * CODES_PER_SECOND) as usize,
            tried: self.fresh_try(voice, options, options.sampling.seed)?,
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

    fn fresh_try(&self, voice: &Voice, options: &SpeakOptions, seed: u64) -> Result<Try, SpeakError> {
        let rate = self.quality().rate();
        let streamer = match self.sound.decoder_sizes() {
            Some(sizes) => Some(Streamer::new(sizes, self.sound.fitting(voice.speaker.as_deref())?)),
            None => None,
        };
        Ok(Try {
            seed,
            streamer,
            start: options.audible_start.map(|options| LeadingSilence::new(options, rate)),
            silences: Silences::new(rate),
            codes: Vec::new(),
            latents: Vec::new(),
            states: 0,
            given: false,
            ended: None,
        })
    }

    /// Takes a slot for the try that begins.
    fn enter(&mut self, speech: &mut Speech) -> Result<(), SpeakError> {
        let is_guided = self.generator.is_guided();
        let slots = self.generator.slots().ok_or(GenerateError::NoFreeSlot { slots: 0 })?;
        let usual = &speech.options.sampling;
        let max_codes = usual.max_codes.min(speech.most);
        let sampling = SamplingOptions { seed: speech.tried.seed, max_codes, ..usual.clone() };
        let textless = is_guided.then_some(&speech.textless[..]);
        let guided = Guided { text: &speech.encoded.ids, textless };
        speech.slot = Some(slots.join(&speech.voice.conditioning, guided, &sampling)?);
        Ok(())
    }

    /// Has so many codes of every text drawn.
    pub fn advance(&mut self, steps: usize) -> Result<(), SpeakError> {
        match self.generator.slots() {
            Some(slots) => Ok(slots.advance(steps)?),
            None => Ok(()),
        }
    }

    /// Takes the codes of a text that were drawn.
    pub fn collect(&mut self, speech: &mut Speech) -> Result<(), SpeakError> {
        let (Some(slot), Some(slots)) = (speech.slot, self.generator.slots()) else { return Ok(()) };
        if speech.tried.ended.is_some() {
            return Ok(());
        }
        let taken = slots.take(slot)?;
        let Try { codes, latents, ended, streamer, given, .. } = &mut speech.tried;
        codes.extend(taken.codes);
        if streamer.is_some() {
            latents.extend(taken.latents);
        }
        if let Some(mut end) = taken.ended {
            // Where it may have to be said again, its place is kept until that is known.
            if *given {
                slots.leave(slot)?;
                speech.slot = None;
            }
            codes.truncate(taken.total);
            if end == Ended::Limit && taken.total == speech.most {
                end = Ended::TooManyForText;
            }
            *ended = Some((end, taken.total + usize::from(end == Ended::Stop)));
        }
        Ok(())
    }

    /// Makes sound of the codes that were collected; empty while there are too few. Where a text went wrong before anything of it
    /// was heard, it begins again with the next seed.
    pub fn sound(&mut self, speech: &mut Speech) -> Result<Vec<f32>, SpeakError> {
        if speech.is_done {
            return Ok(Vec::new());
        }
        let tried = &mut speech.tried;
        let mut out = Vec::new();
        if let Some(streamer) = &mut tried.streamer {
            let width = self.generator.sizes().width;
            let latents = std::mem::take(&mut tried.latents);
            for latent in latents.chunks_exact(width) {
                let piece = streamer.push(&mut self.sound, latent)?;
                tried.silences.push(&piece);
                out.extend(audible(&mut tried.start, piece));
                tried.states += 1;
                if tried.silences.is_stuck() {
                    tried.codes.truncate(tried.states);
                    tried.ended = Some((Ended::Watcher, tried.states));
                    break;
                }
            }
            tried.given |= !out.is_empty();
        }
        if let Some((ended, states)) = speech.tried.ended {
            out.extend(self.end(speech, ended, states)?);
        }
        Ok(out)
    }

    /// The rest of a try that has ended, where it is heard; or the next try begins.
    fn end(&mut self, speech: &mut Speech, ended: Ended, states: usize) -> Result<Vec<f32>, SpeakError> {
        self.exit(speech)?;
        let Speech { tried, voice, expected, .. } = speech;
        let codes = tried.codes.len();
        let of_codes = expected.judge(ended, codes, CODES_PER_SECOND);
        let spoken = Spoken { codes: tried.codes.clone(), latents: Vec::new(), ended };
        let rest = match &mut tried.streamer {
            Some(streamer) => streamer.finish(&mut self.sound, states)?,
            None => self.sound.sound(&spoken, voice.speaker.as_deref(), &self.mel_stats)?,
        };
        tried.silences.push(&rest);
        let flaw = of_codes.or_else(|| tried.silences.judge());
        let rest = audible(&mut tried.start, rest);
        let mismatch = self.mismatch(&speech.encoded, &spoken);
        speech.attempts.push(Attempt { seed: tried.seed, ended, codes, flaw, mismatch });
        if tried.given || flaw.is_none() {
            speech.is_done = true;
            return Ok(rest);
        }
        let is_best = speech.best.as_ref().is_none_or(|(best, ..)| is_better(flaw, *best));
        if is_best {
            speech.best = Some((flaw, rest, codes));
        }
        let options = &speech.options;
        let tries = if options.sampling.greedy { 1 } else { 1 + options.further_tries };
        if speech.attempts.len() < tries {
            let seed = options.sampling.seed.wrapping_add(speech.attempts.len() as u64);
            speech.tried = self.fresh_try(&speech.voice, &speech.options, seed)?;
            self.enter(speech)?;
            return Ok(Vec::new());
        }
        speech.is_done = true;
        let Some((_, samples, codes)) = speech.best.take() else { return Ok(Vec::new()) };
        speech.tried.codes.truncate(codes);
        Ok(samples)
    }

    /// Frees the slot of a text, whether it has ended or not.
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

/// Samples without the silence before the first sound, where that is asked for.
fn audible(start: &mut Option<LeadingSilence>, samples: Vec<f32>) -> Vec<f32> {
    match start {
        Some(start) => start.push(&samples),
        None => samples,
    }
}
