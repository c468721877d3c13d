//! Passes recordings through the parts of a model, so that each part can be measured separately:
//!
//! | name | path | loss |
//! |---|---|---|
//! | `original` | the recording | none |
//! | `dvae` | mel, codes, mel, and audio by Griffin-Lim | what codes cannot represent; Griffin-Lim itself sounds metallic |
//! | `decoder` | codes, the GPT's states over them and the text, the decoder | the loss of the codes, and that of the decoder |
//!
//! The difference between `decoder` and `speak` is the GPT's own choice of codes: `evaluate` measures that.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::evaluate::html::{Cell, Row};
use crate::evaluate::listener::Listener;
use crate::evaluate::measures::{Figures, Measures, Meter};
use crate::evaluate::texts::{recoverable, similarity};
use crate::job_control::JobControl;
use crate::model::Model;
use crate::stages::codes::Encoder;
use myxtts_data::audio::{self, Clip, wav};
use myxtts_data::mel::{FrontEnd, MelExtractor, MelInverter};
use myxtts_model::weights::{ModelFolder, Reading};
use myxtts_run::durable::{self, DurableError};
use myxtts_run::seed::Seed;
use myxtts_speak::{Fit, Quality, SpeakError, Synthesizer, Voice, prepare_reference};
use myxtts_text::Cleaner;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The paths of a recording, in the order of the module's table. Each has a folder of its name.
pub const PATHS: [&str; 3] = ["original", "dvae", "decoder"];

/// Why recordings could not be resynthesised.
#[derive(Debug, thiserror::Error)]
pub enum ResynthesizeError {
    /// The DVAE cannot be opened or fails.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The GPT or the decoder cannot be opened or fails.
    #[error(transparent)]
    Voice(#[from] SpeakError),
    /// An audio file cannot be written.
    #[error(transparent)]
    Disk(#[from] DurableError),
    /// The model has no DVAE.
    #[error(
        "{} has no DVAE, which computes the codes: import the model again with its dvae.pth",
        path.display()
    )]
    NoDvae {
        /// The model folder.
        path: PathBuf,
    },
}

/// A recording to resynthesise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Name of the recording, which becomes a file name.
    pub id: String,
    /// Transcript.
    pub text: String,
    /// Its language code.
    pub language: String,
    /// The audio file.
    pub sound: PathBuf,
    /// The recording that conditions the voice; `None` uses the recording itself.
    pub reference: Option<PathBuf>,
}

/// One recording and its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResynthesizedRecording {
    /// Name of the recording.
    pub id: String,
    /// Transcript.
    pub text: String,
    /// Number of its codes.
    pub codes: usize,
    /// How well the GPT predicts the codes: cross-entropy in nats, and accuracy. `None` if the model has no GPT.
    pub fit: Option<Fit>,
    /// Measures of each path. The original has no distances, since it would be compared with itself.
    pub ways: BTreeMap<String, Measures>,
    /// Why the recording, or its last path, failed.
    pub error: Option<String>,
}

/// The results of all recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resynthesis {
    /// Metrics of each path over all recordings.
    pub ways: BTreeMap<String, Figures>,
    /// Mean cross-entropy of all codes under the GPT, in nats, and its top-1 accuracy.
    pub fit: Option<Fit>,
    /// Number of recordings with an error.
    pub failed: usize,
    /// Results in the order of the recordings.
    pub items: Vec<ResynthesizedRecording>,
}

impl Resynthesis {
    /// The paths that were measured, in their order, with their metrics.
    pub fn figures(&self) -> Vec<(&'static str, &Figures)> {
        PATHS.into_iter().filter_map(|way| Some((way, self.ways.get(way)?))).collect()
    }

    /// A row of the HTML page for each recording, with a cell for each path.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let mut rows = Vec::with_capacity(self.items.len());
        for ResynthesizedRecording { id, text, error, ways, .. } in &self.items {
            let cell = |way: &str| {
                let measures = ways.get(way)?;
                Some(Cell { file: format!("{way}/{id}.wav"), measures: Some(measures) })
            };
            let cells = self.figures().into_iter().map(|(way, _)| cell(way)).collect();
            rows.push(Row { id, text, note: error.as_deref(), cells });
        }
        rows
    }
}

