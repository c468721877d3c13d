//! The opened model as the one who speaks.

use crate::limits::UPLOAD_SECONDS;
use crate::metrics::Metrics;
use crate::queue::Jobs;
use crate::scheduler::{self, Scheduler};
use crate::speaker::{HeardVoice, Speaker, SpeakerError, SpeakerFacts, VoiceDetails, VoiceStore};
use myxtts_data::audio::{self, Clip};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_demo as demo;
use myxtts_model::weights::ModelFolder;
use myxtts_run::durable::Os;
use myxtts_speak::reference::{Reference, ReferenceReport};
use myxtts_speak::voices::{StoredVoice, VoiceError, Voices, all_names, kept};
use myxtts_speak::{Decoding, SpeakError, SpeakOptions, Synthesizer, Voice};
use myxtts_tensor::Device;
use myxtts_tensor::cuda::Cuda;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What means the first voice there is, or a speaker of the run, unless a voice is kept under this name.
pub const DEFAULT_VOICE: &str = "default";

/// Utterances at once where nobody says how many. More than a processor can say in time would all be late.
const SLOTS_ON_CPU: usize = 8;
const SLOTS_ON_GPU: usize = 64;

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
    pub(crate) synthesizer: Synthesizer,
    folder: Arc<ModelFolder>,
    voices: Voices,
    /// A speaker of the model's run, where it has no voice of its own.
    run_voice: Option<Voice>,
    gauge: MemoryGauge,
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
    /// `slots` utterances are spoken at once; none for as many as suit the device.
    pub fn open(
        folder: Arc<ModelFolder>,
        device: Device,
        recordings: &[PathBuf],
        slots: Option<usize>,
    ) -> Result<ModelSpeaker, SpeakError> {
        let usual = if device == Device::Cpu { SLOTS_ON_CPU } else { SLOTS_ON_GPU };
        let decoding = Decoding::Joined { at_once: slots.unwrap_or(usual) };
        let gauge = MemoryGauge::begin(device);
        let mut synthesizer = Synthesizer::open_for(&folder, device, decoding)?;
        let references =
            recordings.iter().map(|path| Reference::read(path)).collect::<Result<Vec<_>, _>>()?;
        let run_voice = match &references[..] {
            [] => None,
            references => Some(synthesizer.hear_references(references)?),
        };
        Ok(ModelSpeaker { synthesizer, voices: Voices::of(&folder), folder, run_voice, gauge })
    }

    /// A voice by its name, or a mix.
    pub(crate) fn voice(&self, named: &str) -> Result<Voice, SpeakError> {
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

    /// Hears a voice in an uploaded recording and keeps it.
    pub(crate) fn hear(&mut self, name: &str, recording: &Path) -> Result<HeardVoice, SpeakerError> {
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

    fn memory_bytes(&self) -> Option<u64> {
        self.gauge.taken()
    }

    fn warm_up(&mut self) -> Result<(), SpeakError> {
        self.synthesizer.prepare_streaming()?;
        let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
        let voice = self.synthesizer.hear(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }])?;
        let voice = Arc::new(voice);
        let options = SpeakOptions { further_tries: 0, ..self.synthesizer.usual_options().into() };
        let languages = self.synthesizer.languages();
        for (language, text) in GREETINGS.iter().filter(|(code, _)| languages.iter().any(|one| one == code)) {
            match scheduler::warm_up(&mut self.synthesizer, text, language, &voice, &options) {
                Err(SpeakError::UnknownLetters { .. } | SpeakError::NothingToSay { .. }) => continue,
                said => return said,
            }
        }
        // A model of other languages than these: everything but its first words is warm.
        Ok(())
    }

    fn work(&mut self, jobs: &Jobs, metrics: &Metrics) -> Result<(), SpeakError> {
        Scheduler::new(self, metrics).run(jobs)
    }
}

/// What was taken, since it was begun, of the memory that models are in: a GPU's, by whomever, or this process's.
struct MemoryGauge {
    cuda: Option<Cuda>,
    before: Option<u64>,
}

impl MemoryGauge {
    fn begin(device: Device) -> MemoryGauge {
        let cuda = match device {
            Device::Cpu => None,
            Device::Cuda(ordinal) => Cuda::open(ordinal, &Default::default()).ok(),
        };
        let mut gauge = MemoryGauge { cuda, before: None };
        gauge.before = gauge.used();
        gauge
    }

    fn used(&self) -> Option<u64> {
        if let Some(cuda) = &self.cuda {
            let (free, total) = cuda.memory().ok()?;
            return Some((total - free) as u64);
        }
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        kib.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
    }

    fn taken(&self) -> Option<u64> {
        Some(self.used()?.saturating_sub(self.before?))
    }
}

pub(crate) fn refused(param: &'static str, code: &'static str, message: String) -> SpeakerError {
    SpeakerError::Refused { param, code, message }
}

/// An error as a client is told it.
pub(crate) fn told(error: &SpeakError) -> SpeakerError {
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
