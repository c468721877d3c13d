//! Fuzzes the parsers of requests, one second each.

use crate::mutator::fuzz;
use crate::parsers;
use serde_json::json;

#[test]
fn speech() {
    let whole = json!({
        "model": "tts-1", "input": "hello \u{1F600} سلام", "voice": { "id": "anna" }, "response_format": "wav", "speed": 0.5,
        "stream_format": "sse", "instructions": "", "language": "fa", "seed": 18_446_744_073_709_551_615u64,
    });
    let seeds = [whole.to_string(), json!({ "model": "m", "input": "a", "voice": "b" }).to_string()];
    fuzz(concat!(module_path!(), "::speech"), &seeds.map(String::into_bytes), parsers::speech);
}

#[test]
fn batch() {
    let items = json!([{ "input": "a", "id": 7, "speed": 2 }, { "input": "b", "voice": "ben", "id": "x" }]);
    let seed =
        json!({ "model": "m", "voice": "anna", "response_format": "flac", "items": items }).to_string();
    fuzz(concat!(module_path!(), "::batch"), &[seed.into_bytes()], parsers::batch);
}

#[test]
fn settings() {
    let seed = json!({
        "temperature": 0.75, "speed": 1, "length_penalty": 1, "repetition_penalty": 5, "top_k": 50, "top_p": 0.85,
        "enable_text_splitting": true, "stream_chunk_size": 100,
    });
    fuzz(concat!(module_path!(), "::settings"), &[seed.to_string().into_bytes()], parsers::settings);
}

#[test]
fn socket() {
    let seeds = [
        json!({ "voice": "anna", "response_format": "opus", "speed": 1.5 }),
        json!({ "text": "hello", "flush": true }),
        json!({ "type": "cancel" }),
        json!({ "type": "end" }),
    ];
    fuzz(
        concat!(module_path!(), "::socket"),
        &seeds.map(|seed| seed.to_string().into_bytes()),
        parsers::socket,
    );
}

#[test]
fn wyoming() {
    let data = json!({ "text": "hello", "voice": { "name": "anna", "language": "en" } }).to_string();
    let head =
        json!({ "type": "synthesize", "version": "1.7.0", "data_length": data.len(), "payload_length": 0 });
    let seeds = [
        format!("{head}\n{data}"),
        format!("{}\n", json!({ "type": "synthesize-chunk", "data": { "text": "a" } })),
        format!("{}\n", json!({ "type": "describe" })),
    ];
    fuzz(concat!(module_path!(), "::wyoming"), &seeds.map(String::into_bytes), parsers::wyoming);
}

#[test]
fn upload() {
    let part = |name: &str, more: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{value}\r\n")
    };
    let recording =
        part("audio_sample", "; filename=\"a.wav\"\r\nContent-Type: audio/wav", "RIFF....WAVEfmt ");
    let all =
        [part("name", "", "mina"), part("model", "", "tts-1"), part("consent", "", "yes"), recording.clone()];
    let seeds =
        [format!("{}--x--\r\n", all.concat()), format!("{}{recording}--x--\r\n", part("name", "", "a"))];
    fuzz(concat!(module_path!(), "::upload"), &seeds.map(String::into_bytes), parsers::upload);
}

#[test]
fn run() {
    let settings = json!({ "training.gpt_steps": 7, "model.preset": "tiny", "training.seed": 1 });
    let seeds = [
        json!({ "name": "a-1", "corpus": null, "stage": "gpt", "from": "", "settings": settings }),
        json!({ "settings": {} }),
    ];
    fuzz(concat!(module_path!(), "::run"), &seeds.map(|seed| seed.to_string().into_bytes()), parsers::run);
}

#[test]
fn history() {
    let said = json!({ "text": "hello", "voice": "anna", "language": "en", "speed": 1, "seed": 0 });
    let seed = json!({ "said": said, "seconds": 1.5, "first_ms": 120, "rtf": 0.2 }).to_string();
    fuzz(concat!(module_path!(), "::history"), &[seed.into_bytes()], parsers::history);
}

#[test]
fn to_audio() {
    let seeds = [
        json!({ "text": "hello \u{1F600} سلام", "speaker_wav": "anna.wav", "language": "en" }),
        json!({ "text": "a", "speaker_wav": "b", "language": "auto", "more": [1, null] }),
    ];
    fuzz(
        concat!(module_path!(), "::to_audio"),
        &seeds.map(|seed| seed.to_string().into_bytes()),
        parsers::to_audio,
    );
}

#[test]
fn stream_query() {
    let seeds = [
        "/tts_stream/?text=hello%20w%C3%B6rld&speaker_wav=anna&language=en",
        "/tts_stream?text=a+b&speaker_wav=b.wav&language=auto&text_2=%00",
    ];
    fuzz(
        concat!(module_path!(), "::stream_query"),
        &seeds.map(|seed| seed.as_bytes().to_vec()),
        parsers::stream_query,
    );
}

#[test]
fn history_sound() {
    let seed = myxtts_data::audio::wav::encode_pcm16(&[0.5; 200], 24_000);
    fuzz(concat!(module_path!(), "::history_sound"), &[seed], parsers::history_sound);
}

#[test]
fn check() {
    let seeds = [json!({ "root": "0", "path": "" }), json!({ "root": 0, "path": "." })];
    fuzz(
        concat!(module_path!(), "::check"),
        &seeds.map(|seed| seed.to_string().into_bytes()),
        parsers::check,
    );
}

#[test]
fn diagnosis() {
    let seeds = [json!({ "stage": "decoder" }), json!({ "stage": null }), json!({})];
    fuzz(
        concat!(module_path!(), "::diagnosis"),
        &seeds.map(|seed| seed.to_string().into_bytes()),
        parsers::diagnosis,
    );
}
