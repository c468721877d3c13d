//! Sound files as bytes with an identity; what cannot be read is a failure of that utterance.

use std::io::{ErrorKind, Read};
use std::path::Path;

use super::fingerprint::{Fingerprint, Hash};
use super::seal::Failure;
use crate::problem::{ProblemKind, Severity};

/// A sound file larger than this is refused: a worker holds one whole file in memory.
const LARGEST: u64 = 1 << 30;

/// Size and hash of a sound file; of one that cannot be read, a mark of why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceMark {
    /// Bytes.
    pub size: u64,
    /// blake3 of the bytes.
    pub hash: Hash,
}

/// Why there are no bytes.
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

/// Reads a sound file and marks it.
pub(super) fn read(path: &Path) -> (Result<Vec<u8>, Unreadable>, SourceMark) {
    match read_bytes(path) {
        Ok(bytes) => {
            let mark = SourceMark { size: bytes.len() as u64, hash: *blake3::hash(&bytes).as_bytes() };
            (Ok(bytes), mark)
        }
        Err(why) => {
            let hash = Fingerprint::new("no source").text("why", &why.detail).finish();
            (Err(why), SourceMark { size: u64::MAX, hash })
        }
    }
}

/// The bytes alone, where nobody asks whose they are.
pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Unreadable {
            kind: ProblemKind::Missing,
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
    // Asked before opening: a pipe would wait for ever.
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(refused("is not a file".into()));
    }
    if about.len() > LARGEST {
        return Err(refused(format!("has {} bytes, more than one utterance can have", about.len())));
    }
    let mut bytes = Vec::with_capacity(about.len() as usize);
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(refused("grows while it is read".into()));
    }
    Ok(bytes)
}
