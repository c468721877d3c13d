//! How much text fits into one utterance of a model, for [`crate::long_text`].

use std::sync::Arc;

use myxtts_data::tokenizer::Tokenizer;
use myxtts_text::Cleaner;

use crate::synthesizer::Synthesizer;

/// Codes per second of audio in XTTS.
const CODES_PER_SECOND: f64 = 21.5;

/// Characters spoken per second: letters of an alphabet, and Han, kana or hangul, each of which is a syllable or more.
const LETTERS_PER_SECOND: f64 = 14.0;
const SYLLABLES_PER_SECOND: f64 = 4.5;

/// Fraction of the model's code positions that a text at ordinary pace may use: a slow voice needs the rest.
const ORDINARY_SHARE: f64 = 0.6;

/// Counts the tokens of texts in one language against the limits of one model.
#[derive(Clone)]
pub struct TokenBudget {
    tokenizer: Arc<Tokenizer>,
    cleaner: Cleaner,
    language: String,
    max_tokens: usize,
    max_codes: usize,
}

impl TokenBudget {
    /// Largest count of a text that fits into one utterance.
    pub fn limit(&self) -> usize {
        self.max_tokens
    }

    /// Returns the number of tokens of a text, or more if its codes at ordinary pace use a larger share of their limit.
    pub fn count(&self, text: &str) -> usize {
        let (tokens, cleaned) = match self.tokenizer.encode(text, &self.language, self.cleaner) {
            Ok(encoded) => (encoded.ids.len(), encoded.cleaned),
            // Speaking the text reports this error.
            Err(_) => (text.chars().count(), text.to_owned()),
        };
        let codes = seconds(&cleaned) * CODES_PER_SECOND;
        let share = codes / (ORDINARY_SHARE * self.max_codes.max(1) as f64);
        tokens.max((share * self.max_tokens as f64).ceil() as usize)
    }
}

/// Seconds a cleaned text takes at ordinary pace.
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
    /// Counts texts in a language as this model tokenizes them.
    pub fn token_budget(&self, language: &str) -> TokenBudget {
        let sizes = self.generator.sizes();
        TokenBudget {
            tokenizer: self.tokenizer.clone(),
            cleaner: self.cleaner(),
            language: language.to_owned(),
            max_tokens: sizes.max_text,
            max_codes: sizes.max_audio,
        }
    }
}
