//! The real ears and eyes: the decoder, the text cleaner and the tokenizer.

use std::path::Path;

use myxtts_text::{self as text, Cleaner};

use super::examine::{Examiner, Heard, Trouble, Understood};
use crate::audio;
use crate::problem::ProblemKind;
use crate::tokenizer::Tokenizer;

/// Quieter than the loudest moment by this much is silence at the ends of a clip.
const SILENCE_BELOW_PEAK_DB: f32 = 40.0;

/// Hears with the decoder that preparing uses, and reads with its cleaner.
pub struct Senses<'a> {
    tokenizer: Option<&'a Tokenizer>,
    cleaner: Cleaner,
}

impl<'a> Senses<'a> {
    /// Reads texts with this cleaner, and counts tokens where there is a tokenizer.
    pub fn new(tokenizer: Option<&'a Tokenizer>, cleaner: Cleaner) -> Self {
        Senses { tokenizer, cleaner }
    }
}

impl Examiner for Senses<'_> {
    fn listen(&self, sound: &Path) -> Result<Heard, Trouble> {
        let decoded = audio::decode(sound)
            .map_err(|error| Trouble { kind: error.kind(), detail: error.to_string() })?;
        let samples = &decoded.clip.samples;
        let sample_rate = decoded.clip.sample_rate;
        let sounding = audio::trim_silence(samples, sample_rate, SILENCE_BELOW_PEAK_DB, 0.0);
        let power: f64 = samples.iter().map(|&sample| f64::from(sample).powi(2)).sum();
        let count = samples.len().max(1) as f64;
        let mut hash = blake3::Hasher::new();
        hash.update(&sample_rate.to_le_bytes());
        hash.update(bytemuck::cast_slice(samples));
        Ok(Heard {
            sample_rate,
            seconds: decoded.clip.seconds(),
            sounding_seconds: sounding.len() as f64 / f64::from(sample_rate.max(1)),
            peak: decoded.peak,
            rms: (power / count).sqrt() as f32,
            clipped_share: decoded.clipped as f64 / count,
            identity: *hash.finalize().as_bytes(),
        })
    }

    fn read_text(&self, written: &str, language: &str) -> Result<Understood, Trouble> {
        let unspeakable = |detail| Trouble { kind: ProblemKind::UnspeakableText, detail };
        if let Some(tokenizer) = self.tokenizer {
            let encoded = tokenizer.encode(written, language, self.cleaner);
            let encoded = encoded.map_err(|error| unspeakable(error.to_string()))?;
            let tokens = Some(encoded.ids.len());
            return Ok(Understood { cleaned: encoded.cleaned, tokens, unknown: encoded.unknown });
        }
        let cleaned =
            text::clean(written, language, self.cleaner).map_err(|error| unspeakable(error.to_string()))?;
        let unknown = text::alphabet(language, self.cleaner);
        let unknown = unknown.map(|known| strangers(&cleaned, known)).unwrap_or_default();
        Ok(Understood { cleaned, tokens: None, unknown })
    }
}

/// Characters that are not among the known ones, each once, in order of appearance.
fn strangers(text: &str, known: &str) -> Vec<char> {
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
    fn strangers_are_named_once() {
        assert_eq!(strangers("aßb€ß", "ab"), ['ß', '€']);
        assert_eq!(strangers("", "ab"), []);
    }
}
