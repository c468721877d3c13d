//! Measures how well a vocabulary covers texts, before training on them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use myxtts_text::{self as text, Cleaner};
use serde::Serialize;

use super::{Tokenizer, spaced};

/// Maximum number of text tokens of XTTS, including the language token.
pub const TEXT_TOKEN_LIMIT: usize = 400;

/// Maximum number of examples of each kind.
const MAX_EXAMPLES: usize = 5;

/// Coverage of a set of texts by a vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Number of texts that were cleaned and tokenised.
    pub texts: u64,
    /// Number of characters of the cleaned texts, including spaces.
    pub characters: u64,
    /// Number of characters without a token.
    pub unknown: u64,
    /// Number of tokens.
    pub tokens: u64,
    /// Every character that occurs, unknown ones first, then by count.
    pub per_character: Vec<CharacterCount>,
    /// The texts with the most tokens.
    pub longest: Vec<LongText>,
    /// Number of texts with more than [`TEXT_TOKEN_LIMIT`] tokens.
    pub over_limit: u64,
    /// Languages of the texts without a token in the vocabulary.
    pub missing_languages: BTreeSet<String>,
    /// Number of texts that could not be cleaned.
    pub uncleanable: u64,
    /// Id and reason of some of these texts.
    pub uncleanable_examples: Vec<(String, String)>,
}

/// Count of one character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CharacterCount {
    /// The character.
    pub character: char,
    /// Code point such as `U+0041`, because some characters are invisible.
    pub code: String,
    /// Number of occurrences.
    pub count: u64,
    /// Number of occurrences that became `[UNK]`: all or none.
    pub unknown: u64,
    /// Ids of some texts with it, if it is unknown.
    pub examples: Vec<String>,
}

/// A text with many tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LongText {
    /// Id of the text.
    pub id: String,
    /// Number of tokens.
    pub tokens: usize,
    /// Number of characters after cleaning.
    pub characters: usize,
}

impl Coverage {
    /// Fraction of characters without a token.
    pub fn unknown_rate(&self) -> f64 {
        self.unknown as f64 / self.characters.max(1) as f64
    }

    /// Tokens per character: less means shorter sequences.
    pub fn tokens_per_character(&self) -> f64 {
        self.tokens as f64 / self.characters.max(1) as f64
    }
}

/// Measures `(id, language, text)` triples, including languages that the vocabulary lacks: coverage is often measured before
/// adding a language.
pub fn coverage<I, L, T>(
    tokenizer: &Tokenizer,
    texts: impl IntoIterator<Item = (I, L, T)>,
    cleaner: Cleaner,
) -> Coverage
where
    I: Into<String>,
    L: AsRef<str>,
    T: AsRef<str>,
{
    let mut coverage = Coverage::default();
    let mut counts: BTreeMap<char, (u64, Vec<String>)> = BTreeMap::new();
    for (id, language, text) in texts {
        let (id, code) = (id.into(), text::canonical(language.as_ref()));
        if !tokenizer.languages.contains_key(&code) {
            coverage.missing_languages.insert(code.clone());
        }
        let cut = text::clean(text.as_ref(), &code, cleaner).map_err(|error| error.to_string()).and_then(
            |cleaned| match tokenizer.split(&spaced(&cleaned)) {
                Ok((pieces, _)) => Ok((cleaned, pieces.len() + 1)),
                Err(error) => Err(error.to_string()),
            },
        );
        let (cleaned, tokens) = match cut {
            Ok(cut) => cut,
            Err(reason) => {
                coverage.uncleanable += 1;
                if coverage.uncleanable_examples.len() < MAX_EXAMPLES {
                    coverage.uncleanable_examples.push((id, reason));
                }
                continue;
            }
        };
        coverage.texts += 1;
        coverage.tokens += tokens as u64;
        coverage.over_limit += u64::from(tokens > TEXT_TOKEN_LIMIT);
        let mut characters = 0;
        for c in cleaned.chars() {
            characters += 1;
            let (count, examples) = counts.entry(c).or_default();
            *count += 1;
            if !tokenizer.knows(c) {
                coverage.unknown += 1;
                if examples.len() < MAX_EXAMPLES && examples.last() != Some(&id) {
                    examples.push(id.clone());
                }
            }
        }
        coverage.characters += characters as u64;
        keep_longest(&mut coverage.longest, LongText { id, tokens, characters });
    }
    coverage.per_character = counts
        .into_iter()
        .map(|(character, (count, examples))| CharacterCount {
            character,
            code: format!("U+{:04X}", u32::from(character)),
            count,
            unknown: if tokenizer.knows(character) { 0 } else { count },
            examples,
        })
        .collect();
    coverage.per_character.sort_by_key(|c| (c.unknown == 0, Reverse(c.count), c.character));
    coverage
}

fn keep_longest(longest: &mut Vec<LongText>, text: LongText) {
    let at = longest.partition_point(|other| other.tokens >= text.tokens);
    if at < MAX_EXAMPLES {
        longest.insert(at, text);
        longest.truncate(MAX_EXAMPLES);
    }
}
