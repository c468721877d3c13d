#![no_main]
//! Metadata of every layout; the first byte says which.

use libfuzzer_sys::fuzz_target;
use myxtts_data::dataset::{Format, parse_metadata};

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, metadata)) = bytes.split_first() else { return };
    let format = Format::ALL[usize::from(which) % Format::ALL.len()];
    let _ = parse_metadata(format, metadata, std::path::Path::new("metadata.csv"));
});
