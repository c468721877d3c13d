//! How much text a model can say at once, for [`crate::long_text`].

use std::sync::Arc;

use myxtts_data::tokenizer::Tokenizer;
use myxtts_text::Cleaner;

use crate::synthesizer::Synthesizer;

/// Codes for a second of sound in XTTS.
const CODES_PER_SECOND: f64 = 21.5;

/// Characters that are read in a second: letters of an alphabet, and Han or kana, of which each is a syllable or more.
const LETTERS_PER_SECOND: f64 = 14.0;
const SYLLABLES_PER_SECOND: f64 = 4.5;

/// Of the codes that a model has places for, what a text of the usual pace may take: a slow voice needs the rest.
const USUAL_SHARE: f64 = 0.6;

/// Measures texts in one language for one model.
#[derive(Clone)]
pub struct TextMeasure {
    tokenizer: Arc<Tokenizer>,
    cleaner: Cleaner,
    language: String,
    most_tokens: usize,
    most_codes: usize,
}

impl TextMeasure {
    /// The most tokens that a text may have.
    pub fn limit(&self) -> usize {
        self.most_tokens
    }

    /// The tokens of a text; more where its sound, at the usual pace, would be too long before it has too many tokens.
    pub fn count(&self, text: &str) -> usize {
        let (tokens, cleaned) = match self.tokenizer.encode(text, &self.language, self.cleaner) {
            Ok(encoded) => (encoded.ids.len(), encoded.cleaned),
            // Whoever speaks it says why not.
            Err(_) => (text.chars().count(), text.to_owned()),
        };
        let codes = seconds(&cleaned) * CODES_PER_SECOND;
        let share = codes / (USUAL_SHARE * self.most_codes.max(1) as f64);
        tokens.max((share * self.most_tokens as f64).ceil() as usize)
    }
}

/// How long a cleaned text takes at the usual pace.
fn seconds(cleaned: &str) -> f64 {
    let letter = |c: char| match c {
        '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' => 1.0 / SYLLABLES_PER_SECOND,
        _ => 1.0 / LETTERS_PER_SECOND,
    };
    cleaned.chars().map(letter).sum()
}

impl Synthesizer {
    /// Measures texts in a language as this model reads them.
    pub fn text_measure(&self, language: &str) -> TextMeasure {
        let sizes = self.generator.sizes();
        TextMeasure {
            tokenizer: self.tokenizer.clone(),
            cleaner: self.cleaner(),
            language: language.to_owned(),
            most_tokens: sizes.max_text,
            most_codes: sizes.max_audio,
        }
    }
}
