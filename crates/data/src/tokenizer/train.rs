//! A vocabulary from nothing but text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use myxtts_text::{self as text, Cleaner};
use rayon::prelude::*;
use regex::Regex;

use super::file::{Added, Vocabulary};
use super::merges::{Limits, Pieces, Word, learn};
use super::{Tokenizer, TokenizerError};

/// How a vocabulary is trained.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Tokens in all, special ones and characters included; [`CHARACTERS`] for single characters alone.
    pub vocab_size: usize,
    /// Languages that get a token beside those of the texts.
    pub languages: Vec<String>,
    /// The cleaner the model will be trained with.
    pub cleaner: Cleaner,
    /// How often two pieces must stand together to become one.
    pub min_frequency: u64,
}

/// The size of a vocabulary without merged pieces: as many tokens as there are characters and special tokens.
pub const CHARACTERS: usize = 0;

/// Below this many characters of text, pieces of several letters are too rare to learn the sound of.
const ENOUGH_FOR_PIECES: usize = 1_000_000;

/// The size of a vocabulary for texts of so many characters, where nobody names one.
pub fn size_for(characters: usize) -> usize {
    if characters < ENOUGH_FOR_PIECES { CHARACTERS } else { 2048 }
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions { vocab_size: 2000, languages: Vec::new(), cleaner: Cleaner::Default, min_frequency: 2 }
    }
}

/// The special tokens with the ids that XTTS gives them; START has 261 there and stands right behind here.
const SPECIALS: [&str; 4] = ["[STOP]", "[UNK]", "[SPACE]", "[START]"];

/// Trains a vocabulary on `(language, text)` pairs. The same texts give the same vocabulary, whatever their
/// order and however many threads there are.
///
/// Ids: specials, `[language]` tokens in alphabetical order, every character of the texts and of the
/// languages' alphabets by code point, then pieces in the order they were learned.
pub fn train<L, T>(
    texts: impl IntoIterator<Item = (L, T)>,
    options: &TrainOptions,
) -> Result<Tokenizer, TokenizerError>
where
    L: AsRef<str> + Sync,
    T: AsRef<str> + Sync,
{
    let counts = WordCounts::of(texts, options.cleaner)?;
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
        asked => asked.checked_sub(needed).ok_or(TokenizerError::TooSmall { asked, needed })?,
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

/// How often each word occurs in cleaned texts, and which languages they were in.
#[derive(Default)]
pub(super) struct WordCounts {
    pub words: BTreeMap<String, u64>,
    pub languages: BTreeSet<String>,
}

impl WordCounts {
    /// Cleans and counts. Cleaning runs on all cores, a block of texts at a time, so that a corpus of any
    /// size is never held in memory; counting does not depend on the order.
    pub fn of<L, T>(texts: impl IntoIterator<Item = (L, T)>, cleaner: Cleaner) -> Result<Self, TokenizerError>
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

/// The runs of letters and of signs that the vocabulary's `Whitespace` splitter sees: merges never cross them.
pub(super) fn words(cleaned: &str) -> impl Iterator<Item = &str> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\w+|[^\w\s]+").expect("the pattern is a constant and tested"));
    WORD.find_iter(cleaned).map(|found| found.as_str())
}
