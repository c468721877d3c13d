#![no_main]
//! Cache indexes: as files, and behind their checksums, where every record is then looked at.

use libfuzzer_sys::fuzz_target;
use myxtts_data::cache::index::{self, Index};

fuzz_target!(|bytes: &[u8]| {
    let _ = index::parse(bytes);
    if let Ok(index) = Index::from_unchecked(bytes.to_vec()) {
        for record in 0..index.len().min(1000) {
            let _ = index.id(record);
            let _ = std::str::from_utf8(index.id(record)).map(|id| index.find(id));
        }
        for shard in 0..index.shards().min(1000) {
            let _ = index.shard(shard);
        }
    }
});
