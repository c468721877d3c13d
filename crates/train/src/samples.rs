//! What a run sounds like on the way: a few sentences that were held out, spoken from the weights as they are, with pictures
//! of their mels. The same sentences in the same voices every time, so that they can be compared.
//!
//! | stage | what is heard |
//! |---|---|
//! | dvae | a recording made into codes and back, through Griffin-Lim; the picture has the recording above |
//! | gpt | text, through the decoder the model has, else through the DVAE and Griffin-Lim |
//! | decoder | text, through the decoder in training |
//!
//! Speaking has weights, programs and draws of its own. It takes nothing from the training but a copy of the weights.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::model::{Model, Stacked};
use crate::overlay::floats;
use crate::stages::codes::Encoder;
use crate::stages::{Stage, StageKind};
use myxtts_data::audio::{Resampler, decode, wav};
use myxtts_data::mel::picture::{Mel, mel_png, mels_png};
use myxtts_data::mel::{FrontEnd, MelExtractor, MelInverter};
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_data::utterance::Utterance;
use myxtts_model::SamplingOptions;
use myxtts_speak::{SpeakError, Synthesizer};
use myxtts_tensor::Device;
use myxtts_text::Cleaner;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sentences that are spoken: enough to hear, few enough to wait for.
pub const SPOKEN: usize = 3;

/// Letters of an id that become a file's name.
const NAME: usize = 80;

/// A sentence that was held out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Its id as a file can be called.
    pub name: String,
    /// What is said.
    pub text: String,
    /// Its language.
    pub language: String,
    /// Its recording.
    pub record: u32,
    /// Another recording of the same speaker, which the voice is heard in.
    pub reference: PathBuf,
}

/// The sentences of a run: of each speaker one before of any speaker two.
pub fn choose(held_out: &[(u32, &Utterance)], known: &[&Utterance], count: usize) -> Vec<Sentence> {
    let mut of_speaker: HashMap<&str, usize> = HashMap::new();
    let mut turns: Vec<(usize, u32, &Utterance)> = Vec::new();
    for &(record, utterance) in held_out {
        let turn = of_speaker.entry(&utterance.speaker).or_default();
        turns.push((*turn, record, utterance));
        *turn += 1;
    }
    turns.sort_by_key(|(turn, ..)| *turn);
    let mut taken = HashSet::new();
    let sentence = |(_, record, utterance): (usize, u32, &Utterance)| {
        // Where the speaker has no other recording, the sentence's own has to do.
        let other = known.iter().find(|other| other.speaker == utterance.speaker);
        Sentence {
            name: unique_name(&utterance.id, &mut taken),
            text: utterance.text.clone(),
            language: utterance.language.clone(),
            record,
            reference: other.map_or(&utterance.audio, |other| &other.audio).clone(),
        }
    };
    turns.into_iter().take(count).map(sentence).collect()
}

/// A file's name for an id, that no other has.
pub(crate) fn unique_name(id: &str, taken: &mut HashSet<String>) -> String {
    let mut name = file_name(id);
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// Ids may hold what no file may be called by.
fn file_name(id: &str) -> String {
    let letter = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '_' };
    id.chars().take(NAME).map(letter).collect()
}

/// Why nothing was heard.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The weights could not be taken from the stage, its records not be read, or the files not be written.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The voice could not speak.
    #[error(transparent)]
    Voice(#[from] SpeakError),
    /// Too little memory beside the training.
    #[error(
        "speaking needs about {need:.1} GiB beside the {held:.1} GiB of training, and training.memory_limit is {limit:.1} GiB"
    )]
    Memory {
        /// What speaking needs.
        need: f64,
        /// What training holds.
        held: f64,
        /// What may be held.
        limit: f64,
    },
    /// No code was said.
    #[error("the model says nothing yet")]
    Nothing,
    /// Samples that are no numbers.
    #[error("its sound is no numbers")]
    NotNumbers,
}

/// A sentence as it sounded.
pub(crate) struct Sample {
    pub wav: Vec<u8>,
    pub png: Vec<u8>,
    pub seconds: f64,
}

impl Sample {
    fn of(samples: &[f32], rate: u32, draw: impl FnOnce() -> Vec<u8>) -> Result<Sample, SampleError> {
        if samples.is_empty() {
            return Err(SampleError::Nothing);
        }
        if samples.iter().any(|sample| !sample.is_finite()) {
            return Err(SampleError::NotNumbers);
        }
        let seconds = samples.len() as f64 / f64::from(rate);
        Ok(Sample { wav: wav::encode_pcm16(samples, rate), png: draw(), seconds })
    }
}

/// One sentence, and what came of it.
pub(crate) type Outcome<'a> = (&'a Sentence, Result<Sample, SampleError>);

