//! [`Speaker`] for an opened model.

use crate::greeting;
use crate::limits::UPLOAD_SECONDS;
use crate::metrics::Metrics;
use crate::queue::Jobs;
use crate::scheduler::{self, Scheduler};
use crate::speaker::{EncodedVoice, Speaker, SpeakerError, SpeakerFacts, VoiceDetails, VoiceStore};
use myxtts_data::audio::{self, Clip};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_demo as demo;
use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_run::durable::OsDisk;
use myxtts_run::procfs;
use myxtts_speak::reference::{Reference, ReferenceReport};
use myxtts_speak::voices::{StoredVoice, VoiceError, Voices, all_names, find_stored};
use myxtts_speak::{Decoding, SpeakError, SpeakOptions, Synthesizer, Voice};
use myxtts_tensor::Device;
use myxtts_tensor::cuda::Cuda;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the default voice: a stored voice of this name, else a speaker of the run, else the first voice.
pub const DEFAULT_VOICE: &str = "default";

/// Default number of simultaneous utterances. More than a CPU can speak in real time would all be late.
const SLOTS_ON_CPU: usize = 8;
const SLOTS_ON_GPU: usize = 64;

/// An opened model that serves requests.
pub struct ModelSpeaker {
    pub(crate) synthesizer: Synthesizer,
    folder: Arc<ModelFolder>,
    voices: Voices,
    /// A speaker of the model's run, for a model without stored voices.
    run_voice: Option<Voice>,
    gauge: MemoryGauge,
}

/// The voices of a model, for listing and removing.
pub struct ModelVoices {
    folder: Arc<ModelFolder>,
    voices: Voices,
    has_run_voice: bool,
}

impl ModelVoices {
    /// The voices of a model; including [`DEFAULT_VOICE`] if a speaker of its run is used.
    pub fn new(folder: Arc<ModelFolder>, has_run_voice: bool) -> ModelVoices {
        ModelVoices { voices: Voices::from_folder(&folder), folder, has_run_voice }
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
        self.voices.remove(&OsDisk, name)
    }

    fn details(&self, name: &str) -> Result<Option<VoiceDetails>, VoiceError> {
        let kept = self.voices.own(name)?;
        Ok(kept.map(|kept| VoiceDetails { seconds: kept.seconds, report: kept.report }))
    }
}

impl ModelSpeaker {
    /// Opens a model and encodes the recordings of a speaker of its run, if any. `slots` utterances are spoken at once;
    /// `None` chooses by device.
    pub fn open(
        folder: Arc<ModelFolder>,
        device: Device,
        recordings: &[PathBuf],
        slots: Option<usize>,
    ) -> Result<ModelSpeaker, SpeakError> {
        let default = if device == Device::Cpu { SLOTS_ON_CPU } else { SLOTS_ON_GPU };
        let decoding = Decoding::Continuous { slots: slots.unwrap_or(default) };
        let gauge = MemoryGauge::start(device);
        let mut synthesizer = Synthesizer::open_for(&folder, device, decoding)?;
        let references =
            recordings.iter().map(|path| Reference::read(path)).collect::<Result<Vec<_>, _>>()?;
        let run_voice = match &references[..] {
            [] => None,
            references => Some(synthesizer.encode_references(references)?),
        };
        Ok(ModelSpeaker { synthesizer, voices: Voices::from_folder(&folder), folder, run_voice, gauge })
    }

    /// Speaks a first text, so that everything that is built on first use exists before the first client. Returns the text,
    /// or an error if the model can say nothing at all.
    pub fn greet(&mut self) -> Result<String, SpeakError> {
        self.synthesizer.prepare_streaming()?;
        let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
        let voice = self.synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }])?;
        let voice = Arc::new(voice);
        let options = SpeakOptions { retries: 0, ..self.synthesizer.default_sampling().into() };
        let vocabulary = self.folder.text(VOCABULARY)?.unwrap_or_default();
        let tokenizer = Tokenizer::from_bytes(&vocabulary, &self.folder.path().join(VOCABULARY))?;
        let mut refused = SpeakError::NothingToSay { text: String::new() };
        for (language, text) in greeting::candidates(&tokenizer) {
            match scheduler::warm_up(&mut self.synthesizer, &text, &language, &voice, &options) {
                Ok(()) => return Ok(text),
                Err(
                    error @ (SpeakError::UnknownLetters { .. }
                    | SpeakError::NothingToSay { .. }
                    | SpeakError::Tokenizer(_)),
                ) => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// Finds a voice by name, or a mix.
    pub(crate) fn voice(&self, named: &str) -> Result<Voice, SpeakError> {
        let found = find_stored(&self.folder, named);
        if named != DEFAULT_VOICE || !matches!(found, Err(SpeakError::Voice(VoiceError::Unknown { .. }))) {
            return found;
        }
        if let Some(voice) = &self.run_voice {
            return Ok(voice.clone());
        }
        // Voices of other models are skipped.
        all_names(&self.folder)?
            .iter()
            .find_map(|name| find_stored(&self.folder, name).ok())
            .map_or(found, Ok)
    }

    /// Encodes a voice from an uploaded recording and stores it.
    pub(crate) fn encode_voice(
        &mut self,
        name: &str,
        recording: &Path,
    ) -> Result<EncodedVoice, SpeakerError> {
        // The path on the server's disk must not reach the client.
        let path = recording.display().to_string();
        let unusable = |error: &dyn std::fmt::Display| {
            let message = error.to_string().replace(&path, "the recording");
            refused("audio_sample", "invalid_audio", message)
        };
        let info = audio::probe(recording).map_err(|error| unusable(&error))?;
        let seconds = info.declared_frames.map(|frames| frames as f64 / f64::from(info.sample_rate));
        if let Some(seconds) = seconds.filter(|seconds| *seconds > UPLOAD_SECONDS) {
            let message =
                format!("the recording has {seconds:.0} seconds; the maximum is {UPLOAD_SECONDS:.0}");
            return Err(refused("audio_sample", "invalid_audio", message));
        }
        let mut reference = Reference::read(recording).map_err(|error| unusable(&error))?;
        reference.path = PathBuf::from("upload");
        let references = [reference];
        let voice = self.synthesizer.encode_references(&references).map_err(|error| unusable(&error))?;
        let parts = self.synthesizer.speaker_segments(&references).map_err(|error| unusable(&error))?;
        let report = ReferenceReport::new(&references, &parts);
        let encoded = EncodedVoice {
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
        match self.voices.add(&OsDisk, &stored, false) {
            Ok(_) => Ok(encoded),
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
        self.gauge.allocated()
    }

    fn warm_up(&mut self) -> Result<(), SpeakError> {
        self.greet().map(|_| ())
    }

    fn work(&mut self, jobs: &Jobs, metrics: &Metrics) -> Result<(), SpeakError> {
        Scheduler::new(self, metrics).run(jobs)
    }
}

/// Measures memory allocated since its creation: of the whole GPU, or of this process for the CPU.
struct MemoryGauge {
    cuda: Option<Cuda>,
    before: Option<u64>,
}

impl MemoryGauge {
    fn start(device: Device) -> MemoryGauge {
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
        procfs::bytes(&status, "VmRSS")
    }

    fn allocated(&self) -> Option<u64> {
        Some(self.used()?.saturating_sub(self.before?))
    }
}

pub(crate) fn refused(param: &'static str, code: &'static str, message: String) -> SpeakerError {
    SpeakerError::Refused { param, code, message }
}

/// Converts an error for the client, without paths of the server.
pub(crate) fn client_error(error: &SpeakError) -> SpeakerError {
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
