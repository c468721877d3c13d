#![no_main]
//! Seals, the committed description of a shard: as files, and behind their checksum, which no mutation
//! would ever get past.

use libfuzzer_sys::fuzz_target;
use myxtts_data::cache::seal;

fuzz_target!(|bytes: &[u8]| {
    let _ = seal::parse(bytes);
    let _ = seal::parse_content(bytes);
});
