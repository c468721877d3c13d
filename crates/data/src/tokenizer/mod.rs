//! Token ids of cleaned texts; training, extending and measuring vocabularies.
//!
//! A text is encoded as in XTTS: clean it, prepend `[language]`, replace each space with `[SPACE]`, look up the pieces.
//! Nothing else is added; START and STOP are added by the model.

mod adopt;
mod choose;
mod cleaner;
mod coverage;
mod extend;
mod file;
mod merges;
mod train;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use myxtts_run::regular_file;
use myxtts_text::{self as text, Cleaner, TextError};
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::whitespace::Whitespace;

use file::Vocabulary;

pub use adopt::{AdoptedVocabulary, adopt};
pub use choose::{VocabularyChoice, choose};
pub use cleaner::{ChosenCleaner, choose_cleaner};
pub use coverage::{CharacterCount, Coverage, LongText, TEXT_TOKEN_LIMIT, coverage};
pub use extend::{ExtendOptions, ExtendReport, extend};
pub use train::{CHARACTERS, TrainOptions, default_vocab_size, train};

/// Maximum size of a vocabulary file in bytes (XTTS-v2's has 0.4 MB).
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Errors of reading, making or using a vocabulary.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("reading the vocabulary {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The file is not a usable vocabulary.
    #[error("{} is not an XTTS vocabulary: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The vocabulary has no token for the language.
    #[error(
        "the vocabulary has no [{language}] token (its languages: {}); add it with \
         `myxtts tokenizer extend VOCABULARY --data TEXTS --language {language} -o NEW`",
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    )]
    NoLanguage {
        /// The requested language.
        language: String,
        /// The languages of the vocabulary.
        known: Vec<String>,
    },
    /// The file belongs to a different model than the one trained further.
    #[error(
        "{} is neither the model's vocabulary nor an extension of it: {reason}; remove data.tokenizer, or create \
         one with `myxtts tokenizer extend`",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The first difference.
        reason: String,
    },
    /// The text could not be cleaned.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A text could not be cleaned while training a vocabulary.
    #[error("the text {text:?}: {source}")]
    BadText {
        /// The beginning of the text.
        text: String,
        /// The cleaner's error.
        source: TextError,
    },
    /// There is no text to learn from; names the language if only one was wanted.
    #[error("there is no text{} to learn from", .0.as_ref().map(|l| format!(" in language {l:?}")).unwrap_or_default())]
    NoText(Option<String>),
    /// Every character needs a token, and there are more characters than requested tokens.
    #[error(
        "a vocabulary of {requested} tokens is too small: characters and special tokens alone need {needed}"
    )]
    TooSmall {
        /// The requested size.
        requested: usize,
        /// The smallest possible size.
        needed: usize,
    },
    /// An error of the `tokenizers` crate.
    #[error("the tokenizers library rejected the vocabulary: {0}")]
    Engine(String),
}

/// An encoded text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Encoded {
    /// The text as it is spoken.
    pub cleaned: String,
    /// The pieces, starting with the language token.
    pub pieces: Vec<String>,
    /// The ids of the pieces.
    pub ids: Vec<i32>,
    /// Characters of the cleaned text that have no token and became `[UNK]`, each once.
    pub unknown: Vec<char>,
}

/// A vocabulary ready for encoding. Cheap to share between threads.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    engine: tokenizers::Tokenizer,
    characters: HashSet<char>,
    languages: BTreeMap<String, u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("size", &self.vocabulary_size())
            .field("languages", &self.languages())
            .finish()
    }
}

