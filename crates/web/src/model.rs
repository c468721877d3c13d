//! The opened model as the one who speaks: one request after the other, each while its sound is made.

use crate::limits::{PAUSES, UPLOAD_SECONDS};
use crate::queue::{HearJob, Job, Jobs, SpeakJob};
use crate::sound::SoundSink;
use crate::speaker::{
    HeardVoice, RATE, Speaker, SpeakerError, SpeakerFacts, Usage, Utterance, VoiceDetails, VoiceStore,
};
use myxtts_data::audio::{self, Clip, Resampler};
use myxtts_data::demo;
use myxtts_model::SamplingOptions;
use myxtts_model::weights::ModelFolder;
use myxtts_run::durable::Os;
use myxtts_speak::language::guess_language;
use myxtts_speak::long_text::{Pause, Piece, Pieces};
use myxtts_speak::narration::{self, NarrationError, NarrationSettings, SPEEDS, Spoken, Stretch, narrate};
use myxtts_speak::reference::{Reference, ReferenceReport};
use myxtts_speak::sound_file::SoundFileError;
use myxtts_speak::voices::{StoredVoice, VoiceError, Voices, all_names, kept};
use myxtts_speak::{AudibleStart, Decoding, Quality, SpeakError, SpeakOptions, Synthesizer, Voice};
use myxtts_tensor::Device;
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What means the first voice there is, or a speaker of the run, unless a voice is kept under this name.
pub const DEFAULT_VOICE: &str = "default";

/// What is said first, in the first of these languages that the model can read.
const GREETINGS: [(&str, &str); 8] = [
    ("en", "Hello."),
    ("fa", "سلام."),
    ("ar", "مرحبا."),
    ("ru", "Привет."),
    ("zh-cn", "你好。"),
    ("ja", "こんにちは。"),
    ("ko", "안녕하세요."),
    ("hi", "नमस्ते।"),
];

/// A model that speaks for a server.
pub struct ModelSpeaker {
    synthesizer: Synthesizer,
    folder: Arc<ModelFolder>,
    voices: Voices,
    /// A speaker of the model's run, where it has no voice of its own.
    run_voice: Option<Voice>,
}

/// The voices of a model, as they are listed and removed.
pub struct ModelVoices {
    folder: Arc<ModelFolder>,
    voices: Voices,
    has_run_voice: bool,
}

impl ModelVoices {
    /// Those of a model; with one called [`DEFAULT_VOICE`] where a speaker of its run is heard.
    pub fn new(folder: Arc<ModelFolder>, has_run_voice: bool) -> ModelVoices {
        ModelVoices { voices: Voices::of(&folder), folder, has_run_voice }
    }
}

