//! Audio files read into memory and identified by size and hash; a file that cannot be read is a failure of its utterance.

use std::io::{ErrorKind, Read};
use std::path::Path;

use super::fingerprint::{Fingerprint, Hash};
use super::seal::Failure;
use crate::problem::{ProblemKind, Severity};

/// Largest accepted audio file in bytes: a worker holds one whole file in memory.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Size and hash of an audio file. For an unreadable file, the hash is that of the error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceDigest {
    /// Size in bytes; `u64::MAX` if the file could not be read.
    pub size: u64,
    /// blake3 of the bytes.
    pub hash: Hash,
}

/// Why a file could not be read.
pub(super) struct Unreadable {
    kind: ProblemKind,
    detail: String,
}

impl Unreadable {
    pub(super) fn failure(&self, id: &str, key: Hash) -> Failure {
        Failure {
            id: id.to_owned(),
            key,
            kind: self.kind,
            severity: Severity::Error,
            detail: self.detail.clone(),
        }
    }

    pub(super) fn problem(&self, utterance: &crate::utterance::Utterance) -> crate::problem::Problem {
        self.failure(&utterance.id, [0; 32]).problem(utterance.origin.clone())
    }
}

/// Reads and hashes an audio file.
pub(super) fn read(path: &Path) -> (Result<Vec<u8>, Unreadable>, SourceDigest) {
    match read_bytes(path) {
        Ok(bytes) => {
            let digest = SourceDigest { size: bytes.len() as u64, hash: *blake3::hash(&bytes).as_bytes() };
            (Ok(bytes), digest)
        }
        Err(why) => {
            let hash = Fingerprint::new("no source").text("why", &why.detail).finish();
            (Err(why), SourceDigest { size: u64::MAX, hash })
        }
    }
}

/// Reads an audio file without hashing it.
pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Unreadable {
            kind: ProblemKind::Missing,
            // The messages here are hashed into the digest of an unreadable file: another wording would count as a change.
            detail: format!("{} does not exist: put it there or remove its line", path.display()),
        },
        _ => Unreadable {
            kind: ProblemKind::Unreadable,
            detail: format!("{} cannot be read: {error}", path.display()),
        },
    };
    let refused = |what: String| Unreadable {
        kind: ProblemKind::Unreadable,
        detail: format!("{} {what}", path.display()),
    };
    // Checked before opening: opening a pipe would block forever.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(refused("is not a file".into()));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(refused(format!("has {} bytes, more than one utterance can have", metadata.len())));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(refused("grows while it is read".into()));
    }
    Ok(bytes)
}
