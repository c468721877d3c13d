//! The manifest of a checkpoint: its description, protected by a checksum.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Damage;

/// Name of the manifest file.
pub const MANIFEST: &str = "manifest";
/// Bytes covered by one checksum: large enough that there are few of them (2,000 for 8 GB), small enough to locate
/// damage.
pub const CHUNK_BYTES: usize = 4 << 20;
/// Maximum size of a manifest in bytes.
pub(super) const MAX_BYTES: u64 = 256 << 20;

const MAGIC: &str = "myxtts-checkpoint ";
const FORMAT: u32 = 1;

/// Contents of a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Version of the file format.
    format: u32,
    /// Position in the order of saving, from 1.
    pub number: u64,
    /// Number of completed steps.
    pub step: u64,
    /// Validation score, lower is better; `None` if it was not validated.
    pub score: Option<f64>,
    /// Additional data of the caller.
    pub meta: Value,
    /// Its blobs, in the order of writing.
    pub blobs: Vec<Blob>,
}

/// One blob of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blob {
    /// Its file name without `.bin`.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// CRC-32 of each chunk of [`CHUNK_BYTES`]; the last chunk may be shorter.
    pub(super) checksums: Vec<u32>,
}

impl Checkpoint {
    pub(super) fn new(number: u64, step: u64, score: Option<f64>, meta: Value, blobs: Vec<Blob>) -> Self {
        // A NaN score must neither count as the best nor make the manifest unreadable.
        let score = score.filter(|score| score.is_finite());
        Checkpoint { format: FORMAT, number, step, score, meta, blobs }
    }

    /// Name of its folder.
    pub fn name(&self) -> String {
        // Zero-padded, so that folder listings are in order.
        format!("{:06}-step-{}", self.number, self.step)
    }

    /// Total size of its blobs in bytes.
    pub fn bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.bytes).sum()
    }

    /// Finds a blob by its name.
    pub fn blob(&self, name: &str) -> Option<&Blob> {
        self.blobs.iter().find(|blob| blob.name == name)
    }

    /// Encodes the file: one line with the checksum of the rest, then JSON.
    pub(super) fn encode(&self) -> Vec<u8> {
        // Only maps with non-string keys can fail, and `Value` has none.
        let body = serde_json::to_vec_pretty(self).expect("numbers, strings and lists");
        let mut file = header(&body);
        file.extend(body);
        file
    }

    /// Decodes the manifest of the folder with the given name.
    pub(super) fn decode(file: &[u8], name: &str) -> Result<Checkpoint, Damage> {
        let start = file.iter().position(|&byte| byte == b'\n').ok_or(Damage::ManifestChanged)? + 1;
        let (head, body) = file.split_at(start);
        // Compared rather than parsed: there is one valid form, so that every bit is checked.
        if head != header(body) {
            return Err(Damage::ManifestChanged);
        }
        let unknown = |error: serde_json::Error| Damage::ManifestUnknown(error.to_string());
        let value: Value = serde_json::from_slice(body).map_err(unknown)?;
        match value.get("format").and_then(Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => return Err(Damage::ManifestUnknown(format!("its format is {format}"))),
            None => return Err(Damage::ManifestUnknown("it has no format version".to_owned())),
        }
        let checkpoint: Checkpoint = serde_json::from_value(value).map_err(unknown)?;
        if checkpoint.name() != name {
            let found = format!("it belongs to {}", checkpoint.name());
            return Err(Damage::ManifestUnknown(found));
        }
        for blob in &checkpoint.blobs {
            // The checksum is not a signature: names must not lead out of the folder.
            if !is_blob_name(&blob.name) {
                return Err(Damage::ManifestUnknown(format!("{:?} is not a valid blob name", blob.name)));
            }
            if blob.checksums.len() as u64 != blob.bytes.div_ceil(CHUNK_BYTES as u64) {
                let found = format!("{} has {} checksums", blob.name, blob.checksums.len());
                return Err(Damage::ManifestUnknown(found));
            }
        }
        Ok(checkpoint)
    }
}

fn header(body: &[u8]) -> Vec<u8> {
    format!("{MAGIC}{}\n", blake3::hash(body).to_hex()).into_bytes()
}

/// Whether a name is a valid blob name: restricted characters, so that it is a valid file name on every system.
pub(super) fn is_blob_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// Parses `(number, step)` from a folder name of the form that [`Checkpoint::name`] gives.
pub(super) fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (number, step) = name.split_once("-step-")?;
    let (number, step) = (number.parse().ok()?, step.parse().ok()?);
    (name == format!("{number:06}-step-{step}")).then_some((number, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_checkpoint_names_are_parsed() {
        assert_eq!(parse_name("000007-step-1200"), Some((7, 1200)));
        assert_eq!(parse_name("1234567-step-0"), Some((1_234_567, 0)));
        for name in ["7-step-1200", "000007-step-01", "000007-step-", "+00007-step-1", "000007", "write.lock"]
        {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }

    #[test]
    fn blob_names_cannot_escape_the_folder() {
        for name in ["", "../x", "a/b", "A", ".bin", "a.b", "a\0", "é"] {
            assert!(!is_blob_name(name), "{name:?}");
        }
        assert!(is_blob_name("gpt_weights-0"));
    }

    #[test]
    fn a_manifest_with_a_valid_checksum_is_still_validated() {
        let blob = Blob { name: "w".into(), bytes: 1, checksums: vec![1] };
        let valid = Checkpoint::new(1, 2, None, Value::Null, vec![blob.clone()]);
        assert_eq!(Checkpoint::decode(&valid.encode(), "000001-step-2").unwrap(), valid);
        let rejected = |change: &dyn Fn(&mut Checkpoint)| {
            let mut changed = valid.clone();
            change(&mut changed);
            let damage = Checkpoint::decode(&changed.encode(), "000001-step-2").unwrap_err();
            assert!(matches!(damage, Damage::ManifestUnknown(_)), "{damage}");
        };
        rejected(&|c| c.format = 2);
        rejected(&|c| c.step = 3);
        rejected(&|c| c.blobs[0].name = "../../etc/passwd".into());
        rejected(&|c| c.blobs[0].bytes = u64::MAX);
        rejected(&|c| c.blobs[0].checksums.clear());
    }

    #[test]
    fn a_nan_or_inf_score_is_dropped() {
        for score in [f64::NAN, f64::INFINITY] {
            assert_eq!(Checkpoint::new(1, 1, Some(score), Value::Null, vec![]).score, None);
        }
    }
}
