//! The parsers of `myxtts-data` that read untrusted files. Each returns whether it accepted the bytes.

use myxtts_data::audio::{self, wav};
use myxtts_data::cache::index::{self, Index};
use myxtts_data::cache::seal;
use myxtts_data::dataset::{Format, parse_metadata};
use myxtts_data::npy;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_text::Cleaner;
use std::path::Path;

/// WAV files, parsed by our own reader.
pub fn wav(bytes: &[u8]) -> bool {
    wav::decode(bytes, Path::new("fuzz.wav")).is_ok()
}

/// All other containers, parsed by symphonia. The program catches and reports panics of its decoders; a fuzzer cannot
/// distinguish those from crashes, so this is used by tests only.
#[allow(dead_code)]
pub fn sound(bytes: &[u8]) -> bool {
    audio::decode_bytes(bytes, Path::new("fuzz.sound")).is_ok()
}

/// Metadata of every layout; the first byte selects the layout.
pub fn metadata(bytes: &[u8]) -> bool {
    let Some((&which, metadata)) = bytes.split_first() else { return false };
    let format = Format::ALL[usize::from(which) % Format::ALL.len()];
    !parse_metadata(format, metadata, Path::new("metadata.csv")).entries.is_empty()
}

/// numpy arrays.
pub fn npy(bytes: &[u8]) -> bool {
    let _ = npy::parse_header(bytes);
    npy::read_f32(bytes).is_ok()
}

/// Vocabularies, and a sentence tokenised with them.
pub fn tokenizer(bytes: &[u8]) -> bool {
    let Ok(tokenizer) = Tokenizer::from_bytes(bytes, Path::new("vocab.json")) else { return false };
    for language in tokenizer.languages() {
        let _ = tokenizer.encode("A word, 3 words.", &language, Cleaner::Default);
    }
    let again = Tokenizer::from_bytes(&tokenizer.to_json(), Path::new("vocab.json"));
    assert_eq!(again.map(|again| again.fingerprint()).ok(), Some(tokenizer.fingerprint()));
    true
}

/// Seals, the committed description of a shard: as files, and with the checksum already removed, which no mutation would get
/// past.
pub fn shard(bytes: &[u8]) -> bool {
    seal::parse(bytes).is_ok() | seal::parse_content(bytes).is_ok()
}

/// Cache indexes: as files, and with the checksums bypassed, in which case every record is read.
pub fn index(bytes: &[u8]) -> bool {
    let _ = index::parse(bytes);
    let Ok(index) = Index::from_unchecked(bytes.to_vec()) else { return false };
    for record in 0..index.len().min(1000) {
        let _ = std::str::from_utf8(index.id(record)).map(|id| index.find(id));
        let _ = (index.speakers().get(index.speaker(record) as usize), index.seconds(record));
        for column in 0..index.columns().len() {
            let _ = (index.rows(record, column), index.first_row(record, column), index.crc(record, column));
        }
    }
    for shard in 0..index.shards().min(1000) {
        let _ = index.shard(shard);
    }
    true
}
