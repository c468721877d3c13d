//! How an opened model says a text: at once, or while its sound is made; again with another seed where it went wrong.

mod joined;
mod many;

pub use joined::Speech;

use crate::error::SpeakError;
use crate::guard::{Attempt, Expected, Flaw, Silences, is_better};
use crate::stream::{AudibleStart, FrameDecoder, LeadingSilence, Streamer, windows};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use crate::waveform::{Fit, Waveform};
use myxtts_data::tokenizer::Encoded;
use myxtts_model::generate::Guided;
use myxtts_model::{Ended, Forced, SamplingOptions, Spoken};

/// Codes of a second of speech: one for 1024 samples at 22,050 Hz.
const CODES_PER_SECOND: f64 = 22_050.0 / 1024.0;

/// Further tries where nobody says how many.
const FURTHER_TRIES: usize = 2;

/// How a text is said.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeakOptions {
    /// How codes are chosen.
    pub sampling: SamplingOptions,
    /// How often a text is said again, each time with the next seed, where it went wrong: it looped, did not end, stopped early
    /// or fell silent. Speech that is always the most likely is the same every time and not said again.
    pub further_tries: usize,
    /// Readings of a text, each with its own seed, of which the one is kept whose codes say the text best. More than one needs a
    /// model that can tell ([`Synthesizer::can_proofread`]); speech that is given out while it is made is one reading.
    pub takes: usize,
    /// Leave out the silence before the first sound; none for the whole waveform.
    pub audible_start: Option<AudibleStart>,
}

impl From<SamplingOptions> for SpeakOptions {
    fn from(sampling: SamplingOptions) -> SpeakOptions {
        SpeakOptions { sampling, further_tries: FURTHER_TRIES, takes: 1, audible_start: None }
    }
}

/// What came of one try.
struct Tried {
    spoken: Spoken,
    flaw: Option<Flaw>,
    /// None where its codes alone showed a flaw and no sound was made yet.
    samples: Option<Vec<f32>>,
    /// Some of it was given out, or whoever listens has heard enough: there is no other try.
    is_final: bool,
    cut: usize,
}

impl Synthesizer {
    /// Says a text, once.
    pub fn speak(
        &mut self,
        text: &str,
        language: &str,
        voice: &Voice,
        options: &SamplingOptions,
    ) -> Result<Waveform, SpeakError> {
        let encoded = self.encode(text, language)?;
        let textless = self.textless(&encoded);
        let guided = Guided { text: &encoded.ids, textless: Some(&textless) };
        let spoken = self.generator.speak(&voice.conditioning, guided, options)?;
        self.waveform(encoded, &spoken, voice, options.seed)
    }

