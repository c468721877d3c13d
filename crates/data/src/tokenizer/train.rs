//! Trains a vocabulary on texts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use myxtts_text::{self as text, Cleaner};
use rayon::prelude::*;
use regex::Regex;

use super::file::{Added, Vocabulary};
use super::merges::{Limits, Pieces, Word, learn};
use super::{Tokenizer, TokenizerError};

/// Options for training a vocabulary.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Number of tokens, including special ones and characters; [`CHARACTERS`] for single characters only.
    pub vocab_size: usize,
    /// Languages that get a token in addition to those of the texts.
    pub languages: Vec<String>,
    /// The cleaner the model will be trained with.
    pub cleaner: Cleaner,
    /// Minimum number of occurrences of a pair to be merged.
    pub min_frequency: u64,
}

/// The size of a vocabulary without merged pieces: one token per character and special token.
pub const CHARACTERS: usize = 0;

/// With less text than this, pieces of several letters are too rare to learn their pronunciation.
const MIN_CHARACTERS_FOR_PIECES: usize = 1_000_000;

/// The default vocabulary size for texts with a total of `characters` characters.
pub fn default_vocab_size(characters: usize) -> usize {
    if characters < MIN_CHARACTERS_FOR_PIECES { CHARACTERS } else { 2048 }
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions { vocab_size: 2000, languages: Vec::new(), cleaner: Cleaner::Default, min_frequency: 2 }
    }
}

/// The special tokens with the ids that XTTS gives them, except START, which is 261 there.
const SPECIALS: [&str; 4] = ["[STOP]", "[UNK]", "[SPACE]", "[START]"];

/// Trains a vocabulary on `(language, text)` pairs. The result does not depend on the order of the texts or the number of
/// threads.
///
/// Ids: specials, `[language]` tokens in alphabetical order, every character of the texts and of the languages' alphabets by
/// code point, then pieces in the order they were learnt.
pub fn train<L, T>(
    texts: impl IntoIterator<Item = (L, T)>,
    options: &TrainOptions,
) -> Result<Tokenizer, TokenizerError>
where
    L: AsRef<str> + Sync,
    T: AsRef<str> + Sync,
{
    let counts = WordCounts::count(texts, options.cleaner)?;
    if counts.words.is_empty() {
        return Err(TokenizerError::NoText(None));
    }
    let mut languages: BTreeSet<String> =
        options.languages.iter().map(|code| text::canonical(code)).collect();
    languages.extend(counts.languages.iter().cloned());
    let mut characters = counts.characters();
    for language in &languages {
        characters
            .extend(text::alphabet(language, options.cleaner).unwrap_or("").chars().filter(|&c| c != ' '));
    }

    let mut pieces = Pieces::default();
    let mut added = Vec::new();
    for special in
        SPECIALS.into_iter().map(str::to_owned).chain(languages.iter().map(|code| format!("[{code}]")))
    {
        added.push(Added::special(&special, pieces.number(&special)));
    }
    for character in characters {
        pieces.number(&character.to_string());
    }
    let needed = pieces.names.len();
    let room = match options.vocab_size {
        CHARACTERS => 0,
        requested => requested.checked_sub(needed).ok_or(TokenizerError::TooSmall { requested, needed })?,
    };
    let words = counts
        .words
        .iter()
        .map(|(word, &count)| Word {
            pieces: word.chars().map(|c| pieces.number(&c.to_string())).collect(),
            count,
        })
        .collect();
    let limits = Limits { room, min_frequency: options.min_frequency, admissible: &|_| true };
    let merges = learn(words, &mut pieces, &limits);

    let name = |number: u32| pieces.names[number as usize].clone();
    let merges = merges.into_iter().map(|(a, b)| (name(a), name(b))).collect();
    let pieces = (0..).zip(&pieces.names).map(|(id, piece)| (piece.clone(), id)).collect();
    Tokenizer::new(Vocabulary { added, pieces, merges })
}

/// Number of occurrences of each word in cleaned texts, and the languages of the texts.
#[derive(Default)]
pub(super) struct WordCounts {
    pub words: BTreeMap<String, u64>,
    pub languages: BTreeSet<String>,
}

impl WordCounts {
    /// Cleans and counts. Cleaning runs on all cores, one block of texts at a time, so that a large corpus is never held in
    /// memory; counting does not depend on the order.
    pub fn count<L, T>(
        texts: impl IntoIterator<Item = (L, T)>,
        cleaner: Cleaner,
    ) -> Result<Self, TokenizerError>
    where
        L: AsRef<str> + Sync,
        T: AsRef<str> + Sync,
    {
        const BLOCK: usize = 4096;
        let mut counts = WordCounts::default();
        let mut texts = texts.into_iter();
        loop {
            let block: Vec<(L, T)> = texts.by_ref().take(BLOCK).collect();
            if block.is_empty() {
                return Ok(counts);
            }
            let cleaned: Vec<Result<String, TokenizerError>> = block
                .par_iter()
                .map(|(language, text)| {
                    text::clean(text.as_ref(), language.as_ref(), cleaner).map_err(|source| {
                        let text = text.as_ref().chars().take(60).collect();
                        TokenizerError::BadText { text, source }
                    })
                })
                .collect();
            for (cleaned, (language, _)) in cleaned.into_iter().zip(&block) {
                let cleaned = cleaned?;
                for word in words(&cleaned) {
                    *counts.words.entry(word.to_owned()).or_default() += 1;
                }
                if !cleaned.is_empty() {
                    counts.languages.insert(text::canonical(language.as_ref()));
                }
            }
        }
    }

    /// Every character that occurs.
    pub fn characters(&self) -> BTreeSet<char> {
        self.words.keys().flat_map(|word| word.chars()).collect()
    }
}

/// The runs of letters and of punctuation that the vocabulary's `Whitespace` splitter produces: merges never cross them.
pub(super) fn words(cleaned: &str) -> impl Iterator<Item = &str> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\w+|[^\w\s]+").expect("the pattern is constant and tested"));
    WORD.find_iter(cleaned).map(|found| found.as_str())
}
