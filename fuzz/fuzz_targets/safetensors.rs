#![no_main]
//! safetensors files.

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../parsers/model.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    parsers::safetensors(bytes);
});
