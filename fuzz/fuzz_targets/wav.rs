#![no_main]
//! WAV files, parsed by our own reader.

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../parsers/data.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    parsers::wav(bytes);
});
