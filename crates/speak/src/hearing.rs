//! How an opened model hears a speaker.

use crate::error::SpeakError;
use crate::reference::{HEARD, Part, Reference, SHORTEST, SILENT};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use myxtts_data::audio::Clip;
use myxtts_data::mel::{FrontEnd, MelExtractor, divide_by_stats};

/// Seconds of all references together that the GPT is given, in chunks of so many.
const CONDITIONED: usize = 30;
const CHUNK: usize = 4;

/// Seconds of a part whose speaker is compared with that of others.
const PART: usize = 3;

/// Mean power.
fn loudness(samples: &[f32]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    sum / samples.len().max(1) as f64
}

impl Synthesizer {
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
}
