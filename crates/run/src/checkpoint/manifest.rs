//! The manifest: what a checkpoint says of itself, with a checksum over every byte of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Damage;

/// Name of the file.
pub const MANIFEST: &str = "manifest";
/// Bytes of a blob that share a checksum: large enough that the list stays small (2,000 for 8 GB), small
/// enough to say where the damage is.
pub const CHUNK_BYTES: usize = 4 << 20;
/// A manifest past this is not one of ours; what the caller says of a checkpoint is a page, not a book.
pub(super) const MAX_BYTES: u64 = 256 << 20;

const MAGIC: &str = "myxtts-checkpoint ";
const FORMAT: u32 = 1;

/// What stands in a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// How its bytes are laid out.
    format: u32,
    /// Its place in the order of saving, from 1.
    pub number: u64,
    /// Steps done.
    pub step: u64,
    /// How good it is, lower being better; `None` where nobody has measured.
    pub score: Option<f64>,
    /// What the caller says of it.
    pub meta: Value,
    /// Its parts, in the order in which they were written.
    pub blobs: Vec<Blob>,
}

/// One part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blob {
    /// Its file without the `.bin`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC-32 of each [`CHUNK_BYTES`], the last being shorter.
    pub(super) checksums: Vec<u32>,
}

impl Checkpoint {
    pub(super) fn new(number: u64, step: u64, score: Option<f64>, meta: Value, blobs: Vec<Blob>) -> Self {
        // A validation that came out as NaN must be neither the best nor a file that cannot be read.
        let score = score.filter(|score| score.is_finite());
        Checkpoint { format: FORMAT, number, step, score, meta, blobs }
    }

    /// The name of its folder.
    pub fn name(&self) -> String {
        // Padded, so that a listing of the folder is in order.
        format!("{:06}-step-{}", self.number, self.step)
    }

    /// Bytes of all its parts.
    pub fn bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.bytes).sum()
    }

    /// The part of that name.
    pub fn blob(&self, name: &str) -> Option<&Blob> {
        self.blobs.iter().find(|blob| blob.name == name)
    }

    /// The file's bytes: a line with the checksum of the rest, then JSON.
    pub(super) fn encode(&self) -> Vec<u8> {
        // Only a map with keys that are not text can fail, and `Value` has none.
        let body = serde_json::to_vec_pretty(self).expect("numbers, words and lists");
        let mut file = header(&body);
        file.extend(body);
        file
    }

    /// Reads a manifest that stands in a folder of the given name.
    pub(super) fn decode(file: &[u8], name: &str) -> Result<Checkpoint, Damage> {
        let start = file.iter().position(|&byte| byte == b'\n').ok_or(Damage::ManifestChanged)? + 1;
        let (head, body) = file.split_at(start);
        // The line is compared and not read: there is one right way to write it, and so no bit of it is free.
        if head != header(body) {
            return Err(Damage::ManifestChanged);
        }
        let unknown = |error: serde_json::Error| Damage::ManifestUnknown(error.to_string());
        let value: Value = serde_json::from_slice(body).map_err(unknown)?;
        match value.get("format").and_then(Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => return Err(Damage::ManifestUnknown(format!("its format is {format}"))),
            None => return Err(Damage::ManifestUnknown("it names no format".to_owned())),
        }
        let checkpoint: Checkpoint = serde_json::from_value(value).map_err(unknown)?;
        if checkpoint.name() != name {
            let found = format!("it is that of {}", checkpoint.name());
            return Err(Damage::ManifestUnknown(found));
        }
        for blob in &checkpoint.blobs {
            // The checksum is no signature: a name must not lead out of the folder, whoever wrote it.
            if !is_blob_name(&blob.name) {
                return Err(Damage::ManifestUnknown(format!("{:?} is no name of a part", blob.name)));
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

/// Names of parts: plain words, so that they are files everywhere.
pub(super) fn is_blob_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// `(number, step)` of a folder's name, where it is one that [`Checkpoint::name`] gives.
pub(super) fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (number, step) = name.split_once("-step-")?;
    let (number, step) = (number.parse().ok()?, step.parse().ok()?);
    (name == format!("{number:06}-step-{step}")).then_some((number, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_not() {
        assert_eq!(parse_name("000007-step-1200"), Some((7, 1200)));
        assert_eq!(parse_name("1234567-step-0"), Some((1_234_567, 0)));
        for name in ["7-step-1200", "000007-step-01", "000007-step-", "+00007-step-1", "000007", "write.lock"]
        {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_of_a_part_leads_nowhere() {
        for name in ["", "../x", "a/b", "A", ".bin", "a.b", "a\0", "é"] {
            assert!(!is_blob_name(name), "{name:?}");
        }
        assert!(is_blob_name("gpt_weights-0"));
    }

    #[test]
    fn a_manifest_with_a_right_checksum_is_still_not_believed() {
        let blob = Blob { name: "w".into(), bytes: 1, checksums: vec![1] };
        let good = Checkpoint::new(1, 2, None, Value::Null, vec![blob.clone()]);
        assert_eq!(Checkpoint::decode(&good.encode(), "000001-step-2").unwrap(), good);
        let wrong = |change: &dyn Fn(&mut Checkpoint)| {
            let mut changed = good.clone();
            change(&mut changed);
            let damage = Checkpoint::decode(&changed.encode(), "000001-step-2").unwrap_err();
            assert!(matches!(damage, Damage::ManifestUnknown(_)), "{damage}");
        };
        wrong(&|c| c.format = 2);
        wrong(&|c| c.step = 3);
        wrong(&|c| c.blobs[0].name = "../../etc/passwd".into());
        wrong(&|c| c.blobs[0].bytes = u64::MAX);
        wrong(&|c| c.blobs[0].checksums.clear());
    }

    #[test]
    fn a_score_that_is_no_number_is_no_score() {
        for score in [f64::NAN, f64::INFINITY] {
            assert_eq!(Checkpoint::new(1, 1, Some(score), Value::Null, vec![]).score, None);
        }
    }
}
