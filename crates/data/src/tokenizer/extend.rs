//! Adds a language to an existing vocabulary without changing an id.
//!
//! Old pieces, ids and merges stay in their order. New characters, then new pieces, then the language token get ids after
//! the largest. New merges come after all old ones, and their results are new pieces, so they never enable an old merge.
//!
//! Texts of the old languages keep their ids: a new piece must contain a character that no old language uses. Persian added
//! next to Arabic learns «گفت» and «می‌» but not «را», which Arabic writes too. [`ExtendOptions::shared`] lifts this rule:
//! fewer tokens for the new language, but other ids for old texts with the same letters; the report counts the sample texts
//! that change.

use std::collections::{BTreeSet, HashSet};

use myxtts_text::{self as text, Cleaner};
use serde::Serialize;

use super::coverage::{Coverage, coverage};
use super::file::Added;
use super::merges::{Limits, Pieces, Word, learn};
use super::train::WordCounts;
use super::{Tokenizer, TokenizerError, single_char};

/// Options for extending a vocabulary.
#[derive(Clone, Debug)]
pub struct ExtendOptions {
    /// Code of the language to add.
    pub language: String,
    /// Maximum number of new ids, including characters and the language token. About 2,000 is best for a language.
    pub new_tokens: usize,
    /// The cleaner the model will be trained with.
    pub cleaner: Cleaner,
    /// Minimum number of occurrences of a pair to be merged.
    pub min_frequency: u64,
    /// Whether new pieces may consist only of letters that old languages use too.
    pub shared: bool,
}

impl ExtendOptions {
    /// The default options for a language.
    pub fn new(language: &str) -> Self {
        ExtendOptions {
            language: language.to_owned(),
            new_tokens: 2000,
            cleaner: Cleaner::Default,
            min_frequency: 2,
            shared: false,
        }
    }
}

/// Result of extending a vocabulary.
#[derive(Clone, Debug, Serialize)]
pub struct ExtendReport {
    /// Code of the added language.
    pub language: String,
    /// Id of its language token.
    pub language_id: i32,
    /// The first new id.
    pub first_id: usize,
    /// Characters that had no token before.
    pub characters: Vec<char>,
    /// Number of new pieces of more than one character.
    pub pieces: usize,
    /// Rows of the text embedding before.
    pub size_before: usize,
    /// Rows of the text embedding after.
    pub size_after: usize,
    /// Coverage of the new language's texts by the old vocabulary.
    pub before: Coverage,
    /// Coverage of the same texts by the new vocabulary.
    pub after: Coverage,
    /// Number of sample texts in other languages.
    pub old_texts: usize,
    /// Number of these with different ids now.
    pub old_texts_changed: usize,
}

/// Adds a language, learning from those of the `(language, text)` pairs that are in it; the others are samples of old
/// languages whose ids are compared before and after.
pub fn extend<L, T>(
    base: &Tokenizer,
    texts: impl IntoIterator<Item = (L, T)>,
    options: &ExtendOptions,
) -> Result<(Tokenizer, ExtendReport), TokenizerError>
where
    L: AsRef<str> + Sync,
    T: AsRef<str> + Sync,
{
    let language = text::canonical(&options.language);
    let (new, old): (Vec<_>, Vec<_>) =
        texts.into_iter().partition(|(code, _)| text::canonical(code.as_ref()) == language);
    let counts =
        WordCounts::count(new.iter().map(|(code, text)| (code.as_ref(), text.as_ref())), options.cleaner)?;
    if counts.words.is_empty() {
        return Err(TokenizerError::NoText(Some(language)));
    }

    let mut vocabulary = base.vocabulary.clone();
    let first_id = vocabulary.size();
    let mut characters: BTreeSet<char> = counts.characters();
    characters.extend(text::alphabet(&language, options.cleaner).unwrap_or("").chars());
    characters.retain(|&c| !base.knows(c));
    for character in &characters {
        vocabulary.append(character.to_string());
    }

    // Split the words with the old vocabulary and the new characters: new merges continue from there.
    let widened = Tokenizer::new(vocabulary.clone())?;
    let mut pieces = Pieces::default();
    for (piece, _) in &vocabulary.pieces {
        pieces.number(piece);
    }
    let old_pieces = pieces.names.len();
    let mut words = Vec::with_capacity(counts.words.len());
    for (word, &count) in &counts.words {
        let cut = widened.split(word)?.0;
        words.push(Word { pieces: cut.iter().map(|piece| pieces.number(piece)).collect(), count });
    }
    let has_token = base.languages.contains_key(&language);
    let spent = characters.len() + usize::from(!has_token);
    let foreign = foreign_characters(base, &language, options.cleaner);
    let known: HashSet<&str> = vocabulary.pieces.iter().map(|(piece, _)| piece.as_str()).collect();
    let limits = Limits {
        room: options.new_tokens.saturating_sub(spent),
        min_frequency: options.min_frequency,
        admissible: &|piece| {
            !known.contains(piece) && (options.shared || piece.chars().any(|c| !foreign.contains(&c)))
        },
    };
    let merges = learn(words, &mut pieces, &limits);

    let name = |number: u32| pieces.names[number as usize].clone();
    vocabulary.merges.extend(merges.into_iter().map(|(a, b)| (name(a), name(b))));
    for piece in &pieces.names[old_pieces..] {
        vocabulary.append(piece.clone());
    }
    if !has_token {
        let token = format!("[{language}]");
        let id = vocabulary.append(token.clone());
        vocabulary.added.push(Added::special(&token, id));
    }
    let extended = Tokenizer::new(vocabulary)?;

    let numbered =
        || (1..).zip(&new).map(|(n, (_, text)): (u64, _)| (n.to_string(), language.as_str(), text.as_ref()));
    let report = ExtendReport {
        language_id: extended.language_id(&language).unwrap_or_default(),
        first_id,
        characters: characters.into_iter().collect(),
        pieces: pieces.names.len() - old_pieces,
        size_before: base.vocabulary_size(),
        size_after: extended.vocabulary_size(),
        before: coverage(base, numbered(), options.cleaner),
        after: coverage(&extended, numbered(), options.cleaner),
        old_texts: old.len(),
        old_texts_changed: old
            .iter()
            .filter(|(code, text)| changes(base, &extended, code.as_ref(), text.as_ref(), options.cleaner))
            .count(),
        language,
    };
    Ok((extended, report))
}

fn changes(base: &Tokenizer, extended: &Tokenizer, language: &str, text: &str, cleaner: Cleaner) -> bool {
    match (base.encode(text, language, cleaner), extended.encode(text, language, cleaner)) {
        (Ok(before), Ok(after)) => before.ids != after.ids,
        // A text that could not be encoded before cannot change.
        _ => false,
    }
}

/// Characters used by the languages of `base` other than `language`.
fn foreign_characters(base: &Tokenizer, language: &str, cleaner: Cleaner) -> HashSet<char> {
    let mut foreign = HashSet::new();
    for other in base.languages.keys().filter(|other| *other != language) {
        match (text::alphabet(other, cleaner), other.as_str()) {
            (Some(alphabet), _) => foreign.extend(alphabet.chars()),
            // XTTS writes these in Latin letters with tone numbers.
            (None, "zh-cn" | "ja" | "ko") => foreign.extend(('a'..='z').chain('0'..='9')),
            // Unknown alphabet: assume that it uses every character of the vocabulary.
            (None, _) => {
                foreign.extend(base.vocabulary.pieces.iter().filter_map(|(piece, _)| single_char(piece)))
            }
        }
    }
    foreign
}
