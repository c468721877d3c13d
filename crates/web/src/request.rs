//! One request being spoken: the pieces of its text one after the other, joined into one audio stream.

use crate::audio_stream::AudioSink;
use crate::limits::PAUSES;
use crate::model::{ModelSpeaker, client_error, refused};
use crate::speaker::{RATE, SpeakerError, Usage, Utterance};
use myxtts_data::audio::Resampler;
use myxtts_model::SamplingOptions;
use myxtts_speak::audio_file::AudioFileError;
use myxtts_speak::language::guess_language;
use myxtts_speak::long_text::{Pause, Piece, Pieces};
use myxtts_speak::narration::{NarrationSettings, Narrator, SPEEDS, Spoken, TimeStretch, piece_seed};
use myxtts_speak::{AudibleStart, SpeakError, SpeakOptions, Speech, Synthesizer, Voice};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request being spoken.
pub(crate) struct Request {
    /// Pieces not started yet.
    pieces: VecDeque<Piece>,
    /// Index of the next piece.
    number: u64,
    voice: Arc<Voice>,
    language: String,
    options: SpeakOptions,
    narrator: Narrator,
    output: OutputStage,
    current: Option<Current>,
    usage: Usage,
    /// Why a piece could not be spoken.
    unspoken: Option<SpeakError>,
}

/// The piece being spoken.
struct Current {
    piece: Piece,
    number: u64,
    /// Start position in samples.
    start: u64,
    speech: Speech,
}

/// Output stage after narration.
struct OutputStage {
    sink: AudioSink,
    /// Second time stretch, for speeds beyond the range of one.
    stretch: TimeStretch,
    /// Silence before the first speech; if there is none at all, the request is an error and not silence.
    held: Vec<f32>,
    ready: Vec<f32>,
    has_spoken: bool,
}

impl OutputStage {
    fn write(&mut self, samples: &[f32]) {
        if !self.has_spoken {
            self.held.extend_from_slice(samples);
            return;
        }
        self.ready.clear();
        self.stretch.add(&std::mem::take(&mut self.held), &mut self.ready);
        self.stretch.add(samples, &mut self.ready);
        // A disconnected client is noticed through `is_wanted`.
        let _ = self.sink.push(&self.ready);
    }

    fn end(&mut self) {
        self.ready.clear();
        self.stretch.end(&mut self.ready);
        let _ = self.sink.push(&self.ready);
    }
}

impl Request {
    /// Splits a text into pieces. Errors are sent to the client.
    pub fn begin(speaker: &ModelSpeaker, utterance: &Utterance, sink: AudioSink) -> Option<Request> {
        match Plan::new(speaker, utterance) {
            Ok(plan) => {
                let Plan { pieces, voice, language, options, speed } = plan;
                let first = speed.clamp(*SPEEDS.start(), *SPEEDS.end());
                let settings =
                    NarrationSettings { speed: first, seed: utterance.seed, ..NarrationSettings::default() };
                let stretch = TimeStretch::new(speed / first, RATE);
                Some(Request {
                    pieces,
                    number: 0,
                    voice,
                    language,
                    options,
                    narrator: Narrator::new(settings, RATE, 0),
                    output: OutputStage {
                        sink,
                        stretch,
                        held: Vec::new(),
                        ready: Vec::new(),
                        has_spoken: false,
                    },
                    current: None,
                    usage: Usage::default(),
                    unspoken: None,
                })
            }
            Err(error) => {
                sink.finish(Err(error));
                None
            }
        }
    }

    /// Whether the client is still connected and the time limit is not reached.
    pub fn is_wanted(&self) -> bool {
        self.output.sink.is_wanted()
    }

    /// Whether a piece is being spoken.
    pub fn is_speaking(&self) -> bool {
        self.current.is_some()
    }

    /// Whether it is being spoken and its first audio is not sent yet.
    pub fn awaits_first_audio(&self) -> bool {
        self.current.is_some() && !self.output.has_spoken
    }

    /// Whether all of it was spoken.
    pub fn is_finished(&self) -> bool {
        self.current.is_none() && self.pieces.is_empty()
    }

    /// Whether its next piece may start: the client has received enough of the audio so far.
    pub fn is_due(&self) -> bool {
        self.current.is_none() && !self.pieces.is_empty() && !self.output.sink.is_full()
    }

    /// When its client runs out of audio to play.
    pub fn deadline(&self) -> Instant {
        self.output.sink.playback_end()
    }

