//! An opened model, which encodes voices and speaks texts.
//!
//! | parts of the folder | waveform | rate |
//! |---|---|---|
//! | GPT, decoder, speaker encoder | by the decoder, from the GPT's latents | 24,000 Hz |
//! | GPT, DVAE | by inverting the DVAE's mels without a network: rough but intelligible | 22,050 Hz |

use crate::error::SpeakError;
use crate::proofread::Proofreader;
use crate::vocoder::{Quality, Vocoder};
use crate::weight_source::{TEXT_DROPOUT, WeightSource, fill, gpt_sizes};
use myxtts_data::audio::{Clip, Resampler};
use myxtts_data::features::preprocess;
use myxtts_data::mel::FrontEnd;
use myxtts_data::tokenizer::{Encoded, Tokenizer};
use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::{Generator, SamplingOptions};
use myxtts_tensor::{Device, Precision};
use myxtts_text::Cleaner;
use std::sync::Arc;

/// Models with fewer codes than this, half of XTTS's, have other sampling defaults.
const FEW_CODES: usize = 512;

/// Default guidance weight of models trained with text dropout.
const GUIDANCE: f32 = 1.0;

/// How codes are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decoding {
    /// In f32, one text after the other.
    #[default]
    Exact,
    /// In bf16, codes and waveform, sampling on the device, several texts at the same time. Exact where the device or the
    /// model's sizes do not support it.
    Fast {
        /// Texts decoded at the same time; fewer if the device's memory does not suffice.
        slots: usize,
    },
    /// As `Fast`, with continuous batching: texts join and leave while others are spoken ([`Synthesizer::join`]). On devices
    /// that cannot decode them together they take turns, in f32, with a second copy of the GPT's weights in memory.
    Continuous {
        /// Texts decoded at the same time; fewer if the device's memory does not suffice.
        slots: usize,
    },
}

/// Creates as many of the requested slots as memory allows.
fn make_slots(generator: &mut Generator, decoding: Decoding) -> Result<(), SpeakError> {
    let (mut slots, is_continuous) = match decoding {
        Decoding::Exact => return Ok(()),
        Decoding::Fast { slots } => (slots.max(1), false),
        Decoding::Continuous { slots } => (slots.max(1), true),
    };
    loop {
        let made = match is_continuous {
            true => generator.decode_in_slots(slots),
            false => generator.decode_together(slots),
        };
        match made {
            Err(myxtts_tensor::Error::OutOfMemory { .. }) if slots > 1 => slots /= 2,
            made => return made.map(|_| ()).map_err(SpeakError::from),
        }
    }
}

/// An opened model.
pub struct Synthesizer {
    /// Shared with the [`TokenBudget`](crate::TokenBudget)s, which count tokens while this speaks.
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) cleaner: Cleaner,
    pub(crate) trim_db: Option<f32>,
    pub(crate) loudness_lufs: Option<f64>,
    pub(crate) generator: Generator,
    pub(crate) vocoder: Vocoder,
    pub(crate) mel_stats: Vec<f32>,
    /// `None` for models without the classifier of codes (`training.code_token_weight`).
    pub(crate) proofreader: Option<Proofreader>,
}

/// Preprocesses a recording as in training, at the sample rate of the conditioning and the DVAE.
pub fn prepare_reference(clip: &Clip, trim_db: Option<f32>, loudness_lufs: Option<f64>) -> Vec<f32> {
    let rate = FrontEnd::Conditioning.sample_rate();
    let samples = Resampler::new(clip.sample_rate, rate).resample(&clip.samples);
    preprocess(&samples, trim_db, loudness_lufs)
}

impl Synthesizer {
    /// Opens a model folder and loads its weights onto a device.
    pub fn open(folder: &ModelFolder, device: Device) -> Result<Synthesizer, SpeakError> {
        Synthesizer::from_source(folder, device)
    }

    /// As [`Synthesizer::open`], with a decoding mode.
    pub fn open_for(
        folder: &ModelFolder,
        device: Device,
        decoding: Decoding,
    ) -> Result<Synthesizer, SpeakError> {
        Synthesizer::from_source_for(folder, device, decoding)
    }

    /// As [`Synthesizer::open`], from any source of weights.
    pub fn from_source(source: &dyn WeightSource, device: Device) -> Result<Synthesizer, SpeakError> {
        Synthesizer::from_source_for(source, device, Decoding::Exact)
    }

