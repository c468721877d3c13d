//! Recordings of a speaker to a [`Voice`].

use crate::error::SpeakError;
use crate::reference::{MAX_SECONDS, MIN_HUNDREDTHS, Reference, SILENT, Segment};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use myxtts_data::audio::Clip;
use myxtts_data::mel::{FrontEnd, MelExtractor, divide_by_stats};

/// Seconds of all references together that condition the GPT.
const CONDITIONING_SECONDS: usize = 30;

/// Seconds of a chunk; the conditioning is the mean over chunks.
const CHUNK_SECONDS: usize = 4;

/// Seconds of a segment whose speaker vector is compared with those of other segments.
const SEGMENT_SECONDS: usize = 3;

/// Mean power of samples.
fn power(samples: &[f32]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    sum / samples.len().max(1) as f64
}

impl Synthesizer {
    /// Encodes one or more recordings of a speaker. The GPT's conditioning is the mean over chunks of all of them, the
    /// decoder's speaker vector the mean of one vector per recording.
    pub fn encode_voice(&mut self, references: &[Clip]) -> Result<Voice, SpeakError> {
        self.encode_clips(&references.iter().collect::<Vec<_>>())
    }

    fn encode_clips(&mut self, references: &[&Clip]) -> Result<Voice, SpeakError> {
        let rate = FrontEnd::Conditioning.sample_rate();
        let (mut all, mut vectors) = (Vec::new(), Vec::new());
        for (number, clip) in references.iter().enumerate() {
            let mut samples = self.prepare_reference(clip);
            samples.truncate(MAX_SECONDS * rate as usize);
            if !samples.iter().any(|sample| sample.abs() >= SILENT) {
                return Err(SpeakError::Silent { number: number + 1, count: references.len() });
            }
            vectors.extend(self.vocoder.speaker_vector(&samples)?);
            all.extend(samples);
        }
        all.truncate(CONDITIONING_SECONDS * rate as usize);
        let mut extractor = MelExtractor::new(FrontEnd::Conditioning);
        let mut chunks: Vec<Vec<f32>> = Vec::new();
        let long = |chunk: &&[f32]| chunk.len() * 100 >= MIN_HUNDREDTHS * rate as usize;
        for chunk in all.chunks(CHUNK_SECONDS * rate as usize).filter(long) {
            let mut mel = Vec::new();
            extractor.compute(chunk, &mut mel);
            divide_by_stats(&mut mel, &self.mel_stats);
            chunks.push(mel);
        }
        if chunks.is_empty() {
            let seconds = all.len() as f64 / f64::from(rate);
            return Err(SpeakError::TooShort { seconds, shortest: MIN_HUNDREDTHS as f64 / 100.0 });
        }
        let chunks: Vec<&[f32]> = chunks.iter().map(Vec::as_slice).collect();
        let conditioning = self.generator.condition(&chunks)?;
        // Not normalised to length 1: the original does not either, and its decoder was trained on such means.
        let speaker = vectors.first().map(|first: &Vec<f32>| {
            let mean = |i: usize| vectors.iter().map(|v| v[i]).sum::<f32>() / vectors.len() as f32;
            (0..first.len()).map(mean).collect()
        });
        Ok(Voice { conditioning, speaker })
    }

    /// As [`Synthesizer::encode_voice`], for recordings that were read from files.
    pub fn encode_references(&mut self, references: &[Reference]) -> Result<Voice, SpeakError> {
        let clips: Vec<&Clip> = references.iter().map(|reference| &reference.clip).collect();
        self.encode_clips(&clips)
    }

    /// Returns the speaker vectors of segments of 3 seconds, by which several speakers are recognised. Empty for a model without
    /// a speaker encoder. Mostly silent segments are left out.
    pub fn speaker_segments(&mut self, references: &[Reference]) -> Result<Vec<Segment>, SpeakError> {
        let rate = FrontEnd::Conditioning.sample_rate() as usize;
        let mut segments = Vec::new();
        for (number, reference) in references.iter().enumerate() {
            let mut samples = self.prepare_reference(&reference.clip);
            samples.truncate(MAX_SECONDS * rate);
            let mean_power = power(&samples);
            for (index, segment) in samples.chunks_exact(SEGMENT_SECONDS * rate).enumerate() {
                // 20 dB below the whole recording: there is hardly any speech.
                if power(segment) < 0.01 * mean_power {
                    continue;
                }
                let start = (index * SEGMENT_SECONDS) as f64;
                let vector = self.vocoder.speaker_vector(segment)?;
                segments.extend(vector.map(|vector| Segment { reference: number, start, vector }));
            }
        }
        Ok(segments)
    }
}
