#![no_main]
//! The zip container of `torch.save`.

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../parsers/model.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    parsers::archive(bytes);
});
