#![no_main]
//! Seals: the committed description of a shard.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = myxtts_data::cache::seal::parse(bytes);
});
