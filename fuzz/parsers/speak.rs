//! Everything of `myxtts-speak` that reads a file which others may have written. Each says whether it took the bytes.

use myxtts_speak::voices::StoredVoice;

/// The file of a voice.
pub fn voice(bytes: &[u8]) -> bool {
    StoredVoice::from_bytes(bytes).is_ok()
}
