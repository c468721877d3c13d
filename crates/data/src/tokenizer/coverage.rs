//! How well a vocabulary covers texts, before anyone trains on them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use myxtts_text::{self as text, Cleaner};
use serde::Serialize;

use super::{Tokenizer, spaced};

/// Tokens of text that XTTS reads at most, the language's included.
pub const TEXT_TOKEN_LIMIT: usize = 400;

/// How many examples are kept of each kind.
const EXAMPLES: usize = 5;

/// How a vocabulary covers a set of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Texts that were cleaned and cut.
    pub texts: u64,
    /// Characters of the cleaned texts, spaces included.
    pub characters: u64,
    /// How many of them have no token.
    pub unknown: u64,
    /// Tokens they became.
    pub tokens: u64,
    /// Every character that occurs, the unknown ones first, then by count.
    pub per_character: Vec<CharacterCount>,
    /// The texts with the most tokens.
    pub longest: Vec<LongText>,
    /// How many texts have more than [`TEXT_TOKEN_LIMIT`] tokens.
    pub over_limit: u64,
    /// Languages of the texts that the vocabulary has no token for.
    pub missing_languages: BTreeSet<String>,
    /// Texts that could not be cleaned.
    pub uncleanable: u64,
    /// Some of them: id and reason.
    pub uncleanable_examples: Vec<(String, String)>,
}

/// One character's share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CharacterCount {
    /// The character.
    pub character: char,
    /// Its code point, because some cannot be seen.
    pub code: String,
    /// How often it occurs.
    pub count: u64,
    /// How often it became `[UNK]`: always or never.
    pub unknown: u64,
    /// Texts it occurs in, where it is unknown.
    pub examples: Vec<String>,
}

/// A text with many tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LongText {
    /// Its id.
    pub id: String,
    /// Its tokens.
    pub tokens: usize,
    /// Its characters after cleaning.
    pub characters: usize,
}

impl Coverage {
    /// The share of characters without a token.
    pub fn unknown_rate(&self) -> f64 {
        self.unknown as f64 / self.characters.max(1) as f64
    }

    /// Tokens for each character: smaller is shorter sequences.
    pub fn tokens_per_character(&self) -> f64 {
        self.tokens as f64 / self.characters.max(1) as f64
    }
}

/// Measures `(id, language, text)` triples. Languages the vocabulary does not have are measured too: that is
/// the question before extending it.
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
            |cleaned| match tokenizer.pieces_of(&spaced(&cleaned)) {
                Ok((pieces, _)) => Ok((cleaned, pieces.len() + 1)),
                Err(error) => Err(error.to_string()),
            },
        );
        let (cleaned, tokens) = match cut {
            Ok(cut) => cut,
            Err(reason) => {
                coverage.uncleanable += 1;
                if coverage.uncleanable_examples.len() < EXAMPLES {
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
                if examples.len() < EXAMPLES && examples.last() != Some(&id) {
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
    if at < EXAMPLES {
        longest.insert(at, text);
        longest.truncate(EXAMPLES);
    }
}
