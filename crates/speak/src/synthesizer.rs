//! An opened model: hears a speaker once, and makes text sound.
//!
//! | the folder holds | sound | rate |
//! |---|---|---|
//! | GPT, decoder, speaker encoder | the decoder's, from the GPT's states | 24,000 Hz |
//! | GPT, DVAE | the DVAE's mels, turned into sound without a network: rough, but the words can be heard | 22,050 Hz |

use crate::error::SpeakError;
use crate::reference::{HEARD, Part, Reference, SHORTEST, SILENT};
use crate::sound::{Quality, Sound};
use crate::source::{Source, TEXT_DROPOUT, gpt_sizes, weights};
use crate::voice::Voice;
use crate::waveform::{Fit, Waveform};
use myxtts_data::audio::{Clip, Resampler};
use myxtts_data::features::as_in_training;
use myxtts_data::mel::{FrontEnd, MelExtractor, divide_by_stats};
use myxtts_data::text::Cleaner;
use myxtts_data::tokenizer::{Encoded, Tokenizer};
use myxtts_model::generate::Guided;
use myxtts_model::weights::ModelFolder;
use myxtts_model::weights::folder::VOCABULARY;
use myxtts_model::{Ended, Forced, Generator, SamplingOptions, Spoken};
use myxtts_tensor::{Device, Precision};

/// Seconds of all references together that the GPT is given, in chunks of so many.
const CONDITIONED: usize = 30;
const CHUNK: usize = 4;

/// Seconds of a part whose speaker is compared with that of others.
const PART: usize = 3;

/// Half of what XTTS has.
const FEW_CODES: usize = 512;

/// How much models are guided by the text that were trained without it at times.
const GUIDANCE: f32 = 1.0;

/// A model that speaks.
pub struct Synthesizer {
    tokenizer: Tokenizer,
    cleaner: Cleaner,
    trim_db: Option<f32>,
    loudness_lufs: Option<f64>,
    generator: Generator,
    sound: Sound,
    mel_stats: Vec<f32>,
}

/// A recording as a model was given them in training, at the rate that both of the GPT's front-ends listen at.
pub fn as_heard(clip: &Clip, trim_db: Option<f32>, loudness_lufs: Option<f64>) -> Vec<f32> {
    let rate = FrontEnd::Conditioning.sample_rate();
    let samples = Resampler::new(clip.sample_rate, rate).resample(&clip.samples);
    as_in_training(&samples, trim_db, loudness_lufs)
}

/// Mean power.
fn loudness(samples: &[f32]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    sum / samples.len().max(1) as f64
}

impl Synthesizer {
    /// Takes the weights of a folder onto a device.
    pub fn open(folder: &ModelFolder, device: Device) -> Result<Synthesizer, SpeakError> {
        Synthesizer::of(folder, device)
    }

