#![no_main]
//! WAV files, read by our own reader. The other containers are symphonia's: there a panic of the decoder
//! is caught and reported by the program, which a fuzzer cannot tell from a crash.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = myxtts_data::audio::wav::decode(bytes, std::path::Path::new("fuzz.wav"));
});
