#![no_main]
//! Configuration files.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = myxtts_run::config::parse_yaml(std::path::Path::new("fuzz.yaml"), bytes);
});
