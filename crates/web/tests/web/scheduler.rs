//! Continuous batching of requests with a real model.

use crate::client::{Sent, get, post, send};
use crate::fake::wait_for;
use crate::model::{add_voice, recording, start_with};
use crate::speech::body;
use myxtts_model::weights::Part;
use myxtts_web::Server;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

const SPEECH: &str = "/v1/audio/speech";

/// A server with a voice and the given number of slots, whose speech ends at the model's limit.
fn start(at: &Path, slots: usize) -> Server {
    let server = start_with(at, &[Part::Decoder, Part::Speaker], -50.0, Some(slots));
    assert_eq!(add_voice(&server, "anna", &recording()).status, 200);
    server
}

fn say(server: &Server, text: &str, seed: u64) -> Vec<u8> {
    let request = body(text, &json!({ "response_format": "pcm", "seed": seed }));
    let answer = post(server.address(), SPEECH, &request);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.body
}

fn begin(server: &Server, text: &str) -> Sent {
    let request = body(text, &json!({ "response_format": "pcm" })).to_string();
    let json = [("Content-Type", "application/json")];
    let sent = send(server.address(), "POST", SPEECH, &json, request.as_bytes());
    assert_eq!(sent.status, 200);
    sent
}

fn long_text(times: usize) -> String {
    "this is a voice. hello world, hello. ".repeat(times)
}

#[test]
fn simultaneous_requests_give_the_same_audio_as_single_ones() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path(), 3);
    let texts = [
        "hello world",
        "this is a voice",
        "hello. [pause:200ms] world",
        "a",
        "world. this is a voice, hello, this is a voice. hello world. hello, hello",
        "voice",
    ];
    let alone: Vec<Vec<u8>> = texts.iter().zip(0..).map(|(text, seed)| say(&server, text, seed)).collect();
    let together = std::thread::scope(|scope| {
        let server = &server;
        let one = |(text, seed): (&'static str, u64)| scope.spawn(move || say(server, text, seed));
        let all: Vec<_> = texts.into_iter().zip(0..).map(one).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    for ((text, alone), together) in texts.iter().zip(alone).zip(together) {
        assert!(alone == together, "{text:?}: {} and {} bytes", alone.len(), together.len());
    }
}

#[test]
fn a_short_request_does_not_wait_for_the_end_of_a_long_one() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path(), 1);
    let mut long = begin(&server, &long_text(20));
    long.piece().unwrap();
    let start = Instant::now();
    say(&server, "hello world", 0);
    let waited = start.elapsed();
    let mut pieces = 0;
    while long.piece().unwrap().is_some() {
        pieces += 1;
    }
    let all = start.elapsed();
    assert!(pieces > 10 && 3 * waited < all, "{waited:?} of {all:?}, {pieces} pieces after it");
}

#[test]
fn disconnected_clients_free_their_slot_and_slow_ones_do_not_delay_others() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path(), 1);
    let mut gone = begin(&server, &long_text(100));
    gone.piece().unwrap();
    drop(gone);
    let left = Instant::now();
    wait_for(|| server.metrics().in_flight() == 0);
    assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
    assert_eq!(server.metrics().cancelled(), 1);

    let slow = begin(&server, &long_text(100));
    // The client reads nothing: the pending audio reaches the limit, and speech pauses.
    let audio_seconds = || {
        let text = String::from_utf8(get(server.address(), "/metrics").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("myxtts_sound_seconds_total ")).unwrap();
        line.parse::<f64>().unwrap()
    };
    let mut before = -1.0;
    wait_for(|| {
        std::thread::sleep(Duration::from_millis(300));
        let now = audio_seconds();
        std::mem::replace(&mut before, now) == now
    });
    assert_eq!(server.metrics().in_flight(), 1, "it is not finished");
    assert!(!say(&server, "hello world", 0).is_empty());
    let length = slow.answer().body.len();
    assert!(length > 4 << 20, "all of it arrives in the end: {length} bytes");
}
