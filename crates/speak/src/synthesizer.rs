//! An opened model: hears a speaker once, and makes text sound.
//!
//! | the folder holds | sound | rate |
//! |---|---|---|
//! | GPT, decoder, speaker encoder | the decoder's, from the GPT's states | 24,000 Hz |
//! | GPT, DVAE | the DVAE's mels, turned into sound without a network: rough, but the words can be heard | 22,050 Hz |

use crate::error::SpeakError;
use crate::proofread::Proofreader;
use crate::sound::{Quality, Sound};
use crate::source::{Source, TEXT_DROPOUT, fill, gpt_sizes};
use myxtts_data::audio::{Clip, Resampler};
use myxtts_data::features::as_in_training;
use myxtts_data::mel::FrontEnd;
use myxtts_data::tokenizer::{Encoded, Tokenizer};
use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::{Generator, SamplingOptions};
use myxtts_tensor::{Device, Precision};
use myxtts_text::Cleaner;
use std::sync::Arc;

/// Half of what XTTS has.
const FEW_CODES: usize = 512;

/// How much models are guided by the text that were trained without it at times.
const GUIDANCE: f32 = 1.0;

/// How codes are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decoding {
    /// In f32, one text after the other.
    #[default]
    Exact,
    /// In bf16, codes and sound, with the draw on the device, so many texts at the same time, where the device and the model's sizes allow it;
    /// elsewhere exact. Fewer where its memory does not suffice.
    Fast {
        /// Texts at the same time.
        at_once: usize,
    },
    /// As `Fast`, for texts that come and go while others are said ([`Synthesizer::join`]). Where a device cannot advance them
    /// together they take turns, in f32, with the GPT's weights a second time in memory.
    Joined {
        /// Texts at the same time.
        at_once: usize,
    },
}

/// As many slots as the memory allows.
fn make_slots(generator: &mut Generator, decoding: Decoding) -> Result<(), SpeakError> {
    let (mut slots, is_joined) = match decoding {
        Decoding::Exact => return Ok(()),
        Decoding::Fast { at_once } => (at_once.max(1), false),
        Decoding::Joined { at_once } => (at_once.max(1), true),
    };
    loop {
        let made = match is_joined {
            true => generator.decode_in_slots(slots),
            false => generator.decode_together(slots),
        };
        match made {
            Err(myxtts_tensor::Error::OutOfMemory { .. }) if slots > 1 => slots /= 2,
            made => return made.map(|_| ()).map_err(SpeakError::from),
        }
    }
}

/// A model that speaks.
pub struct Synthesizer {
    /// Shared with whoever measures texts while this speaks.
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) cleaner: Cleaner,
    pub(crate) trim_db: Option<f32>,
    pub(crate) loudness_lufs: Option<f64>,
    pub(crate) generator: Generator,
    pub(crate) sound: Sound,
    pub(crate) mel_stats: Vec<f32>,
    /// Where training left what it takes.
    pub(crate) proofreader: Option<Proofreader>,
}

/// A recording as a model was given them in training, at the rate that both of the GPT's front-ends listen at.
pub fn as_heard(clip: &Clip, trim_db: Option<f32>, loudness_lufs: Option<f64>) -> Vec<f32> {
    let rate = FrontEnd::Conditioning.sample_rate();
    let samples = Resampler::new(clip.sample_rate, rate).resample(&clip.samples);
    as_in_training(&samples, trim_db, loudness_lufs)
}

impl Synthesizer {
    /// Takes the weights of a folder onto a device.
    pub fn open(folder: &ModelFolder, device: Device) -> Result<Synthesizer, SpeakError> {
        Synthesizer::of(folder, device)
    }

    /// The same, and says how codes are to be decoded.
    pub fn open_for(
        folder: &ModelFolder,
        device: Device,
        decoding: Decoding,
    ) -> Result<Synthesizer, SpeakError> {
        Synthesizer::of_for(folder, device, decoding)
    }

    /// As [`Synthesizer::open`] of anything that has weights.
    pub fn of(source: &dyn Source, device: Device) -> Result<Synthesizer, SpeakError> {
        Synthesizer::of_for(source, device, Decoding::Exact)
    }

