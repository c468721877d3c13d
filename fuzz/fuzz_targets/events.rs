#![no_main]
//! Event logs.

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../parsers/run.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    parsers::events(bytes);
});
