//! Speaking a text, whole or streamed, with retries for flawed attempts.

mod batch;
mod continuous;

pub use continuous::Speech;

use crate::error::SpeakError;
use crate::guard::{Attempt, ExpectedLength, Flaw, SilenceDetector, is_better};
use crate::stream::{AudibleStart, FrameDecoder, LeadingSilence, Streamer, windows};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use crate::waveform::{Fit, Waveform};
use myxtts_data::tokenizer::Encoded;
use myxtts_model::decoder::CODES_PER_SECOND;
use myxtts_model::generate::Guided;
use myxtts_model::{Forced, SamplingOptions, Spoken, StopReason};

/// Default number of retries.
const RETRIES: usize = 2;

/// Options for speaking a text.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeakOptions {
    /// Sampling of codes.
    pub sampling: SamplingOptions,
    /// Number of further attempts, each with the next seed, if speech is flawed: it loops, does not end, stops early or falls
    /// silent. Greedy speech is the same every time and is not retried.
    pub retries: usize,
    /// Number of candidates generated for each text, each with its own seed; the best-ranked one is kept. More than one needs
    /// a model with a proofreader ([`Synthesizer::can_proofread`]). Streamed and greedy speech have one candidate.
    pub candidates: usize,
    /// Exponent of the length in the ranking of candidates: their mismatch is divided by `codes^length_penalty`. 0 ranks by
    /// the mismatch alone, positive values prefer longer candidates, negative values shorter ones. It has no effect on a
    /// single candidate: codes are sampled, not searched, so there is no beam that it could rank.
    pub length_penalty: f64,
    /// Removes leading silence; `None` keeps the whole waveform.
    pub audible_start: Option<AudibleStart>,
}

impl From<SamplingOptions> for SpeakOptions {
    fn from(sampling: SamplingOptions) -> SpeakOptions {
        SpeakOptions { sampling, retries: RETRIES, candidates: 1, length_penalty: 0.0, audible_start: None }
    }
}

/// Result of one attempt.
struct AttemptOutput {
    spoken: Spoken,
    flaw: Option<Flaw>,
    /// `None` if the waveform was not decoded yet, because the codes alone showed a flaw.
    samples: Option<Vec<f32>>,
    /// Samples were already delivered, or the listener wants no more: there is no further attempt.
    is_final: bool,
    /// Samples of leading silence that were removed.
    trimmed: usize,
}

impl Synthesizer {
    /// Speaks a text, once.
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

