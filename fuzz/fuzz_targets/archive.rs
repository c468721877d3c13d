#![no_main]
//! The container of `torch.save`.

use libfuzzer_sys::fuzz_target;
use myxtts_model::weights::archive::Archive;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(archive) = Archive::read(bytes) {
        let _ = archive.damaged(bytes);
        let _ = archive.entry("data.pkl").map(|entry| &bytes[entry.range.clone()]);
    }
});