    fn of_for(source: &dyn Source, device: Device, decoding: Decoding) -> Result<Synthesizer, SpeakError> {
        let vocabulary = source.vocabulary()?;
        let vocabulary = vocabulary.ok_or_else(|| SpeakError::unfit(source, "it has no vocab.json"))?;
        let tokenizer = Tokenizer::from_bytes(&vocabulary, &source.place().join(VOCABULARY))?;
        let sizes = gpt_sizes(source, &tokenizer)?;
        let mel_stats = source.numbers("mel_stats")?;
        let usable = |stat: &f32| stat.is_finite() && *stat != 0.0;
        let mels = FrontEnd::Conditioning.channels();
        if sizes.conditioning.mels != mels || mel_stats.len() != mels || !mel_stats.iter().all(usable) {
            let what = format!(
                "it listens to {} mels with {} statistics; both are to be {mels}, and no statistic 0",
                sizes.conditioning.mels,
                mel_stats.len()
            );
            return Err(SpeakError::unfit(source, &what));
        }
        // The small part first: where it is missing, nothing large was made for it.
        let sound = match decoding {
            Decoding::Fast { .. } | Decoding::Joined { .. } if device != Device::Cpu => {
                Sound::open_fast(source, device, &sizes)?
            }
            _ => Sound::open(source, device, &sizes, Precision::F32)?,
        };
        let guided = source.gpt_said().is_some_and(|gpt| gpt.get(TEXT_DROPOUT).is_some());
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
                        "it reads text with the cleaner {:?}, which this program lacks",
                        reading.cleaner
                    ),
                )
            })?,
            None => Cleaner::Default,
        };
        let (trim_db, loudness_lufs) =
            reading.map_or((None, None), |reading| (reading.trim_db, reading.loudness_lufs));
        let tokenizer = Arc::new(tokenizer);
        let proofreader = Proofreader::of(source)?;
        Ok(Synthesizer {
            tokenizer,
            cleaner,
            trim_db,
            loudness_lufs,
            generator,
            sound,
            mel_stats,
            proofreader,
        })
    }

    /// Reads texts with another cleaner than the one the model says it was trained with.
    pub fn with_cleaner(self, cleaner: Cleaner) -> Synthesizer {
        Synthesizer { cleaner, ..self }
    }

    /// How texts are read.
    pub fn cleaner(&self) -> Cleaner {
        self.cleaner
    }

    /// A recording as the model was given them in training, at the rate it listens at.
    pub fn as_heard(&self, clip: &Clip) -> Vec<f32> {
        as_heard(clip, self.trim_db, self.loudness_lufs)
    }

    /// How it sounds.
    pub fn quality(&self) -> Quality {
        self.sound.quality()
    }

    /// How it is sampled where nobody says otherwise: as XTTS is. A model of few codes says each of them again and again in
    /// any sentence; to be punished for that it would rather end. One of little speech is guided by its text, and was measured
    /// with these settings.
    pub fn usual_options(&self) -> SamplingOptions {
        let usual = SamplingOptions::default();
        let careful = SamplingOptions { repetition_penalty: 1.0, temperature: 0.5, ..usual.clone() };
        match self.generator.is_guided() {
            true => SamplingOptions { guidance: GUIDANCE, ..careful },
            false if self.generator.sizes().audio_vocabulary < FEW_CODES => careful,
            false => usual,
        }
    }

    /// Whether it speaks on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.generator.is_on_gpu()
    }

    /// Languages it has a token for.
    pub fn languages(&self) -> Vec<String> {
        self.tokenizer.languages()
    }

    /// Rows of a voice's conditioning.
    pub fn latents(&self) -> usize {
        self.generator.sizes().perceiver.latents
    }

    /// Channels of a voice: of each row of its conditioning, and of its speaker vector (0 where no decoder asks for one).
    pub fn voice_sizes(&self) -> (usize, usize) {
        (self.generator.sizes().width, self.sound.decoder_sizes().map_or(0, |sizes| sizes.speaker))
    }

    /// Bytes of the device's memory that are in use, by whomever; none on the CPU.
    pub fn device_bytes(&self) -> Option<usize> {
        self.sound.device_bytes()
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