    /// The same of anything that has weights.
    pub fn of(source: &dyn Source, device: Device) -> Result<Synthesizer, SpeakError> {
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
        let sound = Sound::open(source, device, &sizes)?;
        let guided = source.gpt_said().is_some_and(|gpt| gpt.get(TEXT_DROPOUT).is_some());
        let mut generator = match guided {
            true => Generator::guided(device, Precision::F32, &sizes)?,
            false => Generator::new(device, Precision::F32, &sizes)?,
        };
        generator.load(|one| weights(source, one))?;
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
        Ok(Synthesizer { tokenizer, cleaner, trim_db, loudness_lufs, generator, sound, mel_stats })
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

    /// Languages it has a token for.
    pub fn languages(&self) -> Vec<String> {
        self.tokenizer.languages()
    }

    /// Hears a speaker in one or more recordings. The GPT is given the mean over chunks of them all, the decoder the mean
    /// of one vector each.
    pub fn hear(&mut self, references: &[Clip]) -> Result<Voice, SpeakError> {
        self.hear_clips(&references.iter().collect::<Vec<_>>())
    }

    fn hear_clips(&mut self, references: &[&Clip]) -> Result<Voice, SpeakError> {
        let rate = FrontEnd::Conditioning.sample_rate();
        let (mut all, mut vectors) = (Vec::new(), Vec::new());
        for (number, clip) in references.iter().enumerate() {
            let mut heard = self.as_heard(clip);
            heard.truncate(HEARD * rate as usize);
            if !heard.iter().any(|sample| sample.abs() >= SILENT) {
                return Err(SpeakError::Silent { number: number + 1, count: references.len() });
            }
            vectors.extend(self.sound.speaker_vector(&heard)?);
            all.extend(heard);
        }
        all.truncate(CONDITIONED * rate as usize);
        let mut extractor = MelExtractor::new(FrontEnd::Conditioning);
        let mut chunks: Vec<Vec<f32>> = Vec::new();
        let long = |chunk: &&[f32]| chunk.len() * 100 >= SHORTEST * rate as usize;
        for chunk in all.chunks(CHUNK * rate as usize).filter(long) {
            let mut mel = Vec::new();
            extractor.compute(chunk, &mut mel);
            divide_by_stats(&mut mel, &self.mel_stats);
            chunks.push(mel);
        }
        if chunks.is_empty() {
            let seconds = all.len() as f64 / f64::from(rate);
            return Err(SpeakError::TooShort { seconds, shortest: SHORTEST as f64 / 100.0 });
        }
        let chunks: Vec<&[f32]> = chunks.iter().map(Vec::as_slice).collect();
        let conditioning = self.generator.condition(&chunks)?;
        // Not made length 1 again: the original does not, and its decoder has learnt from such means.
        let speaker = vectors.first().map(|first: &Vec<f32>| {
            let mean = |i: usize| vectors.iter().map(|v| v[i]).sum::<f32>() / vectors.len() as f32;
            (0..first.len()).map(mean).collect()
        });
        Ok(Voice { conditioning, speaker })
    }

    /// The same of recordings that were read with their names.
    pub fn hear_references(&mut self, references: &[Reference]) -> Result<Voice, SpeakError> {
        let clips: Vec<&Clip> = references.iter().map(|reference| &reference.clip).collect();
        self.hear_clips(&clips)
    }

    /// Speaker vectors of parts of 3 seconds, to tell whether all of them are of one speaker; empty where the model has no
    /// speaker encoder. Parts that are silent for the most part are left out.
    pub fn speaker_parts(&mut self, references: &[Reference]) -> Result<Vec<Part>, SpeakError> {
        let rate = FrontEnd::Conditioning.sample_rate() as usize;
        let mut parts = Vec::new();
        for (number, reference) in references.iter().enumerate() {
            let mut heard = self.as_heard(&reference.clip);
            heard.truncate(HEARD * rate);
            let loudest = loudness(&heard);
            for (place, part) in heard.chunks_exact(PART * rate).enumerate() {
                // 20 dB below the whole: hardly anybody speaks there.
                if loudness(part) < 0.01 * loudest {
                    continue;
                }
                let start = (place * PART) as f64;
                let vector = self.sound.speaker_vector(part)?;
                parts.extend(vector.map(|vector| Part { reference: number, start, vector }));
            }
        }
        Ok(parts)
    }

    /// Rows of a voice's conditioning.
    pub fn latents(&self) -> usize {
        self.generator.sizes().perceiver.latents
    }

    /// Says a text.
    pub fn speak(
        &mut self,
        text: &str,
        language: &str,
        reference: &Voice,
        options: &SamplingOptions,
    ) -> Result<Waveform, SpeakError> {
        let encoded = self.encode(text, language)?;
        // As rows whose text was left out in training.
        let textless: Vec<i32> =
            encoded.ids.iter().copied().take(1).chain([self.tokenizer.space_id()]).collect();
        let guided = Guided { text: &encoded.ids, textless: Some(&textless) };
        let spoken = self.generator.speak(&reference.conditioning, guided, options)?;
        self.waveform(encoded, &spoken, reference)
    }

    /// Says what a recording says, in its own codes: the GPT reads them with the text instead of drawing others, and its
    /// states become sound. What then differs from the recording is the decoder's doing and the codes'.
    pub fn speak_codes(
        &mut self,
        text: &str,
        language: &str,
        reference: &Voice,
        codes: &[i32],
    ) -> Result<(Waveform, Fit), SpeakError> {
        let encoded = self.encode(text, language)?;
        let Forced { latents, loss, accuracy } =
            self.generator.forced(&reference.conditioning, &encoded.ids, codes)?;
        let spoken = Spoken { codes: codes.to_vec(), latents, ended: Ended::Stop };
        Ok((self.waveform(encoded, &spoken, reference)?, Fit { loss, accuracy }))
    }

    fn encode(&self, text: &str, language: &str) -> Result<Encoded, SpeakError> {
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

    fn waveform(
        &mut self,
        encoded: Encoded,
        spoken: &Spoken,
        reference: &Voice,
    ) -> Result<Waveform, SpeakError> {
        let samples = self.sound.sound(spoken, reference.speaker.as_deref(), &self.mel_stats)?;
        Ok(Waveform {
            samples,
            rate: self.quality().rate(),
            cleaned: encoded.cleaned,
            tokens: encoded.ids.len(),
            unknown: encoded.unknown,
            codes: spoken.codes.len(),
            ended: spoken.ended,
        })
    }
}