/// What is spoken, and by what.
pub struct Samples<'a> {
    /// The sentences.
    pub sentences: &'a [Sentence],
    /// Their records.
    pub source: &'a dyn RecordSource,
    /// The model as far as it is done.
    pub model: &'a Model,
    /// Where to speak.
    pub machine: ComputeDevice,
    /// How texts are read.
    pub cleaner: Cleaner,
    /// Device memory that may be used.
    pub memory_limit: Option<u64>,
}

impl Samples<'_> {
    /// The sentences from a stage's weights as they are, or their averages where those are kept.
    pub(crate) fn of_stage(
        &self,
        stage: &dyn Stage,
        average: bool,
        stop: &AtomicBool,
    ) -> Result<Vec<Outcome<'_>>, SampleError> {
        let mut over = Model::default();
        stage.finish(&mut over, average)?;
        if stage.kind() == StageKind::Dvae {
            return self.rebuilt(&over, stop);
        }
        let whole = Stacked { over, under: self.model };
        self.room(stage, &whole)?;
        self.spoken(&whole, stop)
    }

    /// The sentences from the model that is done.
    pub(crate) fn of_model(&self, stop: &AtomicBool) -> Result<Vec<Outcome<'_>>, SampleError> {
        self.spoken(&Stacked { over: Model::default(), under: self.model }, stop)
    }

    /// A limit on memory is one on all of it.
    fn room(&self, stage: &dyn Stage, model: &Stacked<'_>) -> Result<(), SampleError> {
        const GIB: f64 = (1u64 << 30) as f64;
        let Some(limit) = self.memory_limit.filter(|_| self.machine.device != Device::Cpu) else {
            return Ok(());
        };
        // Keys and values, and what programs compute in, are about a quarter of the weights.
        let (need, held) = (model.bytes() * 5 / 4, stage.engine().memory().total() as u64);
        if need + held <= limit {
            return Ok(());
        }
        let [need, held, limit] = [need, held, limit].map(|bytes| bytes as f64 / GIB);
        Err(SampleError::Memory { need, held, limit })
    }

    fn spoken(&self, model: &Stacked<'_>, stop: &AtomicBool) -> Result<Vec<Outcome<'_>>, SampleError> {
        let mut synthesizer =
            Synthesizer::from_source(model, self.machine.device)?.with_cleaner(self.cleaner);
        let mut speak = |sentence: &Sentence| -> Result<Sample, SampleError> {
            let reference =
                synthesizer.encode_voice(&[decode(&sentence.reference).map_err(SpeakError::from)?.clip])?;
            // Careful rather than lively, and always with the same draws: what changes is the model.
            let options =
                SamplingOptions { repetition_penalty: 1.0, temperature: 0.5, ..SamplingOptions::default() };
            let said = synthesizer.speak(&sentence.text, &sentence.language, &reference, &options)?;
            Sample::of(&said.samples, said.rate, || {
                let front = FrontEnd::Dvae;
                let samples = Resampler::new(said.rate, front.sample_rate()).resample(&said.samples);
                let mut mel = Vec::new();
                let frames = MelExtractor::new(front).compute(&samples, &mut mel);
                mel_png(frames, front.channels(), &mel)
            })
        };
        let wanted = self.sentences.iter().take_while(|_| !stop.load(Ordering::Relaxed));
        Ok(wanted.map(|sentence| (sentence, speak(sentence))).collect())
    }

    /// The recordings of the sentences, made into codes and back.
    fn rebuilt(&self, model: &Model, stop: &AtomicBool) -> Result<Vec<Outcome<'_>>, SampleError> {
        let mut dvae = Encoder::new(model, self.machine)?;
        let (inverter, bands) = (MelInverter::new(), FrontEnd::Dvae.channels());
        let mut rebuild = |sentence: &Sentence| -> Result<Sample, SampleError> {
            let real = floats(self.source, sentence.record as usize, DVAE_MEL).map_err(TrainError::from)?;
            let codes = dvae.codes(&real)?;
            let made = dvae.mels(&codes)?;
            // Codes stand for four frames each, so the ends need not meet.
            let frames = real.len().min(made.len()) / bands;
            let [real, made] = [&real, &made].map(|mel| &mel[..frames * bands]);
            Sample::of(&inverter.invert(made), FrontEnd::Dvae.sample_rate(), || {
                mels_png(frames, bands, &[real, made].map(|values| Mel { values, valid: frames }))
            })
        };
        let wanted = self.sentences.iter().take_while(|_| !stop.load(Ordering::Relaxed));
        Ok(wanted.map(|sentence| (sentence, rebuild(sentence))).collect())
    }
}
