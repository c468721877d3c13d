//! The real examiner: decoder, text cleaner and tokenizer.

use std::path::Path;

use myxtts_text::{self as text, Cleaner};

use super::examine::{AudioMeasures, ExamineError, Examiner, TextMeasures};
use crate::audio;
use crate::problem::ProblemKind;
use crate::tokenizer::Tokenizer;

/// Audio quieter than the loudest window by more than this is silence at the ends of a clip.
const SILENCE_BELOW_PEAK_DB: f32 = 40.0;

/// Examines with the same decoder and cleaner as cache preparation.
pub struct CorpusExaminer<'a> {
    tokenizer: Option<&'a Tokenizer>,
    cleaner: Cleaner,
}

impl<'a> CorpusExaminer<'a> {
    /// Cleans texts with `cleaner`, and counts tokens if there is a tokenizer.
    pub fn new(tokenizer: Option<&'a Tokenizer>, cleaner: Cleaner) -> Self {
        CorpusExaminer { tokenizer, cleaner }
    }
}

impl Examiner for CorpusExaminer<'_> {
    fn examine_audio(&self, path: &Path) -> Result<AudioMeasures, ExamineError> {
        let decoded = audio::decode(path)
            .map_err(|error| ExamineError { kind: error.kind(), detail: error.to_string() })?;
        let samples = &decoded.clip.samples;
        let sample_rate = decoded.clip.sample_rate;
        let audible = audio::trim_silence(samples, sample_rate, SILENCE_BELOW_PEAK_DB, 0.0);
        let power: f64 = samples.iter().map(|&sample| f64::from(sample).powi(2)).sum();
        let count = samples.len().max(1) as f64;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&sample_rate.to_le_bytes());
        hasher.update(bytemuck::cast_slice(samples));
        Ok(AudioMeasures {
            sample_rate,
            seconds: decoded.clip.seconds(),
            audible_seconds: audible.len() as f64 / f64::from(sample_rate.max(1)),
            peak: decoded.peak,
            rms: (power / count).sqrt() as f32,
            clipped_share: decoded.clipped as f64 / count,
            hash: *hasher.finalize().as_bytes(),
        })
    }

    fn examine_text(&self, written: &str, language: &str) -> Result<TextMeasures, ExamineError> {
        let unspeakable = |detail| ExamineError { kind: ProblemKind::UnspeakableText, detail };
        if let Some(tokenizer) = self.tokenizer {
            let encoded = tokenizer.encode(written, language, self.cleaner);
            let encoded = encoded.map_err(|error| unspeakable(error.to_string()))?;
            let tokens = Some(encoded.ids.len());
            return Ok(TextMeasures { cleaned: encoded.cleaned, tokens, unknown: encoded.unknown });
        }
        let cleaned =
            text::clean(written, language, self.cleaner).map_err(|error| unspeakable(error.to_string()))?;
        let unknown = text::alphabet(language, self.cleaner);
        let unknown = unknown.map(|known| unknown_characters(&cleaned, known)).unwrap_or_default();
        Ok(TextMeasures { cleaned, tokens: None, unknown })
    }
}

/// Characters not in `known`, each once, in order of appearance.
fn unknown_characters(text: &str, known: &str) -> Vec<char> {
    let mut found = Vec::new();
    for c in text.chars() {
        if !known.contains(c) && !found.contains(&c) {
            found.push(c);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_characters_are_listed_once() {
        assert_eq!(unknown_characters("aßb€ß", "ab"), ['ß', '€']);
        assert_eq!(unknown_characters("", "ab"), []);
    }
}
