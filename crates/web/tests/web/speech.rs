//! `POST /v1/audio/speech`, as used by OpenAI clients.

use crate::client::{Answer, get, post, send};
use crate::fake::{self, WORD, hum, wait_for};
use myxtts_data::audio::decode_bytes;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;

const SPEECH: &str = "/v1/audio/speech";

pub fn body(text: &str, more: &Json) -> Json {
    let mut body = json!({ "model": "tts-1", "input": text, "voice": "anna" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn speech(address: SocketAddr, text: &str, more: Json) -> Answer {
    post(address, SPEECH, &body(text, &more))
}

/// Samples of a response, decoded by an independent decoder.
fn decoded(format: &str, bytes: &[u8]) -> Vec<f32> {
    match format {
        "pcm" => bytes
            .chunks_exact(2)
            .map(|two| f32::from(i16::from_le_bytes([two[0], two[1]])) / 32768.0)
            .collect(),
        "opus" => opus(bytes),
        format => {
            let found = decode_bytes(bytes, Path::new(format)).unwrap();
            assert_eq!(found.clip.sample_rate, 24_000);
            found.clip.samples
        }
    }
}

fn opus(bytes: &[u8]) -> Vec<f32> {
    let mut reader = opus_pure::OggOpusReader::new(bytes).unwrap();
    let mut decoder = reader.head().decoder(24_000).unwrap();
    let mut trim = opus_pure::Trim::new(reader.head(), 24_000, 1).unwrap();
    let mut block = vec![0.0; opus_pure::MAX_PACKET_SAMPLES];
    let mut samples = Vec::new();
    for packet in reader.packets() {
        let packet = packet.unwrap();
        let count = decoder.decode(&packet.data, opus_pure::MAX_PACKET_SAMPLES, &mut block).unwrap();
        samples.extend_from_slice(trim.keep(&packet, &block[..count]));
    }
    samples
}

#[test]
fn every_format_can_be_decoded() {
    let (server, _) = fake::start(None, 4);
    let original: Vec<f32> = (0..5).flat_map(|_| hum()).collect();
    for (format, kind) in [
        ("wav", "audio/wav"),
        ("flac", "audio/flac"),
        ("pcm", "audio/pcm"),
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg"),
    ] {
        for framing in ["audio", "sse"] {
            let answer = speech(
                server.address(),
                "one two three four five",
                json!({ "response_format": format, "stream_format": framing }),
            );
            assert_eq!(answer.status, 200, "{format}");
            let bytes = if framing == "sse" {
                assert_eq!(answer.header("content-type"), Some("text/event-stream"));
                events(&answer.body)
            } else {
                assert_eq!(answer.header("content-type"), Some(kind));
                answer.body
            };
            let back = decoded(format, &bytes);
            let power = |samples: &[f32]| samples.iter().map(|s| s * s).sum::<f32>() / samples.len() as f32;
            if ["wav", "flac", "pcm"].contains(&format) {
                assert_eq!(back.len(), original.len(), "{format}");
                let apart = back.iter().zip(&original).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(apart <= 0.6 / 32768.0, "{format}: {apart}");
            } else {
                assert!(
                    back.len() >= original.len() && back.len() < original.len() + 6000,
                    "{format}: {}",
                    back.len()
                );
                let ratio = power(&back[2000..original.len()]) / power(&original);
                assert!((0.8..1.25).contains(&ratio), "{format}: {ratio}");
            }
        }
    }
    // The default is mp3; a streamed WAV file declares an unknown length.
    let mp3 = speech(server.address(), "one", json!({}));
    assert_eq!(mp3.header("content-type"), Some("audio/mpeg"));
    let wav = speech(server.address(), "one", json!({ "response_format": "wav" }));
    assert_eq!(&wav.body[..4], b"RIFF");
    assert_eq!(&wav.body[4..8], &[0xff; 4]);
}

/// Audio of server-sent events, which end with the usage.
fn events(body: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(body).unwrap();
    let all: Vec<Json> = text
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect();
    let (done, deltas) = all.split_last().unwrap();
    assert_eq!(done["type"], "speech.audio.done");
    assert_eq!(done["usage"], json!({ "input_tokens": 5, "output_tokens": 5, "total_tokens": 10 }));
    let mut bytes = Vec::new();
    for delta in deltas {
        assert_eq!(delta["type"], "speech.audio.delta");
        bytes.extend(base64(delta["audio"].as_str().unwrap()));
    }
    bytes
}

fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{c}"),
    };
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').map(value).collect();
    let mut bytes = Vec::new();
    for four in digits.chunks(4) {
        let bits =
            four.iter().enumerate().fold(0u32, |bits, (i, digit)| bits | u32::from(*digit) << (18 - 6 * i));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

#[test]
fn audio_is_streamed_while_it_is_spoken() {
    let (server, shared) = fake::start(None, 4);
    for framing in ["audio", "sse"] {
        shared.released.store(false, Ordering::SeqCst);
        let request =
            body("hold on", &json!({ "response_format": "pcm", "stream_format": framing })).to_string();
        let mut sent = send(
            server.address(),
            "POST",
            SPEECH,
            &[("Content-Type", "application/json")],
            request.as_bytes(),
        );
        assert_eq!(sent.status, 200);
        let first = sent.piece().unwrap().unwrap();
        assert!(first.len() >= 2 * WORD, "{}", first.len());
        assert_eq!(
            shared.speaking.load(Ordering::SeqCst),
            1,
            "the first sound is here before the speech has ended"
        );
        shared.released.store(true, Ordering::SeqCst);
        let rest = sent.answer().body;
        assert!(rest.len() >= 2 * WORD);
    }
}

#[test]
fn fields_reach_the_speaker() {
    let (server, shared) = fake::start(None, 4);
    let more = json!({ "speed": 0.25, "seed": 7, "language": "fa", "voice": { "id": "anna" }, "response_format": "pcm",
                       "temperature": 0.5, "top_p": 0.8 });
    assert_eq!(speech(server.address(), "hello", more).status, 200);
    let received = shared.received.lock().unwrap().pop().unwrap();
    assert_eq!((received.speed, received.seed, received.voice.as_str()), (0.25, 7, "anna"));
    assert_eq!(received.language.as_deref(), Some("fa"));
    assert_eq!(
        (received.sampling.temperature, received.sampling.top_p, received.sampling.top_k),
        (Some(0.5), Some(0.8), None)
    );
}

#[test]
fn invalid_fields_are_named() {
    let (server, shared) = fake::start(None, 4);
    let address = server.address();
    for (more, param) in [
        (json!({ "response_format": "aac" }), "response_format"),
        (json!({ "response_format": "ogg" }), "response_format"),
        (json!({ "response_format": 3 }), "response_format"),
        (json!({ "speed": 0.2 }), "speed"),
        (json!({ "speed": 4.1 }), "speed"),
        (json!({ "speed": "fast" }), "speed"),
        (json!({ "temperature": 0 }), "temperature"),
        (json!({ "top_p": "all" }), "top_p"),
        (json!({ "voice": null }), "voice"),
        (json!({ "voice": {} }), "voice"),
        (json!({ "voice": 3 }), "voice"),
        (json!({ "voice": "nobody" }), "voice"),
        (json!({ "input": null }), "input"),
        (json!({ "input": "" }), "input"),
        (json!({ "input": "..." }), "input"),
        (json!({ "input": ["a"] }), "input"),
        (json!({ "input": "a".repeat(4097) }), "input"),
        (json!({ "model": null }), "model"),
        (json!({ "model": 1 }), "model"),
        (json!({ "stream_format": "video" }), "stream_format"),
        (json!({ "instructions": "whisper" }), "instructions"),
        (json!({ "seed": -1 }), "seed"),
        (json!({ "language": {} }), "language"),
    ] {
        let error = speech(address, "hello", more.clone()).error(400);
        assert_eq!(error["param"], param, "{more}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    assert_eq!(speech(address, "hello", json!({ "model": "other" })).error(404)["code"], "model_not_found");
    assert!(
        speech(address, "hello", json!({ "response_format": "aac" })).error(400)["message"]
            .as_str()
            .unwrap()
            .contains("AAC")
    );
    // The maximum number of characters, whatever their size in bytes.
    assert_eq!(speech(address, &"گ".repeat(4096), json!({})).status, 200);
    for wrong in ["", "{", "[]", "3", "\"text\"", "{\"model\":}", "\u{0}"] {
        let sent = send(address, "POST", SPEECH, &[("Content-Type", "application/json")], wrong.as_bytes());
        assert_eq!(sent.answer().error(400)["code"], "invalid_json", "{wrong:?}");
    }
    let json = body("hello", &json!({})).to_string();
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    send(address, "POST", SPEECH, &kind, json.as_bytes()).answer().error(415);
    let long = vec![b' '; 200 << 10];
    send(address, "POST", SPEECH, &[("Content-Type", "application/json")], &long).answer().error(413);
    assert_eq!(get(address, "/v1/nothing").error(404)["message"], "there is no route /v1/nothing");
    let voice = "/v1/audio/voices/mina";
    for (method, path, allowed) in [
        ("GET", SPEECH, "POST"),
        ("DELETE", "/v1/audio/voices", "GET,HEAD,POST"),
        ("POST", voice, "DELETE"),
        ("POST", "/health", "GET,HEAD"),
        ("DELETE", "/", "GET,HEAD"),
    ] {
        let answer = send(address, method, path, &[], b"").answer();
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
        let message = format!("{path} does not support {method}: use {}", allowed.replace(',', " or "));
        assert_eq!(answer.error(405)["message"], message);
    }
    assert_eq!(speech(address, "fail", json!({})).error(500)["type"], "server_error");
    // Every error was a response, and the speaker still works.
    assert_eq!(shared.speaking.load(Ordering::SeqCst), 0);
}

#[test]
fn truncated_speech_is_detectable() {
    let (server, _) = fake::start(None, 4);
    let request = body("break now", &json!({ "response_format": "pcm" })).to_string();
    let kind = [("Content-Type", "application/json")];
    let mut sent = send(server.address(), "POST", SPEECH, &kind, request.as_bytes());
    assert_eq!(sent.piece().unwrap().unwrap().len(), 2 * WORD);
    assert!(sent.piece().is_err(), "the connection is cut before the end of the body");
    let sse =
        speech(server.address(), "break now", json!({ "stream_format": "sse", "response_format": "pcm" }));
    let text = String::from_utf8(sse.body).unwrap();
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    let last: Json = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&last["type"], &last["error"]["code"]), (&json!("error"), &json!("synthesis_failed")));
}

#[test]
fn status_and_metrics() {
    let (server, _) = fake::start(None, 4);
    let address = server.address();
    assert_eq!(get(address, "/health").status, 200);
    assert_eq!(get(address, "/ready").json()["status"], "ready");
    let models = get(address, "/v1/models").json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("hummer")));
    assert!(models["data"][0]["created"].is_u64() && models["data"][0]["object"] == "model");
    assert_eq!(get(address, "/audio/models").json()["models"][0]["id"], "hummer");
    assert_eq!(speech(address, "one two", json!({})).status, 200);
    speech(address, "...", json!({})).error(400);
    let metrics = String::from_utf8(get(address, "/metrics").body).unwrap();
    for line in [
        "myxtts_requests_total{route=\"/v1/audio/speech\",status=\"200\"} 1",
        "myxtts_errors_total{route=\"/v1/audio/speech\",status=\"400\"} 1",
        "myxtts_queue_length 0",
        "myxtts_ready 1",
        "myxtts_sound_seconds_total 0.4",
        "myxtts_first_sound_seconds_count 1",
        "myxtts_first_sound_seconds_bucket{le=\"+Inf\"} 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is missing in\n{metrics}");
    }
}

#[test]
fn a_server_is_not_ready_before_its_speaker() {
    let (opened, open) = std::sync::mpsc::channel::<()>();
    let shared = std::sync::Arc::new(fake::Shared::default());
    let hummer = shared.clone();
    let open = std::sync::Mutex::new(open);
    let served = fake::served("hummer", shared, move || {
        let _ = open.lock().unwrap().recv();
        Ok(fake::Hummer(hummer.clone()))
    });
    let server = myxtts_web::Server::start(fake::options(None, 1), vec![served], None).unwrap();
    let ready = get(server.address(), "/ready");
    assert!(ready.header("retry-after").is_some());
    ready.error(503);
    assert_eq!(get(server.address(), "/health").status, 200);
    drop(opened);
    wait_for(|| get(server.address(), "/ready").status == 200);
}
