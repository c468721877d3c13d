//! Identities: of a recipe, of what shaped one record, of a whole store.

use super::FORMAT;
use super::source::SourceMark;
use crate::record::Column;
use crate::utterance::Utterance;

/// 32 bytes that stand for content.
pub type Hash = [u8; 32];

/// Gathers everything that shaped something. Fields carry their names and lengths, so that two
/// different lists of fields never run together.
pub struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    /// The identity of a thing of this kind, such as `"mel front-end"`.
    pub fn new(kind: &str) -> Self {
        Fingerprint(blake3::Hasher::new()).text("kind", kind)
    }

    /// Adds bytes.
    pub fn bytes(mut self, name: &str, value: &[u8]) -> Self {
        for part in [name.as_bytes(), value] {
            self.0.update(&(part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        self
    }

    /// Adds text.
    pub fn text(self, name: &str, value: &str) -> Self {
        self.bytes(name, value.as_bytes())
    }

    /// Adds a number.
    pub fn number(self, name: &str, value: u64) -> Self {
        self.bytes(name, &value.to_le_bytes())
    }

    /// Adds a real number, bit by bit.
    pub fn real(self, name: &str, value: f64) -> Self {
        self.bytes(name, &value.to_bits().to_le_bytes())
    }

    /// Adds columns.
    pub fn columns(self, columns: &[Column]) -> Self {
        columns.iter().fold(self.number("columns", columns.len() as u64), |this, column| {
            this.text("name", column.name)
                .text("dtype", column.dtype.numpy())
                .number("width", u64::from(column.width))
        })
    }

    /// The identity.
    pub fn finish(self) -> Hash {
        *self.0.finalize().as_bytes()
    }
}

/// Identity of everything but the utterances: a store with another recipe is stale as a whole.
pub fn recipe(columns: &[Column], featurizer: &Hash) -> Hash {
    Fingerprint::new("recipe")
        .number("format", u64::from(FORMAT))
        .columns(columns)
        .bytes("featurizer", featurizer)
        .finish()
}

/// Identity of what shaped a record: equal keys mean equal arrays. The path of the sound file is not
/// in it: a corpus may move.
pub(super) fn record_key(recipe: &Hash, utterance: &Utterance, source: &SourceMark) -> Hash {
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

/// Identity of a failure. Here the path counts, because the stored words may name it.
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
    fn fields_never_run_together() {
        let a = Fingerprint::new("t").text("a", "bc").text("d", "").finish();
        let b = Fingerprint::new("t").text("a", "b").text("cd", "").finish();
        let c = Fingerprint::new("t").text("ab", "c").text("d", "").finish();
        assert!(a != b && b != c && a != c);
    }
}
