//! Token ids from cleaned text; vocabularies trained, extended and reported on.
//!
//! A text becomes ids as in XTTS: clean, put `[language]` before it, write `[SPACE]` for each space, look the
//! pieces up. Nothing else is added; START and STOP belong to the model.

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

pub use adopt::{Adopted, adopt};
pub use choose::{Chosen, choose};
pub use cleaner::{ChosenCleaner, choose_cleaner};
pub use coverage::{CharacterCount, Coverage, LongText, TEXT_TOKEN_LIMIT, coverage};
pub use extend::{ExtendOptions, ExtendReport, extend};
pub use train::{CHARACTERS, TrainOptions, size_for, train};

/// A vocabulary larger than this is no vocabulary (XTTS-v2's is 0.4 MB).
const LARGEST_FILE: u64 = 64 << 20;

/// Why a vocabulary could not be read, made or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file could not be read.
    #[error("reading the vocabulary {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a vocabulary we can use.
    #[error("{} is not an XTTS vocabulary: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The vocabulary has no token for the language.
    #[error(
        "the vocabulary has no [{language}] token (it has {}); add the language with \
         `myxtts tokenizer extend VOCABULARY --data TEXTS --language {language} -o NEW`",
        if known.is_empty() { "no language at all".to_owned() } else { known.join(", ") }
    )]
    NoLanguage {
        /// The language asked for.
        language: String,
        /// The languages it has.
        known: Vec<String>,
    },
    /// The file is the vocabulary of something else than the model that is trained further.
    #[error(
        "{} is neither the model's vocabulary nor an extension of it: {reason}; leave data.tokenizer out, or make \
         one with `myxtts tokenizer extend`",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Where they differ.
        reason: String,
    },
    /// The text could not be cleaned.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The text could not be cleaned while a vocabulary was being made of it.
    #[error("the text {text:?}: {source}")]
    BadText {
        /// Its beginning.
        text: String,
        /// Why not.
        source: TextError,
    },
    /// Nothing to learn from.
    #[error("there is no text{} to learn from", .0.as_ref().map(|l| format!(" in language {l:?}")).unwrap_or_default())]
    NoText(Option<String>),
    /// Every character must have a token, and there are more of them than tokens were asked for.
    #[error(
        "a vocabulary of {asked} tokens was asked for, but characters and special tokens alone are {needed}"
    )]
    TooSmall {
        /// The size asked for.
        asked: usize,
        /// The smallest possible.
        needed: usize,
    },
    /// The `tokenizers` library refused.
    #[error("the tokenizers library refused the vocabulary: {0}")]
    Engine(String),
}

/// What a text became.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Encoded {
    /// The text as it is spoken.
    pub cleaned: String,
    /// The pieces, the language's token first.
    pub pieces: Vec<String>,
    /// Their ids.
    pub ids: Vec<i32>,
    /// Characters of the cleaned text that have no token and became `[UNK]`, each once.
    pub unknown: Vec<char>,
}

