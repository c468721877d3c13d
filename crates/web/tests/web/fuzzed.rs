//! Damaged requests, for a second each.

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
