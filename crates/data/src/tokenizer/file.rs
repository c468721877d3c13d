//! The vocabulary file: Hugging Face *tokenizers* JSON in the form XTTS uses (BPE, `[UNK]`, split at white space and between
//! letters and punctuation, no post-processing).
//!
//! Parsed and validated before it is passed to the `tokenizers` crate: the crate panics on a merge whose result is longer
//! than every piece, and accepts a vocabulary in which two pieces share an id.

use std::collections::{HashMap, HashSet};

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Maximum id. A larger one is a mistake; a model would allocate a row for each.
const MAX_ID: u32 = 1_000_000;

/// Contents of a vocabulary file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Vocabulary {
    /// Tokens matched as a whole, in file order.
    pub added: Vec<Added>,
    /// Every piece with its id, sorted by id.
    pub pieces: Vec<(String, u32)>,
    /// Pairs of pieces to merge, in order of priority. XTTS' own file has duplicates: the last one counts.
    pub merges: Vec<(String, String)>,
}

/// A token that is matched as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Added {
    pub id: u32,
    #[serde(default)]
    pub special: bool,
    pub content: String,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub normalized: bool,
}

impl Added {
    /// Creates a special token with the flags XTTS uses.
    pub fn special(content: &str, id: u32) -> Self {
        Added {
            id,
            special: true,
            content: content.to_owned(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(default)]
    version: Value,
    #[serde(default)]
    truncation: Value,
    #[serde(default)]
    padding: Value,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Model,
}

#[derive(Serialize, Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Value,
    #[serde(default)]
    dropout: Value,
    #[serde(default)]
    unk_token: Value,
    #[serde(default)]
    continuing_subword_prefix: Value,
    #[serde(default)]
    end_of_word_suffix: Value,
    #[serde(default)]
    fuse_unk: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    byte_fallback: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    ignore_merges: Value,
    vocab: Pieces,
    merges: Vec<Merge>,
}

/// Pieces in file order: a map would hide duplicates.
struct Pieces(Vec<(String, u32)>);

impl Serialize for Pieces {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (piece, id) in &self.0 {
            map.serialize_entry(piece, id)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Pieces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Pieces;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a map from pieces to ids")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pieces, A::Error> {
                let mut pieces = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    pieces.push(entry);
                }
                Ok(Pieces(pieces))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A merge as `"a b"`, as XTTS writes it, or `["a", "b"]`, as later versions of the format do.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Spaced(String),
    Pair(String, String),
}

impl Serialize for Merge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Merge::Spaced(both) => serializer.serialize_str(both),
            Merge::Pair(a, b) => serializer.collect_str(&format_args!("{a} {b}")),
        }
    }
}

