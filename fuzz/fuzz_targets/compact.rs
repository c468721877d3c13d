#![no_main]
//! Compact files of tensors.

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../parsers/model.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    parsers::compact(bytes);
});