    /// Speaks a text, with retries if it is flawed; returns the best attempt.
    pub fn speak_with(
        &mut self,
        text: &str,
        language: &str,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<Waveform, SpeakError> {
        let mut spoken = self.speak_many(&[(text, options.sampling.seed)], language, voice, options)?;
        spoken.pop().unwrap_or_else(|| Err(SpeakError::NothingToSay { text: text.to_owned() }))
    }

    /// As [`Synthesizer::speak_with`], with samples delivered to `sink` as they are decoded. Generation stops when `sink` returns
    /// false. There are no retries once samples were delivered. A model without a decoder delivers everything at the end.
    pub fn speak_streamed(
        &mut self,
        text: &str,
        language: &str,
        voice: &Voice,
        options: &SpeakOptions,
        sink: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Waveform, SpeakError> {
        if self.vocoder.decoder_sizes().is_none() {
            let waveform = self.speak_with(text, language, voice, options)?;
            sink(&waveform.samples);
            return Ok(waveform);
        }
        let encoded = self.encode(text, language)?;
        let mut delivered = false;
        let waveform = self.retry(encoded, voice, options, &mut |this, encoded, sampling| {
            let output = this.attempt_streamed(encoded, voice, sampling, options, sink)?;
            delivered |= output.is_final;
            Ok(output)
        })?;
        if !delivered {
            sink(&waveform.samples);
        }
        Ok(waveform)
    }

    /// Prepares all programs of streaming, so that the first utterance is as fast as later ones: on a GPU a program is captured
    /// the second time it runs.
    pub fn prepare_streaming(&mut self) -> Result<(), SpeakError> {
        let Some(sizes) = self.vocoder.decoder_sizes().cloned() else { return Ok(()) };
        let all = windows(&sizes);
        self.vocoder.reserve_windows()?;
        let speaker = vec![0.0; sizes.speaker];
        for frames in all.into_iter().flat_map(|frames| [frames; 3]) {
            self.vocoder.windows((1, frames), &vec![0.0; frames * sizes.latent], &speaker, true)?;
        }
        Ok(())
    }

    /// Makes attempts until one has no flaw or the retries are used up.
    fn retry(
        &mut self,
        encoded: Encoded,
        voice: &Voice,
        options: &SpeakOptions,
        attempt: &mut dyn FnMut(
            &mut Synthesizer,
            &Encoded,
            &SamplingOptions,
        ) -> Result<AttemptOutput, SpeakError>,
    ) -> Result<Waveform, SpeakError> {
        let (mut attempts, mut best): (Vec<Attempt>, Option<AttemptOutput>) = (Vec::new(), None);
        let retries = if options.sampling.greedy { 0 } else { options.retries };
        for number in 0..=retries as u64 {
            let seed = options.sampling.seed.wrapping_add(number);
            let output = attempt(self, &encoded, &SamplingOptions { seed, ..options.sampling.clone() })?;
            let AttemptOutput { spoken, flaw, is_final, .. } = &output;
            let mismatch = self.mismatch(&encoded, spoken);
            let (ended, codes) = (spoken.ended, spoken.codes.len());
            attempts.push(Attempt { seed, ended, codes, flaw: *flaw, mismatch });
            let enough = flaw.is_none() || *is_final;
            if *is_final || best.as_ref().is_none_or(|best| is_better(*flaw, best.flaw)) {
                best = Some(output);
            }
            if enough {
                break;
            }
        }
        self.finish_best(encoded, best, attempts, voice, options)
    }

    /// Decodes the best attempt if that was not done yet.
    fn finish_best(
        &mut self,
        encoded: Encoded,
        best: Option<AttemptOutput>,
        attempts: Vec<Attempt>,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<Waveform, SpeakError> {
        // There is at least one attempt.
        let Some(mut output) = best else {
            return Err(SpeakError::NothingToSay { text: encoded.cleaned });
        };
        self.decode_outputs(vec![&mut output], voice, options)?;
        Ok(self.build_waveform(encoded, output, attempts))
    }

    /// Decodes the waveforms of attempts that have none yet, all together.
    fn decode_outputs(
        &mut self,
        mut outputs: Vec<&mut AttemptOutput>,
        voice: &Voice,
        options: &SpeakOptions,
    ) -> Result<(), SpeakError> {
        outputs.retain(|output| output.samples.is_none());
        let spoken: Vec<_> =
            outputs.iter().map(|output| (&output.spoken, voice.speaker.as_deref())).collect();
        let waveforms = self.vocoder.waveforms(&spoken, &self.mel_stats)?;
        for (output, samples) in outputs.iter_mut().zip(waveforms) {
            // Codes without a flaw may still have a flawed waveform.
            if output.flaw.is_none() {
                let mut silences = SilenceDetector::new(self.quality().rate());
                silences.push(&samples);
                output.flaw = silences.find_flaw();
            }
            output.samples = Some(self.trim_start(samples, options.audible_start, &mut output.trimmed));
        }
        Ok(())
    }

    fn build_waveform(&self, encoded: Encoded, output: AttemptOutput, attempts: Vec<Attempt>) -> Waveform {
        let AttemptOutput { spoken, flaw, samples, trimmed, .. } = output;
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
            trimmed,
        }
    }

    /// Makes one attempt, with samples delivered as they are decoded.
    fn attempt_streamed(
        &mut self,
        encoded: &Encoded,
        voice: &Voice,
        sampling: &SamplingOptions,
        options: &SpeakOptions,
        sink: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<AttemptOutput, SpeakError> {
        let expected = ExpectedLength::from_text(&encoded.cleaned);
        let max_codes = (expected.most * CODES_PER_SECOND) as usize;
        let textless = self.textless(encoded);
        let guided = Guided { text: &encoded.ids, textless: Some(&textless) };
        let rate = self.quality().rate();
        let Synthesizer { generator, vocoder, .. } = self;
        let Some(sizes) = vocoder.decoder_sizes().cloned() else {
            return Err(SpeakError::Speaker { wanted: 0 });
        };
        vocoder.reserve_windows()?;
        let mut streamer = Streamer::new(&sizes, vocoder.check_speaker(voice.speaker.as_deref())?);
        let mut stream = StreamOutput::new(options.audible_start, rate, sink);
        let (mut steps, mut failed) = (0, None);
        let mut spoken =
            generator.speak_with_observer(&voice.conditioning, guided, sampling, &mut |step| {
                steps += 1;
                match streamer.push(vocoder, step.latent) {
                    Ok(piece) => {
                        stream.silences.push(&piece);
                        stream.take(&piece, true);
                    }
                    Err(error) => failed = Some(error),
                }
                failed.is_none() && stream.wanted && !stream.silences.is_stuck() && steps < max_codes
            })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if !stream.wanted {
            let StreamOutput { samples, trimmed, .. } = stream;
            return Ok(AttemptOutput { spoken, flaw: None, samples: Some(samples), is_final: true, trimmed });
        }
        if spoken.ended == StopReason::Observer && !stream.silences.is_stuck() {
            spoken.ended = StopReason::TooManyForText;
        }
        let rest = streamer.finish(vocoder, spoken.latents.len() / sizes.latent)?;
        let code_flaw = expected.find_flaw(spoken.ended, spoken.codes.len(), CODES_PER_SECOND);
        stream.silences.push(&rest);
        let flaw = code_flaw.or_else(|| stream.silences.find_flaw());
        // If nothing was delivered yet, a flawed attempt is held back: the best of all attempts is delivered at the end.
        let deliver = stream.delivered || flaw.is_none();
        stream.take(&rest, deliver);
        let StreamOutput { samples, delivered, trimmed, .. } = stream;
        Ok(AttemptOutput { spoken, flaw, samples: Some(samples), is_final: delivered, trimmed })
    }

    /// Resynthesizes a recording from its own codes: the GPT reads them with the text instead of sampling others, and its latents
    /// are decoded. The remaining difference to the recording is due to the decoder and the codes.
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
        let spoken = Spoken { codes: codes.to_vec(), latents, ended: StopReason::Stop };
        Ok((self.waveform(encoded, &spoken, voice, 0)?, Fit { loss, accuracy }))
    }

    /// Whether the model can measure how well codes match a text: if it was trained with `training.code_token_weight`.
    pub fn can_proofread(&self) -> bool {
        self.proofreader.is_some()
    }

    /// Alignment cost of codes and text; `None` without a proofreader.
    fn mismatch(&self, encoded: &Encoded, spoken: &Spoken) -> Option<f64> {
        let proofreader = self.proofreader.as_ref()?;
        Some(proofreader.mismatch(&self.tokenizer, &encoded.ids, &spoken.codes))
    }

    /// Tokens of a row without text, as in training with text dropout.
    fn textless(&self, encoded: &Encoded) -> Vec<i32> {
        encoded.ids.iter().copied().take(1).chain([self.tokenizer.space_id()]).collect()
    }

    /// Removes leading silence, if requested.
    fn trim_start(&self, samples: Vec<f32>, options: Option<AudibleStart>, trimmed: &mut usize) -> Vec<f32> {
        let Some(options) = options else { return samples };
        let mut start = LeadingSilence::new(options, self.quality().rate());
        let samples = start.push(&samples);
        *trimmed = start.trimmed();
        samples
    }

    fn waveform(
        &mut self,
        encoded: Encoded,
        spoken: &Spoken,
        voice: &Voice,
        seed: u64,
    ) -> Result<Waveform, SpeakError> {
        let samples = self.vocoder.waveform(spoken, voice.speaker.as_deref(), &self.mel_stats)?;
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
            trimmed: 0,
        })
    }
}

