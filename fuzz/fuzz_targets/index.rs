#![no_main]
//! Cache indexes.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = myxtts_data::cache::index::parse(bytes);
});