impl VoiceStore for ModelVoices {
    fn names(&self) -> Result<Vec<String>, VoiceError> {
        let mut names = all_names(&self.folder)?;
        if self.has_run_voice && !names.iter().any(|name| name == DEFAULT_VOICE) {
            names.insert(0, DEFAULT_VOICE.to_owned());
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<(), VoiceError> {
        self.voices.remove(&Os, name)
    }

    fn details(&self, name: &str) -> Result<Option<VoiceDetails>, VoiceError> {
        let kept = self.voices.own(name)?;
        Ok(kept.map(|kept| VoiceDetails { seconds: kept.seconds, report: kept.report }))
    }
}

impl ModelSpeaker {
    /// Opens a model and hears the recordings of a speaker of its run, where there are any.
    pub fn open(
        folder: Arc<ModelFolder>,
        device: Device,
        recordings: &[PathBuf],
    ) -> Result<ModelSpeaker, SpeakError> {
        let mut synthesizer = Synthesizer::open_for(&folder, device, Decoding::Fast { at_once: 1 })?;
        let references =
            recordings.iter().map(|path| Reference::read(path)).collect::<Result<Vec<_>, _>>()?;
        let run_voice = match &references[..] {
            [] => None,
            references => Some(synthesizer.hear_references(references)?),
        };
        Ok(ModelSpeaker { synthesizer, voices: Voices::of(&folder), folder, run_voice })
    }

    fn voice(&self, named: &str) -> Result<Voice, SpeakError> {
        let found = kept(&self.folder, named);
        if named != DEFAULT_VOICE || !matches!(found, Err(SpeakError::Voice(VoiceError::Unknown { .. }))) {
            return found;
        }
        if let Some(voice) = &self.run_voice {
            return Ok(voice.clone());
        }
        // Voices of other models are passed over.
        all_names(&self.folder)?.iter().find_map(|name| kept(&self.folder, name).ok()).map_or(found, Ok)
    }

    fn say(&mut self, utterance: &Utterance, sink: &mut SoundSink) -> Result<Usage, SpeakerError> {
        let Utterance { text, voice, language, speed, seed, sampling } = utterance;
        let languages = self.synthesizer.languages();
        let language = match language {
            Some(language) if languages.contains(language) => language.clone(),
            Some(language) => {
                let language: String = language.chars().take(20).collect();
                let message =
                    format!("this model does not speak {language:?}: it speaks {}", languages.join(", "));
                return Err(refused("language", "unknown_language", message));
            }
            None => guess_language(text, &languages).unwrap_or_else(|| "en".to_owned()),
        };
        let voice = self.voice(voice).map_err(|error| told(&error))?;
        let measure = self.synthesizer.text_measure(&language);
        let count = |text: &str| measure.count(text);
        let pieces: Vec<Piece> = Pieces::new(text.as_bytes(), measure.limit(), &count)
            .collect::<Result<_, _>>()
            .map_err(|error| refused("input", "invalid_value", error.to_string()))?;
        let pause = |piece: &Piece| match piece.pause {
            Pause::Explicit(pause) => pause,
            _ => Duration::ZERO,
        };
        if pieces.iter().map(pause).sum::<Duration>() > PAUSES {
            let message =
                format!("the [pause:...] marks are longer than {} seconds together", PAUSES.as_secs());
            return Err(refused("input", "invalid_value", message));
        }
        let usual = self.synthesizer.usual_options();
        let options = SamplingOptions {
            temperature: sampling.temperature.unwrap_or(usual.temperature),
            top_k: sampling.top_k.unwrap_or(usual.top_k),
            top_p: sampling.top_p.unwrap_or(usual.top_p),
            repetition_penalty: sampling.repetition_penalty.unwrap_or(usual.repetition_penalty),
            seed: *seed,
            ..usual
        };
        // Early sound comes whole: nobody waits for its beginning.
        let is_decoded = self.synthesizer.quality() == Quality::Decoded;
        let audible_start = is_decoded.then(AudibleStart::default);
        let options = SpeakOptions { audible_start, ..options.into() };
        // What one stretch cannot do, two do.
        let first = speed.clamp(*SPEEDS.start(), *SPEEDS.end());
        let settings = NarrationSettings { speed: first, seed: *seed, ..NarrationSettings::default() };
        let mut outlet =
            Outlet { sink, stretch: Stretch::new(speed / first, RATE), held: Vec::new(), ready: Vec::new() };
        let synthesizer = &mut self.synthesizer;
        let mut speaker = PieceSpeaker {
            synthesizer,
            voice,
            language,
            options,
            usage: Usage::default(),
            has_spoken: Rc::default(),
            refused: None,
        };
        let has_spoken = speaker.has_spoken.clone();
        let mut write = |samples: &[f32]| outlet.write(samples, has_spoken.get());
        let narrated = narrate(pieces.into_iter().map(Ok), &mut speaker, settings, &mut write, &mut |_| true);
        let PieceSpeaker { usage, refused: unsaid, .. } = speaker;
        match narrated {
            Ok(_) => {}
            Err(NarrationError::Speaker(error)) => return Err(told(&error)),
            // The client has gone, or its time is up, which the sink knows.
            Err(NarrationError::Sound(SoundFileError::Io(error)))
                if error.kind() == ErrorKind::BrokenPipe =>
            {
                return Ok(usage);
            }
            Err(error) => return Err(SpeakerError::Failed(error.to_string())),
        }
        if let (0, Some(error)) = (usage.audio_tokens, unsaid) {
            return Err(told(&error));
        }
        outlet.finish();
        Ok(usage)
    }

    fn hear(&mut self, name: &str, recording: &Path) -> Result<HeardVoice, SpeakerError> {
        // Its place on our disk is none of a client's business.
        let place = recording.display().to_string();
        let unusable = |error: &dyn std::fmt::Display| {
            let message = error.to_string().replace(&place, "the recording");
            refused("audio_sample", "invalid_audio", message)
        };
        let info = audio::probe(recording).map_err(|error| unusable(&error))?;
        let seconds = info.declared_frames.map(|frames| frames as f64 / f64::from(info.sample_rate));
        if let Some(seconds) = seconds.filter(|seconds| *seconds > UPLOAD_SECONDS) {
            let message = format!(
                "the recording has {seconds:.0} seconds; {UPLOAD_SECONDS:.0} are enough and the most"
            );
            return Err(refused("audio_sample", "invalid_audio", message));
        }
        let mut reference = Reference::read(recording).map_err(|error| unusable(&error))?;
        reference.path = PathBuf::from("upload");
        let references = [reference];
        let voice = self.synthesizer.hear_references(&references).map_err(|error| unusable(&error))?;
        let parts = self.synthesizer.speaker_parts(&references).map_err(|error| unusable(&error))?;
        let report = ReferenceReport::of(&references, &parts);
        let heard = HeardVoice {
            seconds: report.seconds,
            advice: report.advice.iter().map(|advice| advice.text.clone()).collect(),
        };
        let stored = StoredVoice {
            name: name.to_owned(),
            voice,
            latents: self.synthesizer.latents(),
            references: vec!["upload".to_owned()],
            seconds: report.seconds,
            model: self.voices.fingerprint().to_owned(),
            report: Some(report),
        };
        match self.voices.add(&Os, &stored, false) {
            Ok(_) => Ok(heard),
            Err(error @ (VoiceError::Exists { .. } | VoiceError::Name { .. })) => {
                Err(refused("name", "invalid_name", error.to_string()))
            }
            Err(_) => Err(SpeakerError::Failed("the voice cannot be written".to_owned())),
        }
    }
}

impl Speaker for ModelSpeaker {
    fn facts(&self) -> SpeakerFacts {
        SpeakerFacts { languages: self.synthesizer.languages() }
    }

    fn warm_up(&mut self) -> Result<(), SpeakError> {
        self.synthesizer.prepare_streaming()?;
        let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
        let voice = self.synthesizer.hear(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }])?;
        let options = SpeakOptions { further_tries: 0, ..self.synthesizer.usual_options().into() };
        let languages = self.synthesizer.languages();
        for (language, text) in GREETINGS.iter().filter(|(code, _)| languages.iter().any(|one| one == code)) {
            match self.synthesizer.speak_streamed(text, language, &voice, &options, &mut |_| true) {
                Err(SpeakError::UnknownLetters { .. } | SpeakError::NothingToSay { .. }) => continue,
                said => return said.map(|_| ()),
            }
        }
        // A model of other languages than these: everything but its first words is warm.
        Ok(())
    }

