#![no_main]
//! Metadata of every layout; the first byte selects the layout.

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../parsers/data.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    parsers::metadata(bytes);
});
