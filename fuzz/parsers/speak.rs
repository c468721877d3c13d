//! The parsers of `myxtts-speak` that read untrusted files. Each returns whether it accepted the bytes.

use myxtts_speak::voices::StoredVoice;

/// A voice file.
pub fn voice(bytes: &[u8]) -> bool {
    StoredVoice::from_bytes(bytes).is_ok()
}