impl Tokenizer {
    /// Reads a vocabulary file.
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        let io = |source| TokenizerError::Io { path: path.to_owned(), source };
        let size = std::fs::metadata(path).map_err(io)?.len();
        if size > MAX_FILE_BYTES {
            let reason = format!("its {size} bytes exceed the limit of {MAX_FILE_BYTES}");
            return Err(TokenizerError::Broken { path: path.to_owned(), reason });
        }
        Self::from_bytes(&regular_file::read(path).map_err(io)?, path)
    }

    /// Reads a vocabulary from memory; `name` is used in messages.
    pub fn from_bytes(bytes: &[u8], name: &Path) -> Result<Self, TokenizerError> {
        let vocabulary = Vocabulary::parse(bytes)
            .map_err(|reason| TokenizerError::Broken { path: name.to_owned(), reason })?;
        Self::new(vocabulary)
    }

    /// Creates a tokenizer from a validated or generated vocabulary.
    fn new(vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let engine = engine(&vocabulary).map_err(|error| TokenizerError::Engine(error.to_string()))?;
        let characters = vocabulary.pieces.iter().filter_map(|(piece, _)| single_char(piece)).collect();
        let languages = vocabulary
            .added
            .iter()
            .filter_map(|added| Some((parse_language(&added.content)?.to_owned(), added.id)))
            .collect();
        Ok(Tokenizer { vocabulary, engine, characters, languages })
    }

    /// Cleans and encodes a text.
    pub fn encode(&self, text: &str, language: &str, cleaner: Cleaner) -> Result<Encoded, TokenizerError> {
        let code = text::canonical(language);
        if !self.languages.contains_key(&code) {
            return Err(TokenizerError::NoLanguage { language: code, known: self.languages() });
        }
        let cleaned = text::clean(text, &code, cleaner)?;
        let (pieces, ids) = self.split(&format!("[{code}]{}", spaced(&cleaned)))?;
        Ok(Encoded { pieces, ids, unknown: self.unknown(&cleaned), cleaned })
    }

    /// Returns pieces and ids of a text whose spaces are already `[SPACE]`.
    fn split(&self, text: &str) -> Result<(Vec<String>, Vec<i32>), TokenizerError> {
        let encoding = self
            .engine
            .encode_fast(text, false)
            .map_err(|error| TokenizerError::Engine(error.to_string()))?;
        // `encode_fast` returns only ids, so the pieces are looked up. The cast is safe: ids are at most a million, checked
        // when the file was read.
        let pieces = encoding.get_ids().iter().map(|&id| self.vocabulary.name(id).to_owned()).collect();
        Ok((pieces, encoding.get_ids().iter().map(|&id| id as i32).collect()))
    }

    /// Characters without a token, each once, in order. Exact: BPE starts from single characters, so a character is unknown
    /// if and only if it is not a piece.
    fn unknown(&self, cleaned: &str) -> Vec<char> {
        let mut seen = HashSet::new();
        cleaned.chars().filter(|&c| !self.knows(c) && seen.insert(c)).collect()
    }

    /// Whether a character of a cleaned text has a token.
    pub fn knows(&self, c: char) -> bool {
        c == ' ' || self.characters.contains(&c)
    }

    /// The largest id plus one: the rows of the model's text embedding.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.size()
    }

    /// Number of pieces; less than [`Self::vocabulary_size`] if ids have gaps.
    pub fn pieces(&self) -> usize {
        self.vocabulary.pieces.len()
    }

    /// Number of merges.
    pub fn merges(&self) -> usize {
        self.vocabulary.merges.len()
    }

    /// Checks that every text of `base` has the same ids here; the error describes the first difference.
    pub fn extends(&self, base: &Tokenizer) -> Result<(), String> {
        let difference = base.vocabulary.pieces.iter().find(|(piece, id)| self.vocabulary.name(*id) != piece);
        if let Some((piece, id)) = difference {
            let here = self.vocabulary.name(*id);
            return Err(format!(
                "token {id} is {piece:?} in the model's vocabulary and {here:?} in this one"
            ));
        }
        match self.vocabulary.merges.starts_with(&base.vocabulary.merges) {
            true => Ok(()),
            false => Err("its merges differ from the model's".to_owned()),
        }
    }

    /// The languages with a token, sorted.
    pub fn languages(&self) -> Vec<String> {
        self.languages.keys().cloned().collect()
    }

    /// The text of a piece; empty if no piece has the id.
    pub fn piece(&self, id: i32) -> &str {
        u32::try_from(id).map_or("", |id| self.vocabulary.name(id))
    }

    /// The id of a language's token.
    pub fn language_id(&self, language: &str) -> Option<i32> {
        self.languages.get(&text::canonical(language)).map(|&id| id as i32)
    }

    /// The id of a special token; parsing rejects files that lack one.
    fn special(&self, content: &str) -> i32 {
        let token = self.vocabulary.added.iter().find(|added| added.content == content);
        token.map_or(0, |token| token.id as i32)
    }

    /// The id the model prepends to a text.
    pub fn start_id(&self) -> i32 {
        self.special("[START]")
    }

    /// The id the model appends to a text.
    pub fn stop_id(&self) -> i32 {
        self.special("[STOP]")
    }

    /// The id of a character without a token.
    pub fn unk_id(&self) -> i32 {
        self.special("[UNK]")
    }

    /// The id of a space.
    pub fn space_id(&self) -> i32 {
        self.special("[SPACE]")
    }

    /// Serialises the vocabulary in the format of XTTS' own file.
    pub fn to_json(&self) -> Vec<u8> {
        self.vocabulary.to_json()
    }

    /// Hash of the content, independent of the layout of the file it was read from.
    pub fn fingerprint(&self) -> [u8; 32] {
        *blake3::hash(&self.to_json()).as_bytes()
    }
}

/// A cleaned text with spaces replaced for the engine.
fn spaced(cleaned: &str) -> String {
    cleaned.replace(' ', "[SPACE]")
}

/// The character of a one-character piece.
fn single_char(piece: &str) -> Option<char> {
    let mut chars = piece.chars();
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}

/// `[fa]` -> `fa`, `[zh-cn]` -> `zh-cn`; `None` for `[STOP]` and ordinary pieces.
fn parse_language(token: &str) -> Option<&str> {
    let code = token.strip_prefix('[')?.strip_suffix(']')?;
    let letters = code
        .split('-')
        .all(|part| (2..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_lowercase()));
    letters.then_some(code)
}

fn engine(vocabulary: &Vocabulary) -> tokenizers::Result<tokenizers::Tokenizer> {
    let pieces: std::collections::HashMap<String, u32> = vocabulary.pieces.iter().cloned().collect();
    let model = BPE::builder()
        .vocab_and_merges(
            pieces.into_iter().collect::<tokenizers::models::bpe::Vocab>(),
            vocabulary.merges.clone(),
        )
        .unk_token("[UNK]".to_owned())
        .build()?;
    let mut engine = tokenizers::Tokenizer::new(model);
    engine.with_pre_tokenizer(Some(Whitespace));
    for added in &vocabulary.added {
        let token = tokenizers::AddedToken::from(added.content.clone(), added.special)
            .single_word(added.single_word)
            .lstrip(added.lstrip)
            .rstrip(added.rstrip)
            .normalized(added.normalized);
        if added.special {
            engine.add_special_tokens([token])?;
        } else {
            engine.add_tokens([token])?;
        }
    }
    Ok(engine)
}