/// The result of an attempt whose waveform is not decoded yet.
fn undecoded(expected: &ExpectedLength, spoken: Spoken) -> AttemptOutput {
    let flaw = expected.find_flaw(spoken.ended, spoken.codes.len(), CODES_PER_SECOND);
    AttemptOutput { spoken, flaw, samples: None, is_final: false, trimmed: 0 }
}

/// Delivers streamed samples.
struct StreamOutput<'s> {
    sink: &'s mut dyn FnMut(&[f32]) -> bool,
    start: Option<LeadingSilence>,
    silences: SilenceDetector,
    samples: Vec<f32>,
    trimmed: usize,
    /// Whether any samples were delivered.
    delivered: bool,
    /// Whether the sink wants more samples.
    wanted: bool,
}

impl<'s> StreamOutput<'s> {
    fn new(
        audible_start: Option<AudibleStart>,
        rate: u32,
        sink: &'s mut dyn FnMut(&[f32]) -> bool,
    ) -> StreamOutput<'s> {
        let start = audible_start.map(|options| LeadingSilence::new(options, rate));
        StreamOutput {
            sink,
            start,
            silences: SilenceDetector::new(rate),
            samples: Vec::new(),
            trimmed: 0,
            delivered: false,
            wanted: true,
        }
    }

    /// Adds samples, and delivers them if `deliver` is set.
    fn take(&mut self, piece: &[f32], deliver: bool) {
        let piece = match &mut self.start {
            None => piece.to_vec(),
            Some(start) => {
                let piece = start.push(piece);
                self.trimmed = start.trimmed();
                piece
            }
        };
        if deliver && !piece.is_empty() {
            self.delivered = true;
            self.wanted = (self.sink)(&piece);
        }
        self.samples.extend(piece);
    }
}
