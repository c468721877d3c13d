//! Hashes that identify a recipe, the inputs of a record, and a whole store.

use super::FORMAT;
use super::source::SourceDigest;
use crate::record::Column;
use crate::utterance::Utterance;

/// A blake3 hash that identifies content.
pub type Hash = [u8; 32];

/// Hashes everything that shaped some content. Names and lengths of fields are hashed too, so that different lists of fields
/// never collide by concatenation.
pub struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    /// Starts the fingerprint of something of this kind, such as `"mel front-end"`.
    pub fn new(kind: &str) -> Self {
        Fingerprint(blake3::Hasher::new()).text("kind", kind)
    }

    /// Adds a named byte string.
    pub fn bytes(mut self, name: &str, value: &[u8]) -> Self {
        for part in [name.as_bytes(), value] {
            self.0.update(&(part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        self
    }

    /// Adds a named text.
    pub fn text(self, name: &str, value: &str) -> Self {
        self.bytes(name, value.as_bytes())
    }

    /// Adds a named integer.
    pub fn number(self, name: &str, value: u64) -> Self {
        self.bytes(name, &value.to_le_bytes())
    }

    /// Adds name, dtype and width of each column.
    pub fn columns(self, columns: &[Column]) -> Self {
        columns.iter().fold(self.number("columns", columns.len() as u64), |this, column| {
            this.text("name", column.name)
                .text("dtype", column.dtype.numpy())
                .number("width", u64::from(column.width))
        })
    }

    /// Returns the hash.
    pub fn finish(self) -> Hash {
        *self.0.finalize().as_bytes()
    }
}

/// Hashes everything except the utterances: a store with another recipe is stale as a whole.
pub fn recipe(columns: &[Column], featurizer: &Hash) -> Hash {
    Fingerprint::new("recipe")
        .number("format", u64::from(FORMAT))
        .columns(columns)
        .bytes("featurizer", featurizer)
        .finish()
}

/// Hashes the inputs of a record: equal keys mean equal arrays. The path of the audio file is left out, so a corpus may
/// move.
pub(super) fn record_key(recipe: &Hash, utterance: &Utterance, source: &SourceDigest) -> Hash {
    Fingerprint::new("record")
        .bytes("recipe", recipe)
        .text("id", &utterance.id)
        .text("text", &utterance.text)
        .text("speaker", &utterance.speaker)
        .text("language", &utterance.language)
        .number("source size", source.size)
        .bytes("source", &source.hash)
        .finish()
}

/// Hashes the inputs of a failure. The path counts here, because the stored message may name it.
pub(super) fn failure_key(record_key: &Hash, utterance: &Utterance) -> Hash {
    Fingerprint::new("failure")
        .bytes("record", record_key)
        .bytes("audio", utterance.audio.as_os_str().as_encoded_bytes())
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_collide_by_concatenation() {
        let a = Fingerprint::new("t").text("a", "bc").text("d", "").finish();
        let b = Fingerprint::new("t").text("a", "b").text("cd", "").finish();
        let c = Fingerprint::new("t").text("ab", "c").text("d", "").finish();
        assert!(a != b && b != c && a != c);
    }
}