/// A vocabulary ready to encode with. Cheap to share between threads.
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
        if size > LARGEST_FILE {
            let reason = format!("it has {size} bytes; the largest we read is {LARGEST_FILE}");
            return Err(TokenizerError::Broken { path: path.to_owned(), reason });
        }
        Self::from_bytes(&regular_file::read(path).map_err(io)?, path)
    }

    /// Reads a vocabulary from memory; `name` stands for it in messages.
    pub fn from_bytes(bytes: &[u8], name: &Path) -> Result<Self, TokenizerError> {
        let vocabulary = Vocabulary::parse(bytes)
            .map_err(|reason| TokenizerError::Broken { path: name.to_owned(), reason })?;
        Self::new(vocabulary)
    }

    /// From a vocabulary that has been checked or made by us.
    fn new(vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let engine = engine(&vocabulary).map_err(|error| TokenizerError::Engine(error.to_string()))?;
        let characters = vocabulary.pieces.iter().filter_map(|(piece, _)| single(piece)).collect();
        let languages = vocabulary
            .added
            .iter()
            .filter_map(|added| Some((language_of(&added.content)?.to_owned(), added.id)))
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
        let (pieces, ids) = self.pieces_of(&format!("[{code}]{}", spaced(&cleaned)))?;
        Ok(Encoded { pieces, ids, unknown: self.unknown(&cleaned), cleaned })
    }

    /// Pieces and ids of a text in which spaces are `[SPACE]` already.
    fn pieces_of(&self, text: &str) -> Result<(Vec<String>, Vec<i32>), TokenizerError> {
        let encoding = self
            .engine
            .encode_fast(text, false)
            .map_err(|error| TokenizerError::Engine(error.to_string()))?;
        // `encode_fast` gives ids only; their names are ours to look up. Ids are at most a million: checked
        // when the file was read.
        let pieces = encoding.get_ids().iter().map(|&id| self.vocabulary.name(id).to_owned()).collect();
        Ok((pieces, encoding.get_ids().iter().map(|&id| id as i32).collect()))
    }

    /// Characters without a token, each once, in order. Exact: BPE starts from single characters, so a
    /// character is unknown if and only if it is no piece.
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

    /// How many pieces there are; less than [`Self::vocabulary_size`] where ids were left out.
    pub fn pieces(&self) -> usize {
        self.vocabulary.pieces.len()
    }

    /// How many merges there are.
    pub fn merges(&self) -> usize {
        self.vocabulary.merges.len()
    }

    /// Whether everything `base` says is said with the same ids here; where not, the first difference in words.
    pub fn extends(&self, base: &Tokenizer) -> Result<(), String> {
        let other = base.vocabulary.pieces.iter().find(|(piece, id)| self.vocabulary.name(*id) != piece);
        if let Some((piece, id)) = other {
            let here = self.vocabulary.name(*id);
            return Err(format!("token {id} is {piece:?} in the model's and {here:?} in this one"));
        }
        match self.vocabulary.merges.starts_with(&base.vocabulary.merges) {
            true => Ok(()),
            false => Err("it puts pieces together in another order".to_owned()),
        }
    }

    /// The languages it has a token for, in order.
    pub fn languages(&self) -> Vec<String> {
        self.languages.keys().cloned().collect()
    }

    /// The text of a piece; empty where no piece has the id.
    pub fn piece(&self, id: i32) -> &str {
        u32::try_from(id).map_or("", |id| self.vocabulary.name(id))
    }

    /// The id of a language's token.
    pub fn language_id(&self, language: &str) -> Option<i32> {
        self.languages.get(&text::canonical(language)).map(|&id| id as i32)
    }

    /// The id of a special token; the file was refused if it lacked one.
    fn special(&self, content: &str) -> i32 {
        let token = self.vocabulary.added.iter().find(|added| added.content == content);
        token.map_or(0, |token| token.id as i32)
    }

    /// The id the model puts before a text.
    pub fn start_id(&self) -> i32 {
        self.special("[START]")
    }

    /// The id the model puts behind a text.
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

    /// The vocabulary as a file, in the shape of XTTS' own.
    pub fn to_json(&self) -> Vec<u8> {
        self.vocabulary.to_json()
    }

    /// Identity of the content, whatever the layout of the file it came from.
    pub fn fingerprint(&self) -> [u8; 32] {
        *blake3::hash(&self.to_json()).as_bytes()
    }
}

/// A cleaned text as the engine wants it.
fn spaced(cleaned: &str) -> String {
    cleaned.replace(' ', "[SPACE]")
}

/// The only character of a piece.
fn single(piece: &str) -> Option<char> {
    let mut chars = piece.chars();
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}

/// `[fa]` -> `fa`, `[zh-cn]` -> `zh-cn`; none for `[STOP]` and pieces.
fn language_of(token: &str) -> Option<&str> {
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