/// The parts of a model that recordings pass through.
pub struct Resynthesizer {
    dvae: Encoder,
    inverter: MelInverter,
    extractor: MelExtractor,
    /// `None` if the model has only a DVAE so far.
    synthesizer: Option<Synthesizer>,
    reading: Option<Reading>,
    meter: Meter,
}

impl Resynthesizer {
    /// Opens a model folder. Without `cleaner`, texts are cleaned as in training.
    pub fn open(
        path: &Path,
        machine: ComputeDevice,
        cleaner: Option<Cleaner>,
    ) -> Result<Resynthesizer, ResynthesizeError> {
        let folder = ModelFolder::open(path).map_err(TrainError::from)?;
        let model = Model::open(path)?;
        if !model.has(crate::model::DVAE) {
            return Err(ResynthesizeError::NoDvae { path: path.to_owned() });
        }
        let synthesizer = match (model.has(crate::model::GPT), cleaner) {
            (false, _) => None,
            (true, None) => Some(Synthesizer::open(&folder, machine.device)?),
            (true, Some(cleaner)) => Some(Synthesizer::open(&folder, machine.device)?.with_cleaner(cleaner)),
        };
        Ok(Resynthesizer {
            dvae: Encoder::new(&model, machine)?,
            inverter: MelInverter::new(),
            extractor: MelExtractor::new(FrontEnd::Dvae),
            synthesizer,
            reading: folder.manifest().reading.clone(),
            meter: Meter::new(),
        })
    }

    /// Whether the model has a decoder; without one the last path is left out.
    pub fn has_decoder(&self) -> bool {
        self.synthesizer.as_ref().is_some_and(|model| model.quality() == Quality::Decoded)
    }

    /// The synthesiser, to encode references with; `None` if the model has no GPT yet.
    pub fn synthesizer(&mut self) -> Option<&mut Synthesizer> {
        self.synthesizer.as_mut()
    }

    /// A recording preprocessed as in training, at the sample rate of both of the GPT's front-ends.
    fn prepare_reference(&self, clip: &Clip) -> Vec<f32> {
        let (trim, loudness) = self.reading.as_ref().map_or((None, None), |r| (r.trim_db, r.loudness_lufs));
        prepare_reference(clip, trim, loudness)
    }

    /// The codes of a recording, and the audio that the DVAE reconstructs from them.
    pub fn through_dvae(&mut self, recording: &Clip) -> Result<(Vec<i32>, Clip), TrainError> {
        let (front, samples) = (FrontEnd::Dvae, self.prepare_reference(recording));
        let mut mel = Vec::new();
        self.extractor.compute(&samples, &mut mel);
        let codes = self.dvae.codes(&mel)?;
        let mut made = self.dvae.mels(&codes)?;
        // A code covers four frames, so the lengths can differ.
        made.truncate(mel.len());
        Ok((codes, Clip { samples: self.inverter.invert(&made), sample_rate: front.sample_rate() }))
    }

    /// Resynthesises recordings, writes `WAY/ID.wav` below `folder` for each path, and measures them. The voice is
    /// conditioned on the recording's reference, else on `voice`, else on the recording itself. A recording that cannot be
    /// used is reported and counted.
    pub fn pass(
        &mut self,
        recordings: &[Recording],
        voice: Option<&Voice>,
        folder: &Path,
        mut listener: Option<&mut Listener>,
        JobControl { progress, stop }: JobControl<'_>,
        seed: u64,
    ) -> Result<Resynthesis, ResynthesizeError> {
        let ways = if self.has_decoder() { &PATHS[..] } else { &PATHS[..2] };
        for way in ways {
            durable::create_folder(&durable::OsDisk, &folder.join(way))?;
        }
        let mut items: Vec<ResynthesizedRecording> = Vec::with_capacity(recordings.len());
        let mut said = false;
        progress.start("resynthesis", recordings.len() as u64);
        for recording in recordings {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let item = self.one(recording, voice, folder, listener.as_deref_mut());
            let item = item.inspect_err(|_| progress.finish())?;
            if let Some(error) = &item.error {
                progress.say(&format!("{}: {error}", item.id));
            }
            if let Some(error) = listener.as_deref().and_then(Listener::failed).filter(|_| !said) {
                progress
                    .say(&format!("{error}; the recogniser is no longer used, so there are no error rates"));
                said = true;
            }
            items.push(item);
            progress.advance(1);
        }
        progress.finish();
        if said {
            let measures = items.iter_mut().flat_map(|item| item.ways.values_mut());
            measures.for_each(|measures| measures.heard = None);
        }
        let figures = |way: &&str| {
            let measures = items.iter().filter_map(|item| item.ways.get(*way));
            ((*way).to_owned(), Figures::of(measures, Seed::new(seed).derive(way)))
        };
        let fits: Vec<(f64, Fit)> =
            items.iter().filter_map(|item| Some((item.codes as f64 + 1.0, item.fit?))).collect();
        let codes: f64 = fits.iter().map(|(codes, _)| codes).sum();
        let mean = |of: fn(&Fit) -> f64| fits.iter().map(|(codes, fit)| codes * of(fit)).sum::<f64>() / codes;
        Ok(Resynthesis {
            ways: ways.iter().map(figures).collect(),
            fit: (codes > 0.0)
                .then(|| Fit { loss: mean(|fit| fit.loss), accuracy: mean(|fit| fit.accuracy) }),
            failed: items.iter().filter(|item| item.error.is_some()).count(),
            items,
        })
    }

