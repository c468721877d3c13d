//! The real speaker with a small untrained model.

use crate::client::{form, get, post, send};
use crate::fake::{options, served, wait_for};
use crate::speech::body;
use crate::tiny;
use myxtts_data::audio::{decode_bytes, wav};
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_tensor::Device;
use myxtts_web::{ModelSpeaker, ModelVoices, Server, Speaker};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

const SPEECH: &str = "/v1/audio/speech";

/// A server with a model in a folder, without a voice.
pub fn start(at: &Path, parts: &[Part]) -> Server {
    // A model with an earlier end would produce no audio for a short text.
    let stop = if parts.contains(&Part::Dvae) { -50.0 } else { 1.0 };
    start_with(at, parts, stop, None)
}

/// [`start`] for a model that ends earlier with a larger `stop`, and with the given number of slots.
pub fn start_with(at: &Path, parts: &[Part], stop: f32, slots: Option<usize>) -> Server {
    tiny::write_ending(&at.join("model"), parts, stop);
    let folder = Arc::new(ModelFolder::open(&at.join("model")).unwrap());
    let voices = Arc::new(ModelVoices::new(folder.clone(), false));
    let open = move || ModelSpeaker::open(folder.clone(), Device::Cpu, &[], slots);
    let server = Server::start(options(None, 8), vec![served("hummer", voices, open)], None).unwrap();
    wait_for(|| server.facts().is_some());
    server
}

pub fn recording() -> Vec<u8> {
    let speech = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    wav::encode_pcm16(&speech, demo::SAMPLE_RATE)
}

pub fn add_voice(server: &Server, name: &str, recording: &[u8]) -> crate::client::Answer {
    let (kind, body) = form(name, recording);
    send(server.address(), "POST", "/v1/audio/voices", &[("Content-Type", &kind)], &body).answer()
}

fn samples(server: &Server, text: &str, more: serde_json::Value) -> Vec<f32> {
    let mut request = body(text, &json!({ "response_format": "wav" }));
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = post(server.address(), SPEECH, &request);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let found = decode_bytes(&answer.body, Path::new("speech.wav")).unwrap();
    assert_eq!(found.clip.sample_rate, 24_000);
    found.clip.samples
}

#[test]
fn a_model_speaks_with_an_uploaded_voice() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path(), &[Part::Decoder, Part::Speaker]);
    let address = server.address();
    assert_eq!(get(address, "/audio/voices").json(), json!({ "voices": [] }));
    let no_voice = post(address, SPEECH, &body("hello", &json!({ "voice": "default" })));
    assert_eq!(no_voice.error(400)["param"], "voice");
    let added = add_voice(&server, "anna", &recording());
    assert_eq!(added.status, 200, "{}", added.json());
    assert!(added.json()["seconds"].as_f64().unwrap() > 0.5);
    assert!(at.path().join("model/voices/anna.safetensors").is_file());
    assert_eq!(add_voice(&server, "noise", b"no sound at all").error(400)["param"], "audio_sample");
    let silent = add_voice(&server, "quiet", &wav::encode_pcm16(&[0.0; 30_000], 16_000)).error(400);
    assert!(!silent["message"].as_str().unwrap().contains("myxtts-upload"), "{silent}");

    let usual = samples(&server, "hello world", json!({}));
    assert!(usual.iter().any(|sample| sample.abs() > 0.01), "it is received");
    assert_eq!(
        usual,
        samples(&server, "hello world", json!({ "voice": "default" })),
        "the same seed, the same sound"
    );
    let mixed = samples(&server, "hello world", json!({ "voice": "anna(2)+anna(1)" }));
    assert_eq!(usual.len(), mixed.len());
    for speed in [0.25, 0.5, 2.0, 4.0] {
        let length = samples(&server, "hello world", json!({ "speed": speed })).len() as f64;
        let ratio = length * speed / usual.len() as f64;
        assert!((0.9..1.1).contains(&ratio), "{speed}: {ratio}");
    }
    // Longer than one piece, with a pause.
    let long =
        samples(&server, &format!("hello. [pause:500ms] {}", "this is a voice. ".repeat(8)), json!({}));
    assert!(long.len() > 12_000 + usual.len(), "{}", long.len());
    let xtts = get(address, "/tts_stream/?text=hello%20world&speaker_wav=anna&language=en");
    assert_eq!(decode_bytes(&xtts.body, Path::new("x.wav")).unwrap().clip.samples, usual);

    for (more, param) in [
        (json!({ "language": "xx" }), "language"),
        (json!({ "voice": "nobody" }), "voice"),
        (json!({ "voice": "anna(0)" }), "voice"),
        (json!({ "input": "漢字漢字漢字" }), "input"),
        (json!({ "input": "[pause:600s] hello" }), "input"),
    ] {
        let error = post(address, SPEECH, &body("hello", &more)).error(400);
        assert_eq!(error["param"], param, "{more}: {error}");
    }
    assert_eq!(send(address, "DELETE", "/v1/audio/voices/anna", &[], b"").answer().status, 200);
    assert!(!at.path().join("model/voices/anna.safetensors").exists());
    server.stop();
    server.wait().unwrap();
}

#[test]
fn a_model_without_a_decoder_speaks_at_the_rate_of_the_api() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path(), &[Part::Dvae]);
    assert_eq!(add_voice(&server, "anna", &recording()).status, 200);
    assert!(!samples(&server, "hello", json!({})).is_empty());
    for format in ["opus", "mp3", "pcm", "flac"] {
        let answer = post(server.address(), SPEECH, &body("hello", &json!({ "response_format": format })));
        assert_eq!(answer.status, 200, "{format}");
    }
}

#[test]
fn a_model_without_a_greeting_in_its_languages_speaks_before_it_is_ready() {
    let at = tempfile::tempdir().unwrap();
    tiny::write_reading(&at.path().join("model"), &[Part::Decoder, Part::Speaker], &[("cs", "dobrý den")]);
    let folder = Arc::new(ModelFolder::open(&at.path().join("model")).unwrap());
    let mut speaker = ModelSpeaker::open(folder.clone(), Device::Cpu, &[], Some(2)).unwrap();
    assert_eq!(speaker.facts().languages, ["cs"]);
    let spoken = speaker.greet().unwrap();
    assert!(spoken.chars().all(char::is_alphanumeric) && !spoken.is_empty(), "{spoken}");
}

#[test]
fn a_model_that_cannot_be_opened_ends_the_server() {
    let at = tempfile::tempdir().unwrap();
    tiny::write(&at.path().join("model"), &[]);
    let folder = Arc::new(ModelFolder::open(&at.path().join("model")).unwrap());
    let voices = Arc::new(ModelVoices::new(folder.clone(), false));
    let open = move || ModelSpeaker::open(folder.clone(), Device::Cpu, &[], None);
    let server = Server::start(options(None, 8), vec![served("hummer", voices, open)], None).unwrap();
    wait_for(|| server.is_stopping());
    assert!(matches!(server.wait(), Err(myxtts_web::ServeError::Speaker(_))));
}