    fn work(&mut self, jobs: &Jobs) {
        while let Some(job) = jobs.next() {
            match job {
                Job::Speak(SpeakJob { utterance, mut sink }) => {
                    let said = self.say(&utterance, &mut sink);
                    sink.finish(said);
                }
                Job::Hear(HearJob { name, recording, reply }) => {
                    let heard = self.hear(&name, &recording);
                    // Nobody there: the voice is kept all the same.
                    let _ = reply.send(heard);
                }
            }
        }
    }
}

fn refused(param: &'static str, code: &'static str, message: String) -> SpeakerError {
    SpeakerError::Refused { param, code, message }
}

/// An error as a client is told it.
fn told(error: &SpeakError) -> SpeakerError {
    let message = error.to_string();
    match error {
        SpeakError::Voice(VoiceError::Io { .. } | VoiceError::Disk(_)) => {
            SpeakerError::Failed("the voice cannot be read".to_owned())
        }
        SpeakError::Voice(_) => refused("voice", "voice_not_found", message),
        SpeakError::NothingToSay { .. } | SpeakError::UnknownLetters { .. } | SpeakError::Tokenizer(_) => {
            refused("input", "nothing_to_say", message)
        }
        _ => SpeakerError::Failed(message),
    }
}

/// Where narrated samples go.
struct Outlet<'s> {
    sink: &'s mut SoundSink,
    stretch: Stretch,
    /// Silence before anything was said: where nothing ever is, that is an error and no sound.
    held: Vec<f32>,
    ready: Vec<f32>,
}

impl Outlet<'_> {
    fn write(&mut self, samples: &[f32], has_spoken: bool) -> Result<(), SoundFileError> {
        if !has_spoken {
            self.held.extend_from_slice(samples);
            return Ok(());
        }
        self.ready.clear();
        self.stretch.add(&std::mem::take(&mut self.held), &mut self.ready);
        self.stretch.add(samples, &mut self.ready);
        match self.sink.push(&self.ready) {
            true => Ok(()),
            false => Err(SoundFileError::Io(ErrorKind::BrokenPipe.into())),
        }
    }

    fn finish(mut self) {
        self.ready.clear();
        self.stretch.end(&mut self.ready);
        self.sink.push(&self.ready);
    }
}

/// Says the pieces of one text.
struct PieceSpeaker<'m> {
    synthesizer: &'m mut Synthesizer,
    voice: Voice,
    language: String,
    options: SpeakOptions,
    usage: Usage,
    /// Whether there was sound of any piece.
    has_spoken: Rc<Cell<bool>>,
    /// Why a piece could not be said.
    refused: Option<SpeakError>,
}

impl narration::Speaker for PieceSpeaker<'_> {
    type Error = SpeakError;

    fn rate(&self) -> u32 {
        RATE
    }

    fn speak(
        &mut self,
        text: &str,
        seed: u64,
        out: &mut dyn FnMut(&[f32]) -> bool,
    ) -> Result<Spoken, SpeakError> {
        let sampling = SamplingOptions { seed, ..self.options.sampling.clone() };
        let options = SpeakOptions { sampling, ..self.options.clone() };
        let rate = self.synthesizer.quality().rate();
        let has_spoken = self.has_spoken.clone();
        let mut sink = |samples: &[f32]| {
            has_spoken.set(true);
            match rate {
                RATE => out(samples),
                // A model without a decoder gives a text as one piece: it can be resampled as a whole.
                rate => out(&Resampler::new(rate, RATE).resample(samples)),
            }
        };
        let said = self.synthesizer.speak_streamed(text, &self.language, &self.voice, &options, &mut sink);
        match said {
            Ok(said) => {
                self.usage.text_tokens += said.tokens;
                self.usage.audio_tokens += said.codes;
                Ok(Spoken::Said(None))
            }
            Err(error @ (SpeakError::NothingToSay { .. } | SpeakError::UnknownLetters { .. })) => {
                let reason = error.to_string();
                self.refused.get_or_insert(error);
                Ok(Spoken::Nothing(reason))
            }
            Err(error) => Err(error),
        }
    }
}