impl Vocabulary {
    /// Parses and validates a file. The error describes the fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let model = document.model;
        for (what, found, wanted) in [
            ("truncation", document.truncation, Value::Null),
            ("padding", document.padding, Value::Null),
            ("normalizer", document.normalizer, Value::Null),
            ("post_processor", document.post_processor, Value::Null),
            ("pre_tokenizer", document.pre_tokenizer, serde_json::json!({"type": "Whitespace"})),
            ("model.type", model.kind, "BPE".into()),
            ("model.unk_token", model.unk_token, "[UNK]".into()),
            ("model.dropout", model.dropout, Value::Null),
        ] {
            if found != wanted {
                return Err(format!("{what} is {found}, but an XTTS vocabulary has {wanted}"));
            }
        }
        for (what, found) in [
            ("continuing_subword_prefix", model.continuing_subword_prefix),
            ("end_of_word_suffix", model.end_of_word_suffix),
            ("fuse_unk", model.fuse_unk),
            ("byte_fallback", model.byte_fallback),
            ("ignore_merges", model.ignore_merges),
        ] {
            // Older and newer writers encode "off" as null, false or an empty string.
            if !(found.is_null() || found == Value::Bool(false) || found == Value::String(String::new())) {
                return Err(format!("model.{what} is {found}, but XTTS vocabularies do not use it"));
            }
        }
        let merges = model
            .merges
            .into_iter()
            .enumerate()
            .map(|(at, merge)| match merge {
                Merge::Pair(a, b) => Ok((a, b)),
                Merge::Spaced(both) => match both.split_once(' ') {
                    Some((a, b)) if !b.contains(' ') => Ok((a.to_owned(), b.to_owned())),
                    _ => Err(format!("merge {at} is {both:?}, not two pieces separated by a space")),
                },
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut vocabulary = Vocabulary { added: document.added_tokens, pieces: model.vocab.0, merges };
        vocabulary.pieces.sort_by_key(|(_, id)| *id);
        vocabulary.check()?;
        Ok(vocabulary)
    }

    /// Checks the invariants that the `tokenizers` crate and our encoder rely on.
    fn check(&mut self) -> Result<(), String> {
        let mut ids: HashMap<String, u32> = HashMap::with_capacity(self.pieces.len());
        let mut taken: HashMap<u32, String> = HashMap::with_capacity(self.pieces.len());
        // Added tokens are usually pieces too; missing ones are added to the pieces.
        let missing: Vec<(String, u32)> = {
            let known: HashSet<&str> = self.pieces.iter().map(|(piece, _)| piece.as_str()).collect();
            self.added
                .iter()
                .filter(|added| !known.contains(added.content.as_str()))
                .map(|added| (added.content.clone(), added.id))
                .collect()
        };
        self.pieces.extend(missing);
        self.pieces.sort_by_key(|(_, id)| *id);
        for (piece, id) in &self.pieces {
            if piece.is_empty() {
                return Err(format!("the piece of id {id} is empty"));
            }
            if *id > MAX_ID {
                return Err(format!("the id of {piece:?} is {id}; the limit is {MAX_ID}"));
            }
            if ids.insert(piece.clone(), *id).is_some() {
                return Err(format!("the piece {piece:?} occurs twice"));
            }
            if let Some(other) = taken.insert(*id, piece.clone()) {
                return Err(format!("the pieces {other:?} and {piece:?} share the id {id}"));
            }
        }
        for added in &self.added {
            let id = ids.get(&added.content);
            if id != Some(&added.id) {
                let listed = id.map_or("none".to_owned(), u32::to_string);
                return Err(format!(
                    "{:?} has id {} as an added token and {listed} as a piece",
                    added.content, added.id
                ));
            }
        }
        for wanted in ["[STOP]", "[UNK]", "[SPACE]", "[START]"] {
            if !self.added.iter().any(|added| added.content == wanted) {
                return Err(format!("the special token {wanted} is missing"));
            }
        }
        for (a, b) in &self.merges {
            for piece in [a.clone(), b.clone(), format!("{a}{b}")] {
                if !ids.contains_key(&piece) {
                    return Err(format!(
                        "the merge of {a:?} and {b:?} needs the piece {piece:?}, which is missing"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The largest id plus one: the rows of a model's text embedding.
    pub fn size(&self) -> usize {
        self.pieces.last().map_or(0, |(_, id)| *id as usize + 1)
    }

    /// The piece with an id; empty if there is none.
    pub fn name(&self, id: u32) -> &str {
        match self.pieces.binary_search_by_key(&id, |(_, id)| *id) {
            Ok(at) => &self.pieces[at].0,
            Err(_) => "",
        }
    }

    /// Appends a new piece and returns its id.
    pub fn append(&mut self, piece: String) -> u32 {
        let id = self.pieces.last().map_or(0, |(_, id)| id + 1);
        self.pieces.push((piece, id));
        id
    }

    /// Serialises in the form of XTTS' own file: merges as `"a b"`, which every version of `tokenizers` reads.
    pub fn to_json(&self) -> Vec<u8> {
        let document = Document {
            version: "1.0".into(),
            truncation: Value::Null,
            padding: Value::Null,
            added_tokens: self.added.clone(),
            normalizer: Value::Null,
            pre_tokenizer: serde_json::json!({"type": "Whitespace"}),
            post_processor: Value::Null,
            decoder: Value::Null,
            model: Model {
                kind: "BPE".into(),
                dropout: Value::Null,
                unk_token: "[UNK]".into(),
                continuing_subword_prefix: Value::Null,
                end_of_word_suffix: Value::Null,
                fuse_unk: Value::Bool(false),
                byte_fallback: Value::Null,
                ignore_merges: Value::Null,
                vocab: Pieces(self.pieces.clone()),
                merges: self.merges.iter().map(|(a, b)| Merge::Pair(a.clone(), b.clone())).collect(),
            },
        };
        let mut json = serde_json::to_vec_pretty(&document).expect("strings and numbers serialise to JSON");
        json.push(b'\n');
        json
    }
}
