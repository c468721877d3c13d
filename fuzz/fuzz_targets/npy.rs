#![no_main]
//! numpy arrays.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = myxtts_data::npy::read_f32(bytes);
});