    fn from_source_for(
        source: &dyn WeightSource,
        device: Device,
        decoding: Decoding,
    ) -> Result<Synthesizer, SpeakError> {
        let vocabulary = source.vocabulary()?;
        let vocabulary = vocabulary.ok_or_else(|| SpeakError::unfit(source, "it has no vocab.json"))?;
        let tokenizer = Tokenizer::from_bytes(&vocabulary, &source.path().join(VOCABULARY))?;
        let sizes = gpt_sizes(source, &tokenizer)?;
        let mel_stats = source.tensor_f32("mel_stats")?;
        let usable = |stat: &f32| stat.is_finite() && *stat != 0.0;
        let mels = FrontEnd::Conditioning.channels();
        if sizes.conditioning.mels != mels || mel_stats.len() != mels || !mel_stats.iter().all(usable) {
            let what = format!(
                "its conditioning has {} mels and {} mel statistics; both must be {mels}, and no statistic may be 0",
                sizes.conditioning.mels,
                mel_stats.len()
            );
            return Err(SpeakError::unfit(source, &what));
        }
        // The smaller part first: if it is missing, nothing large has been allocated.
        let vocoder = match decoding {
            Decoding::Fast { .. } | Decoding::Continuous { .. } if device != Device::Cpu => {
                Vocoder::open_fast(source, device, &sizes)?
            }
            _ => Vocoder::open(source, device, &sizes, Precision::F32)?,
        };
        let guided = source.gpt_config().is_some_and(|gpt| gpt.get(TEXT_DROPOUT).is_some());
        let mut generator = match guided {
            true => Generator::guided(device, Precision::F32, &sizes)?,
            false => Generator::new(device, Precision::F32, &sizes)?,
        };
        make_slots(&mut generator, decoding)?;
        generator.fill(|one, out| fill(source, one, out))?;
        let reading = source.reading();
        let cleaner = match reading {
            Some(reading) => reading.cleaner.parse().map_err(|_| {
                SpeakError::unfit(
                    source,
                    &format!(
                        "it was trained with the text cleaner {:?}, which this program does not have",
                        reading.cleaner
                    ),
                )
            })?,
            None => Cleaner::Default,
        };
        let (trim_db, loudness_lufs) =
            reading.map_or((None, None), |reading| (reading.trim_db, reading.loudness_lufs));
        let tokenizer = Arc::new(tokenizer);
        let proofreader = Proofreader::load(source)?;
        Ok(Synthesizer {
            tokenizer,
            cleaner,
            trim_db,
            loudness_lufs,
            generator,
            vocoder,
            mel_stats,
            proofreader,
        })
    }

    /// Replaces the text cleaner the model was trained with.
    pub fn with_cleaner(self, cleaner: Cleaner) -> Synthesizer {
        Synthesizer { cleaner, ..self }
    }

    /// The text cleaner in use.
    pub fn cleaner(&self) -> Cleaner {
        self.cleaner
    }

    /// Preprocesses a recording as in training, at the conditioning's sample rate.
    pub fn prepare_reference(&self, clip: &Clip) -> Vec<f32> {
        prepare_reference(clip, self.trim_db, self.loudness_lufs)
    }

    /// Quality of the waveform, by the parts the model has.
    pub fn quality(&self) -> Quality {
        self.vocoder.quality()
    }

    /// Default sampling options, XTTS's for most models. A model with few codes repeats each of them in any sentence: with a
    /// repetition penalty it would rather stop. A model of little training speech is guided by its text and was measured with
    /// these settings.
    pub fn default_sampling(&self) -> SamplingOptions {
        let usual = SamplingOptions::default();
        let careful = SamplingOptions { repetition_penalty: 1.0, temperature: 0.5, ..usual.clone() };
        match self.generator.is_guided() {
            true => SamplingOptions { guidance: GUIDANCE, ..careful },
            false if self.generator.sizes().audio_vocabulary < FEW_CODES => careful,
            false => usual,
        }
    }

    /// Whether the model is on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.generator.is_on_gpu()
    }

    /// Languages the vocabulary has a token for.
    pub fn languages(&self) -> Vec<String> {
        self.tokenizer.languages()
    }

    /// Number of rows of a voice's conditioning.
    pub fn latents(&self) -> usize {
        self.generator.sizes().perceiver.latents
    }

    /// Channels of a voice: of a row of its conditioning, and of its speaker vector (0 without a decoder).
    pub fn voice_sizes(&self) -> (usize, usize) {
        (self.generator.sizes().width, self.vocoder.decoder_sizes().map_or(0, |sizes| sizes.speaker))
    }

    /// Bytes of the GPU's memory in use by all processes; `None` on the CPU.
    pub fn device_bytes(&self) -> Option<usize> {
        self.vocoder.device_bytes()
    }

    pub(crate) fn encode(&self, text: &str, language: &str) -> Result<Encoded, SpeakError> {
        let encoded = self.tokenizer.encode(text, language, self.cleaner)?;
        let mut spoken = encoded.cleaned.chars().filter(|c| c.is_alphanumeric()).peekable();
        if spoken.peek().is_none() {
            return Err(SpeakError::NothingToSay { text: text.to_owned() });
        }
        if spoken.all(|c| encoded.unknown.contains(&c)) {
            let (text, unknown) = (encoded.cleaned, encoded.unknown.iter().collect());
            return Err(SpeakError::UnknownLetters { text, unknown, languages: self.languages() });
        }
        Ok(encoded)
    }
}
