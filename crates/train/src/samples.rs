//! Speech samples during training: a few validation sentences, spoken with the current weights, with images of their mels.
//! The sentences and voices are the same every time, so that samples can be compared.
//!
//! | stage | sample |
//! |---|---|
//! | dvae | a recording encoded to codes and decoded again, by Griffin-Lim; the image has the recording above |
//! | gpt | text, by the decoder of the model, else by the DVAE and Griffin-Lim |
//! | decoder | text, by the decoder in training |
//!
//! Speaking has its own weights, programs and random streams. It takes only a copy of the weights from training.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::evaluate::measures::{Measures, Meter};
use crate::evaluate::texts;
use crate::model::{Model, Stacked};
use crate::overlay::floats;
use crate::stages::codes::Encoder;
use crate::stages::{Stage, StageKind};
use myxtts_data::audio::{Clip, Resampler, decode, wav};
use myxtts_data::mel::picture::{Mel, mel_png, mels_png};
use myxtts_data::mel::{FrontEnd, MelExtractor, MelInverter};
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_data::utterance::Utterance;
use myxtts_model::SamplingOptions;
use myxtts_run::memory_size::memory_size;
use myxtts_speak::{SpeakError, Synthesizer};
use myxtts_tensor::Device;
use myxtts_text::Cleaner;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of sentences that are spoken: enough to judge the model, few enough to delay training little.
pub const SPOKEN: usize = 3;

/// A validation sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Id of the utterance, as a file name.
    pub name: String,
    /// Transcript as in the corpus, uncleaned.
    pub text: String,
    /// Language code.
    pub language: String,
    /// Index of the record of its recording.
    pub record: u32,
    /// Its recording, which samples are compared with.
    pub recording: PathBuf,
    /// Another recording of the same speaker, which conditions the voice.
    pub reference: PathBuf,
}

/// Chooses the sentences of a run: one of each speaker before a second of any.
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
        // Without another recording of the speaker, the sentence's own recording is the reference.
        let other = known.iter().find(|other| other.speaker == utterance.speaker);
        Sentence {
            name: texts::unique_name(&utterance.id, &mut taken),
            text: utterance.text.clone(),
            language: utterance.language.clone(),
            record,
            recording: utterance.audio.clone(),
            reference: other.map_or(&utterance.audio, |other| &other.audio).clone(),
        }
    };
    turns.into_iter().take(count).map(sentence).collect()
}

/// Why a sample could not be spoken.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The weights cannot be copied from the stage, its records cannot be read, or the files cannot be written.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The synthesiser failed.
    #[error(transparent)]
    Voice(#[from] SpeakError),
    /// Too little memory in addition to training.
    #[error(
        "speaking needs about {} in addition to the {} of training, and training.memory_limit is {}",
        memory_size(*need),
        memory_size(*held),
        memory_size(*limit)
    )]
    Memory {
        /// Memory that speaking needs, in bytes.
        need: u64,
        /// Memory that training uses, in bytes.
        held: u64,
        /// The limit of both, in bytes.
        limit: u64,
    },
    /// The model produced no code.
    #[error("the model does not produce speech yet")]
    Nothing,
    /// The audio has NaN or Inf samples.
    #[error("its audio has NaN or Inf samples")]
    NotNumbers,
}

/// A spoken sentence.
pub(crate) struct Sample {
    pub wav: Vec<u8>,
    pub png: Vec<u8>,
    /// Measures of the speech, compared with the recording. The caller fills in recognition.
    pub measures: Measures,
    /// Why the recording cannot be read. The sample is then not compared with it.
    pub unread: Option<String>,
}

/// Makes samples of speech.
struct SampleMaker {
    meter: Meter,
}

impl SampleMaker {
    fn new() -> SampleMaker {
        SampleMaker { meter: Meter::new() }
    }

    fn make(
        &mut self,
        sentence: &Sentence,
        speech: &Clip,
        draw: impl FnOnce() -> Vec<u8>,
    ) -> Result<Sample, SampleError> {
        if speech.samples.is_empty() {
            return Err(SampleError::Nothing);
        }
        if speech.samples.iter().any(|sample| !sample.is_finite()) {
            return Err(SampleError::NotNumbers);
        }
        let (recording, unread) = match decode(&sentence.recording) {
            Ok(decoded) => (Some(decoded.clip), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let measures = self.meter.measure(speech, recording.as_ref());
        let wav = wav::encode_pcm16(&speech.samples, speech.sample_rate);
        Ok(Sample { wav, png: draw(), measures, unread })
    }
}

/// One sentence with its sample or error.
pub(crate) type Outcome<'a> = (&'a Sentence, Result<Sample, SampleError>);

/// What is spoken, and with which model.
pub struct Samples<'a> {
    /// The sentences.
    pub sentences: &'a [Sentence],
    /// The records of the sentences.
    pub source: &'a dyn RecordSource,
    /// The finished parts of the model.
    pub model: &'a Model,
    /// The device to speak on.
    pub machine: ComputeDevice,
    /// The cleaner of the texts.
    pub cleaner: Cleaner,
    /// Limit of device memory, in bytes, for training and speaking together.
    pub memory_limit: Option<u64>,
}

