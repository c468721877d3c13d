#![no_main]
//! `config.json` as Python writes it.

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../parsers/model.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    parsers::configuration(bytes);
});
