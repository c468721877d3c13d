#![no_main]
//! Sound files of every container, decided by content as in the program.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = myxtts_data::audio::decode_bytes(bytes, std::path::Path::new("fuzz.wav"));
});