impl Samples<'_> {
    /// Speaks the sentences with a stage's current weights, or their averages if those are kept.
    pub(crate) fn of_stage(
        &self,
        stage: &dyn Stage,
        average: bool,
        stop: &AtomicBool,
    ) -> Result<Vec<Outcome<'_>>, SampleError> {
        let mut over = Model::default();
        stage.finish(&mut over, average)?;
        if stage.kind() == StageKind::Dvae {
            return self.reconstruct(&over, stop);
        }
        let whole = Stacked { over, under: self.model };
        self.check_memory(stage, &whole)?;
        self.speak(&whole, stop)
    }

    /// Speaks the sentences with the finished model.
    pub(crate) fn of_model(&self, stop: &AtomicBool) -> Result<Vec<Outcome<'_>>, SampleError> {
        self.speak(&Stacked { over: Model::default(), under: self.model }, stop)
    }

    /// Checks the memory limit, which includes the memory of training.
    fn check_memory(&self, stage: &dyn Stage, model: &Stacked<'_>) -> Result<(), SampleError> {
        let Some(limit) = self.memory_limit.filter(|_| self.machine.device != Device::Cpu) else {
            return Ok(());
        };
        // Keys, values and activations take about a quarter of the weights.
        let (need, held) = (model.bytes() * 5 / 4, stage.engine().memory().total() as u64);
        if need + held <= limit {
            return Ok(());
        }
        Err(SampleError::Memory { need, held, limit })
    }

    fn speak(&self, model: &Stacked<'_>, stop: &AtomicBool) -> Result<Vec<Outcome<'_>>, SampleError> {
        let mut synthesizer =
            Synthesizer::from_source(model, self.machine.device)?.with_cleaner(self.cleaner);
        let mut maker = SampleMaker::new();
        let mut speak = |sentence: &Sentence| -> Result<Sample, SampleError> {
            let reference =
                synthesizer.encode_voice(&[decode(&sentence.reference).map_err(SpeakError::from)?.clip])?;
            // A low temperature, and always the same seed: only the model changes between samples.
            let options =
                SamplingOptions { repetition_penalty: 1.0, temperature: 0.5, ..SamplingOptions::default() };
            let said = synthesizer.speak(&sentence.text, &sentence.language, &reference, &options)?;
            let speech = Clip { samples: said.samples, sample_rate: said.rate };
            let mut sample = maker.make(sentence, &speech, || {
                let front = FrontEnd::Dvae;
                let samples = Resampler::new(said.rate, front.sample_rate()).resample(&speech.samples);
                let mut mel = Vec::new();
                let frames = MelExtractor::new(front).compute(&samples, &mut mel);
                mel_png(frames, front.channels(), &mel)
            })?;
            sample.measures.similarity = texts::similarity(&mut synthesizer, &speech, Some(&reference));
            Ok(sample)
        };
        let wanted = self.sentences.iter().take_while(|_| !stop.load(Ordering::Relaxed));
        Ok(wanted.map(|sentence| (sentence, speak(sentence))).collect())
    }

    /// The recordings of the sentences, encoded to codes and decoded again.
    fn reconstruct(&self, model: &Model, stop: &AtomicBool) -> Result<Vec<Outcome<'_>>, SampleError> {
        let mut dvae = Encoder::new(model, self.machine)?;
        let (inverter, bands) = (MelInverter::new(), FrontEnd::Dvae.channels());
        let mut maker = SampleMaker::new();
        let mut rebuild = |sentence: &Sentence| -> Result<Sample, SampleError> {
            let real = floats(self.source, sentence.record as usize, DVAE_MEL).map_err(TrainError::from)?;
            let codes = dvae.codes(&real)?;
            let made = dvae.mels(&codes)?;
            // A code covers four frames, so the lengths can differ.
            let frames = real.len().min(made.len()) / bands;
            let [real, made] = [&real, &made].map(|mel| &mel[..frames * bands]);
            let speech = Clip { samples: inverter.invert(made), sample_rate: FrontEnd::Dvae.sample_rate() };
            maker.make(sentence, &speech, || {
                mels_png(frames, bands, &[real, made].map(|values| Mel { values, valid: frames }))
            })
        };
        let wanted = self.sentences.iter().take_while(|_| !stop.load(Ordering::Relaxed));
        Ok(wanted.map(|sentence| (sentence, rebuild(sentence))).collect())
    }
}
