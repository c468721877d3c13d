#![no_main]
//! Bodies, messages and events that clients send to a server; the first byte selects the kind.

use libfuzzer_sys::fuzz_target;

#[path = "../parsers/web.rs"]
mod parsers;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 13 {
        0 => parsers::speech(bytes),
        1 => parsers::batch(bytes),
        2 => parsers::settings(bytes),
        3 => parsers::socket(bytes),
        4 => parsers::upload(bytes),
        5 => parsers::run(bytes),
        6 => parsers::history(bytes),
        7 => parsers::to_audio(bytes),
        8 => parsers::stream_query(bytes),
        9 => parsers::history_sound(bytes),
        10 => parsers::check(bytes),
        11 => parsers::diagnosis(bytes),
        _ => parsers::wyoming(bytes),
    };
});