    fn one(
        &mut self,
        recording: &Recording,
        voice: Option<&Voice>,
        folder: &Path,
        mut listener: Option<&mut Listener>,
    ) -> Result<ResynthesizedRecording, ResynthesizeError> {
        let Recording { id, text, language, sound, reference } = recording;
        let mut passed = ResynthesizedRecording {
            id: id.clone(),
            text: text.clone(),
            codes: 0,
            fit: None,
            ways: BTreeMap::new(),
            error: None,
        };
        let original = match audio::decode(sound) {
            Ok(decoded) => decoded.clip,
            Err(error) => {
                passed.error = Some(error.to_string());
                return Ok(passed);
            }
        };
        let other = match reference {
            Some(path) => match audio::decode(path) {
                Ok(decoded) => Some(decoded.clip),
                Err(error) => {
                    passed.error = Some(error.to_string());
                    return Ok(passed);
                }
            },
            None => None,
        };
        let heard = match (&mut self.synthesizer, voice) {
            (None, _) => Ok(None),
            (Some(_), Some(voice)) if other.is_none() => Ok(Some(voice.clone())),
            (Some(own), _) => {
                recoverable(own.encode_voice(std::slice::from_ref(other.as_ref().unwrap_or(&original))))?
                    .map(Some)
            }
        };
        let heard = match heard {
            Ok(heard) => heard,
            Err(error) => {
                passed.error = Some(error);
                return Ok(passed);
            }
        };
        let mut keep = |this: &mut Self, way: &str, clip: &Clip| -> Result<Measures, ResynthesizeError> {
            let path = folder.join(way).join(format!("{id}.wav"));
            durable::write(&path, &wav::encode_pcm16(&clip.samples, clip.sample_rate))?;
            let reference = (way != PATHS[0]).then_some(&original);
            let mut measures = this.meter.measure(clip, reference);
            measures.similarity =
                this.synthesizer.as_mut().and_then(|own| similarity(own, clip, heard.as_ref()));
            measures.heard = listener.as_deref_mut().and_then(|listener| match measures.flaws.silent {
                true => Some(listener.silence(text, language)),
                false => listener.transcribe(&path, text, language),
            });
            Ok(measures)
        };
        let (codes, made) = self.through_dvae(&original)?;
        passed.codes = codes.len();
        passed.ways.insert(PATHS[0].to_owned(), keep(self, PATHS[0], &original)?);
        passed.ways.insert(PATHS[1].to_owned(), keep(self, PATHS[1], &made)?);
        let decodes = self.has_decoder();
        let (Some(own), Some(heard)) = (self.synthesizer.as_mut().filter(|_| decodes), &heard) else {
            return Ok(passed);
        };
        match recoverable(own.speak_codes(text, language, heard, &codes))? {
            Ok((said, fit)) => {
                let clip = Clip { samples: said.samples, sample_rate: said.rate };
                passed.fit = Some(fit);
                passed.ways.insert(PATHS[2].to_owned(), keep(self, PATHS[2], &clip)?);
            }
            Err(error) => passed.error = Some(error),
        }
        Ok(passed)
    }
}
