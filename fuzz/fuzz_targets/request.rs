#![no_main]
//! Bodies, messages and events that clients send to a server; the first byte says which.

use libfuzzer_sys::fuzz_target;

#[path = "../parsers/web.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 8 {
        0 => parsers::speech(bytes),
        1 => parsers::batch(bytes),
        2 => parsers::settings(bytes),
        3 => parsers::socket(bytes),
        4 => parsers::upload(bytes),
        5 => parsers::run(bytes),
        6 => parsers::history(bytes),
        _ => parsers::wyoming(bytes),
    };
});