    /// Says a text, and again with another seed where it went wrong; gives the best.
    pub fn speak_with(
        &mut self,
        text: &str,
        language: &str,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<Waveform, SpeakError> {
        let mut said = self.speak_many(&[(text, options.sampling.seed)], language, voice, options)?;
        said.pop().unwrap_or_else(|| Err(SpeakError::NothingToSay { text: text.to_owned() }))
    }

    /// As [`Synthesizer::speak_with`], and gives the samples to `sink` as they come. `sink` says whether to go on: where it does not,
    /// no further code is made. Once something was given out, nothing is said again. A model without a decoder gives all at
    /// its end.
    pub fn speak_streamed(
        &mut self,
        text: &str,
        language: &str,
        voice: &Voice,
        options: &SpeakOptions,
        sink: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Waveform, SpeakError> {
        if self.sound.decoder_sizes().is_none() {
            let said = self.speak_with(text, language, voice, options)?;
            sink(&said.samples);
            return Ok(said);
        }
        let encoded = self.encode(text, language)?;
        let mut given = false;
        let said = self.tries(encoded, voice, options, &mut |this, encoded, sampling| {
            let tried = this.try_streamed(encoded, voice, sampling, options, sink)?;
            given |= tried.is_final;
            Ok(tried)
        })?;
        if !given {
            sink(&said.samples);
        }
        Ok(said)
    }

    /// Makes everything ready that streaming needs, so that the first utterance is as fast as all others: on a GPU a program is
    /// recorded the second time it runs.
    pub fn prepare_streaming(&mut self) -> Result<(), SpeakError> {
        let Some(sizes) = self.sound.decoder_sizes().cloned() else { return Ok(()) };
        let all = windows(&sizes);
        self.sound.reserve_windows()?;
        let speaker = vec![0.0; sizes.speaker];
        for frames in all.into_iter().flat_map(|frames| [frames; 3]) {
            self.sound.windows((1, frames), &vec![0.0; frames * sizes.latent], &speaker, true)?;
        }
        Ok(())
    }

    /// Tries until one has no flaw, or there were enough.
    fn tries(
        &mut self,
        encoded: Encoded,
        voice: &Voice,
        options: &SpeakOptions,
        attempt: &mut dyn FnMut(&mut Synthesizer, &Encoded, &SamplingOptions) -> Result<Tried, SpeakError>,
    ) -> Result<Waveform, SpeakError> {
        let (mut attempts, mut best): (Vec<Attempt>, Option<Tried>) = (Vec::new(), None);
        let most = if options.sampling.greedy { 0 } else { options.further_tries };
        for number in 0..=most as u64 {
            let seed = options.sampling.seed.wrapping_add(number);
            let tried = attempt(self, &encoded, &SamplingOptions { seed, ..options.sampling.clone() })?;
            let Tried { spoken, flaw, is_final, .. } = &tried;
            let mismatch = self.mismatch(&encoded, spoken);
            let (ended, codes) = (spoken.ended, spoken.codes.len());
            attempts.push(Attempt { seed, ended, codes, flaw: *flaw, mismatch });
            let enough = flaw.is_none() || *is_final;
            if *is_final || best.as_ref().is_none_or(|best| is_better(*flaw, best.flaw)) {
                best = Some(tried);
            }
            if enough {
                break;
            }
        }
        self.chosen(encoded, best, attempts, voice, options)
    }

    /// The best try of a text as a waveform.
    fn chosen(
        &mut self,
        encoded: Encoded,
        best: Option<Tried>,
        attempts: Vec<Attempt>,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<Waveform, SpeakError> {
        // There is one try at least.
        let Some(mut tried) = best else {
            return Err(SpeakError::NothingToSay { text: encoded.cleaned });
        };
        self.sound_out(vec![&mut tried], voice, options)?;
        Ok(self.spoken(encoded, tried, attempts))
    }

    /// Makes the sound of tries that have none yet, all at once.
    fn sound_out(
        &mut self,
        mut tries: Vec<&mut Tried>,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<(), SpeakError> {
        tries.retain(|tried| tried.samples.is_none());
        let spoken: Vec<_> = tries.iter().map(|tried| (&tried.spoken, voice.speaker.as_deref())).collect();
        let sounds = self.sound.sounds(&spoken, &self.mel_stats)?;
        for (tried, samples) in tries.iter_mut().zip(sounds) {
            // Where its codes were right, the sound may not be.
            if tried.flaw.is_none() {
                let mut silences = Silences::new(self.quality().rate());
                silences.push(&samples);
                tried.flaw = silences.judge();
            }
            tried.samples = Some(self.started(samples, options.audible_start, &mut tried.cut));
        }
        Ok(())
    }

    fn spoken(&self, encoded: Encoded, tried: Tried, attempts: Vec<Attempt>) -> Waveform {
        let Tried { spoken, flaw, samples, cut, .. } = tried;
        Waveform {
            samples: samples.unwrap_or_default(),
            rate: self.quality().rate(),
            cleaned: encoded.cleaned,
            tokens: encoded.ids.len(),
            unknown: encoded.unknown,
            codes: spoken.codes.len(),
            ended: spoken.ended,
            flaw,
            attempts,
            cut,
        }
    }

    /// One try, its sound given out as it comes.
    fn try_streamed(
        &mut self,
        encoded: &Encoded,
        voice: &Voice,
        sampling: &SamplingOptions,
        options: &SpeakOptions,
        sink: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Tried, SpeakError> {
        let expected = Expected::of(&encoded.cleaned);
        let most = (expected.most * CODES_PER_SECOND) as usize;
        let textless = self.textless(encoded);
        let guided = Guided { text: &encoded.ids, textless: Some(&textless) };
        let rate = self.quality().rate();
        let Synthesizer { generator, sound, .. } = self;
        let Some(sizes) = sound.decoder_sizes().cloned() else {
            return Err(SpeakError::Speaker { wanted: 0 });
        };
        sound.reserve_windows()?;
        let mut streamer = Streamer::new(&sizes, sound.fitting(voice.speaker.as_deref())?);
        let mut outlet = Outlet::new(options.audible_start, rate, sink);
        let (mut steps, mut failed) = (0, None);
        let mut spoken = generator.speak_watched(&voice.conditioning, guided, sampling, &mut |step| {
            steps += 1;
            match streamer.push(sound, step.latent) {
                Ok(piece) => {
                    outlet.silences.push(&piece);
                    outlet.take(&piece, true);
                }
                Err(error) => failed = Some(error),
            }
            failed.is_none() && outlet.wanted && !outlet.silences.is_stuck() && steps < most
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if !outlet.wanted {
            let Outlet { samples, cut, .. } = outlet;
            return Ok(Tried { spoken, flaw: None, samples: Some(samples), is_final: true, cut });
        }
        if spoken.ended == Ended::Watcher && !outlet.silences.is_stuck() {
            spoken.ended = Ended::TooManyForText;
        }
        let rest = streamer.finish(sound, spoken.latents.len() / sizes.latent)?;
        let of_codes = expected.judge(spoken.ended, spoken.codes.len(), CODES_PER_SECOND);
        outlet.silences.push(&rest);
        let flaw = of_codes.or_else(|| outlet.silences.judge());
        // What was not begun yet is given out only where it is right; if not, the best of all tries is, at the end.
        let give = outlet.given || flaw.is_none();
        outlet.take(&rest, give);
        let Outlet { samples, given, cut, .. } = outlet;
        Ok(Tried { spoken, flaw, samples: Some(samples), is_final: given, cut })
    }

    /// Says what a recording says, in its own codes: the GPT reads them with the text instead of drawing others, and its
    /// states become sound. What then differs from the recording is the decoder's doing and the codes'.
    pub fn speak_codes(
        &mut self,
        text: &str,
        language: &str,
        voice: &Voice,
        codes: &[i32],
    ) -> Result<(Waveform, Fit), SpeakError> {
        let encoded = self.encode(text, language)?;
        let Forced { latents, loss, accuracy } =
            self.generator.forced(&voice.conditioning, &encoded.ids, codes)?;
        let spoken = Spoken { codes: codes.to_vec(), latents, ended: Ended::Stop };
        Ok((self.waveform(encoded, &spoken, voice, 0)?, Fit { loss, accuracy }))
    }

    /// Whether it can tell how well codes say a text: where its training learnt it (`training.code_token_weight`).
    pub fn can_proofread(&self) -> bool {
        self.proofreader.is_some()
    }

    /// How far codes are from saying a text, where that can be told.
    fn mismatch(&self, encoded: &Encoded, spoken: &Spoken) -> Option<f64> {
        let proofreader = self.proofreader.as_ref()?;
        Some(proofreader.mismatch(&self.tokenizer, &encoded.ids, &spoken.codes))
    }

    /// As rows whose text was left out in training.
    fn textless(&self, encoded: &Encoded) -> Vec<i32> {
        encoded.ids.iter().copied().take(1).chain([self.tokenizer.space_id()]).collect()
    }

    /// Samples without the silence before the first sound, where that is asked for.
    fn started(&self, samples: Vec<f32>, options: Option<AudibleStart>, cut: &mut usize) -> Vec<f32> {
        let Some(options) = options else { return samples };
        let mut start = LeadingSilence::new(options, self.quality().rate());
        let samples = start.push(&samples);
        *cut = start.cut();
        samples
    }

    fn waveform(
        &mut self,
        encoded: Encoded,
        spoken: &Spoken,
        voice: &Voice,
        seed: u64,
    ) -> Result<Waveform, SpeakError> {
        let samples = self.sound.sound(spoken, voice.speaker.as_deref(), &self.mel_stats)?;
        let (codes, mismatch) = (spoken.codes.len(), self.mismatch(&encoded, spoken));
        Ok(Waveform {
            samples,
            rate: self.quality().rate(),
            cleaned: encoded.cleaned,
            tokens: encoded.ids.len(),
            unknown: encoded.unknown,
            codes,
            ended: spoken.ended,
            flaw: None,
            attempts: vec![Attempt { seed, ended: spoken.ended, codes, flaw: None, mismatch }],
            cut: 0,
        })
    }
}

/// What came of codes, without their sound.
fn judged(expected: &Expected, spoken: Spoken) -> Tried {
    let flaw = expected.judge(spoken.ended, spoken.codes.len(), CODES_PER_SECOND);
    Tried { spoken, flaw, samples: None, is_final: false, cut: 0 }
}

/// Where streamed samples go.
struct Outlet<'s> {
    sink: &'s mut dyn FnMut(&[f32]) -> bool,
    start: Option<LeadingSilence>,
    silences: Silences,
    samples: Vec<f32>,
    cut: usize,
    /// Whether anything was given out.
    given: bool,
    /// Whether more is to come.
    wanted: bool,
}

impl<'s> Outlet<'s> {
    fn new(
        audible_start: Option<AudibleStart>,
        rate: u32,
        sink: &'s mut dyn FnMut(&[f32]) -> bool,
    ) -> Outlet<'s> {
        let start = audible_start.map(|options| LeadingSilence::new(options, rate));
        Outlet {
            sink,
            start,
            silences: Silences::new(rate),
            samples: Vec::new(),
            cut: 0,
            given: false,
            wanted: true,
        }
    }

    /// Takes a piece, and gives it out where `give` says so.
    fn take(&mut self, piece: &[f32], give: bool) {
        let piece = match &mut self.start {
            None => piece.to_vec(),
            Some(start) => {
                let piece = start.push(piece);
                self.cut = start.cut();
                piece
            }
        };
        if give && !piece.is_empty() {
            self.given = true;
            self.wanted = (self.sink)(&piece);
        }
        self.samples.extend(piece);
    }
}