    /// Assigns a slot to the next piece that can be spoken; one must be free.
    pub fn begin_piece(&mut self, synthesizer: &mut Synthesizer) -> Result<(), SpeakError> {
        while let (None, Some(piece)) = (&self.current, self.pieces.pop_front()) {
            let (number, start) = (self.number, self.narrator.position());
            self.number += 1;
            if !piece.is_spoken() {
                self.end_piece(&piece, number, start, Spoken::Said(None));
                continue;
            }
            let seed = piece_seed(self.options.sampling.seed, number);
            let sampling = SamplingOptions { seed, ..self.options.sampling.clone() };
            let options = SpeakOptions { sampling, ..self.options.clone() };
            match synthesizer.join(&piece.text, &self.language, &self.voice, &options) {
                Ok(speech) => self.current = Some(Current { piece, number, start, speech }),
                Err(error @ (SpeakError::NothingToSay { .. } | SpeakError::UnknownLetters { .. })) => {
                    let reason = error.to_string();
                    self.unspoken.get_or_insert(error);
                    self.end_piece(&piece, number, start, Spoken::Nothing(reason));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn end_piece(&mut self, piece: &Piece, number: u64, start: u64, spoken: Spoken) {
        let output = &mut self.output;
        let mut write = |samples: &[f32]| -> Result<(), AudioFileError> {
            output.write(samples);
            Ok(())
        };
        // The returned piece information is not needed here; `write` does not fail.
        let _ = self.narrator.end(start, number, piece, spoken, &mut write);
    }

    /// Decodes the collected codes and sends the audio.
    pub fn send_audio(&mut self, synthesizer: &mut Synthesizer) -> Result<(), SpeakError> {
        let Some(Current { speech, .. }) = &mut self.current else { return Ok(()) };
        let samples = synthesizer.take_audio(speech)?;
        let is_done = speech.is_done();
        if !samples.is_empty() {
            self.output.has_spoken = true;
            let samples = match synthesizer.quality().rate() {
                RATE => samples,
                // A model without a decoder returns the text as one piece, which can be resampled as a whole.
                rate => Resampler::new(rate, RATE).resample(&samples),
            };
            let output = &mut self.output;
            let mut write = |samples: &[f32]| -> Result<(), AudioFileError> {
                output.write(samples);
                Ok(())
            };
            let _ = self.narrator.add(&samples, &mut write);
        }
        if is_done && let Some(Current { piece, number, start, speech }) = self.current.take() {
            self.usage.text_tokens += speech.tokens();
            self.usage.audio_tokens += speech.codes();
            synthesizer.leave(speech)?;
            self.end_piece(&piece, number, start, Spoken::Said(None));
        }
        Ok(())
    }

    /// Collects the sampled codes.
    pub fn collect(&mut self, synthesizer: &mut Synthesizer) -> Result<(), SpeakError> {
        match &mut self.current {
            Some(Current { speech, .. }) => synthesizer.collect(speech),
            None => Ok(()),
        }
    }

    /// Ends the response, with the error if there is one, and frees the slot.
    pub fn finish(
        self,
        synthesizer: &mut Synthesizer,
        failed: Option<&SpeakError>,
    ) -> Result<(), SpeakError> {
        let Request { current, mut output, usage, unspoken, .. } = self;
        let left = current.map_or(Ok(()), |current| synthesizer.leave(current.speech));
        let result = match (failed, unspoken) {
            (Some(error), _) => Err(client_error(error)),
            (None, Some(error)) if !output.has_spoken && output.sink.is_wanted() => Err(client_error(&error)),
            _ => {
                output.end();
                Ok(usage)
            }
        };
        output.sink.finish(result);
        left
    }
}

/// A request resolved against a model.
struct Plan {
    pieces: VecDeque<Piece>,
    voice: Arc<Voice>,
    language: String,
    options: SpeakOptions,
    speed: f64,
}

impl Plan {
    fn new(speaker: &ModelSpeaker, utterance: &Utterance) -> Result<Plan, SpeakerError> {
        let Utterance { text, voice, language, speed, seed, sampling } = utterance;
        let synthesizer = &speaker.synthesizer;
        let languages = synthesizer.languages();
        let language = match language {
            Some(language) if languages.contains(language) => language.clone(),
            Some(language) => {
                let language: String = language.chars().take(20).collect();
                let message =
                    format!("this model does not support {language:?}: it supports {}", languages.join(", "));
                return Err(refused("language", "unknown_language", message));
            }
            None => guess_language(text, &languages).unwrap_or_else(|| "en".to_owned()),
        };
        let voice = Arc::new(speaker.voice(voice).map_err(|error| client_error(&error))?);
        let measure = synthesizer.token_budget(&language);
        let count = |text: &str| measure.count(text);
        let pieces: VecDeque<Piece> = Pieces::new(text.as_bytes(), measure.limit(), &count)
            .collect::<Result<_, _>>()
            .map_err(|error| refused("input", "invalid_value", error.to_string()))?;
        let pause = |piece: &Piece| match piece.pause {
            Pause::Explicit(pause) => pause,
            _ => Duration::ZERO,
        };
        if pieces.iter().map(pause).sum::<Duration>() > PAUSES {
            let message = format!("the [pause:...] marks add up to more than {} seconds", PAUSES.as_secs());
            return Err(refused("input", "invalid_value", message));
        }
        let default = synthesizer.default_sampling();
        let options = SamplingOptions {
            temperature: sampling.temperature.unwrap_or(default.temperature),
            top_k: sampling.top_k.unwrap_or(default.top_k),
            top_p: sampling.top_p.unwrap_or(default.top_p),
            repetition_penalty: sampling.repetition_penalty.unwrap_or(default.repetition_penalty),
            seed: *seed,
            ..default
        };
        let options = SpeakOptions { audible_start: Some(AudibleStart::default()), ..options.into() };
        Ok(Plan { pieces, voice, language, options, speed: *speed })
    }
}
