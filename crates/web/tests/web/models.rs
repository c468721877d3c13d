//! Several models, no model, and opening and closing of models.

use crate::client::{Answer, get, post, send};
use crate::fake::{self, Hummer, Shared, WORD, served, wait_for};
use crate::speech::body;
use myxtts_speak::SpeakError;
use myxtts_web::{ModelLimits, ServedModel, Server};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SPEECH: &str = "/v1/audio/speech";

/// A named hummer, what it received, and how often it was opened.
fn hummer(name: &str, bytes: u64) -> (ServedModel, Arc<Shared>, Arc<AtomicUsize>) {
    let shared = Arc::new(Shared { voices: Mutex::new(vec!["anna".to_owned()]), ..Shared::default() });
    let opened = Arc::new(AtomicUsize::new(0));
    let (speaks, counts) = (shared.clone(), opened.clone());
    let model = served(name, shared.clone(), move || {
        counts.fetch_add(1, Ordering::SeqCst);
        Ok(Hummer(speaks.clone()))
    });
    (ServedModel { bytes, ..model }, shared, opened)
}

fn start(models: Vec<ServedModel>, model_limits: ModelLimits) -> Server {
    let options = myxtts_web::ServerOptions { model_limits, ..fake::options(None, 4) };
    let server = Server::start(options, models, None).unwrap();
    wait_for(|| server.facts().is_some());
    server
}

fn say(address: SocketAddr, model: &str, text: &str) -> Answer {
    post(address, SPEECH, &body(text, &json!({ "model": model, "response_format": "pcm" })))
}

fn is_open(server: &Server, name: &str) -> bool {
    server.models().iter().any(|model| model.name == name && model.is_open)
}

#[test]
fn models_are_chosen_by_name_and_opened_on_demand() {
    let (first, of_first, _) = hummer("first", 1);
    let (second, of_second, opened) = hummer("second", 1);
    let server = start(vec![first, second], ModelLimits::default());
    let address = server.address();
    let listed = get(address, "/v1/models").json();
    assert_eq!(listed["data"][0]["id"], "first");
    assert_eq!(listed["models"][1]["name"], "second");
    assert_eq!((opened.load(Ordering::SeqCst), is_open(&server, "second")), (0, false));
    assert_eq!(say(address, "tts-1", "one").status, 200);
    assert_eq!(say(address, "second", "two words").body.len(), 4 * WORD);
    assert_eq!(say(address, "third", "three").error(404)["code"], "model_not_found");
    let received = |shared: &Shared| {
        shared.received.lock().unwrap().iter().map(|one| one.text.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (received(&of_first), received(&of_second)),
        (vec!["one".to_owned()], vec!["two words".to_owned()])
    );
    assert_eq!(opened.load(Ordering::SeqCst), 1);
    // Voices belong to a model.
    of_second.voices.lock().unwrap().push("ben".to_owned());
    assert_eq!(get(address, "/v1/audio/voices").json()["voices"].as_array().unwrap().len(), 1);
    assert_eq!(get(address, "/v1/audio/voices?model=second").json()["voices"].as_array().unwrap().len(), 2);
    get(address, "/v1/audio/voices?model=third").error(404);
    let metrics = String::from_utf8(get(address, "/metrics").body).unwrap();
    assert!(metrics.contains("myxtts_model_open{model=\"second\"} 1"), "{metrics}");
}

#[test]
fn the_least_recently_used_model_is_closed_but_never_one_that_speaks() {
    let (first, of_first, opened) = hummer("first", 10);
    let (second, ..) = hummer("second", 10);
    let (third, ..) = hummer("third", 10);
    let model_limits = ModelLimits { memory: Some(25), idle: None };
    let server = start(vec![first, second, third], model_limits);
    let address = server.address();
    assert_eq!(say(address, "second", "one").status, 200);
    assert!(is_open(&server, "first") && is_open(&server, "second"), "there is memory for two");
    assert_eq!(say(address, "first", "one").status, 200);
    assert_eq!(say(address, "third", "one").status, 200);
    assert!(is_open(&server, "first") && !is_open(&server, "second"), "the second was unused for longer");
    assert_eq!(opened.load(Ordering::SeqCst), 1, "the first stayed");
    // Two speaking models stay open, and a request for a third gets Retry-After.
    let json = [("Content-Type", "application/json")];
    let request = |model: &str| {
        let more = json!({ "model": model, "response_format": "pcm" });
        body("hold on", &more).to_string().into_bytes()
    };
    let mut held = send(address, "POST", SPEECH, &json, &request("first"));
    held.piece().unwrap();
    let mut other = send(address, "POST", SPEECH, &json, &request("third"));
    other.piece().unwrap();
    let refused = say(address, "second", "one");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.error(503)["code"], "no_memory");
    assert!(is_open(&server, "first") && is_open(&server, "third"));
    of_first.released.store(true, Ordering::SeqCst);
    assert_eq!(held.answer().body.len(), 2 * WORD, "the second of two words");
    wait_for(|| say(address, "second", "one").status == 200);
    assert!(!is_open(&server, "first") && is_open(&server, "third"));
    drop(other);
    server.stop();
    server.wait().unwrap();
}

#[test]
fn an_idle_model_is_closed_and_reopened() {
    let (first, shared, opened) = hummer("first", 10);
    let model_limits = ModelLimits { memory: None, idle: Some(Duration::from_millis(100)) };
    let server = start(vec![first], model_limits);
    wait_for(|| !is_open(&server, "first"));
    assert_eq!(get(server.address(), "/ready").status, 200, "it speaks when it is request");
    assert_eq!(say(server.address(), "tts-1", "one").status, 200);
    assert_eq!(opened.load(Ordering::SeqCst), 2);
    // A speaking model counts as used, however long it takes.
    let request = body("hold on", &json!({ "response_format": "pcm" })).to_string();
    let json = [("Content-Type", "application/json")];
    let mut held = send(server.address(), "POST", SPEECH, &json, request.as_bytes());
    held.piece().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_open(&server, "first"));
    shared.released.store(true, Ordering::SeqCst);
    assert_eq!(held.answer().body.len(), 2 * WORD);
    server.stop();
    server.wait().unwrap();
}

#[test]
fn a_server_without_a_model_serves_the_page_and_speaks_once_there_is_one() {
    let (model, ..) = hummer("late", 1);
    let is_there = Arc::new(AtomicBool::new(false));
    let find = {
        let is_there = is_there.clone();
        Arc::new(move || is_there.load(Ordering::SeqCst).then(|| model.clone()))
    };
    let at = tempfile::tempdir().unwrap();
    let mut options = fake::options(None, 4);
    options.studio.runs = at.path().join("runs");
    let server = Server::start(options, Vec::new(), Some(find)).unwrap();
    let address = server.address();
    assert_eq!(get(address, "/health").status, 200);
    assert_eq!(get(address, "/ready").error(503)["code"], "no_model");
    assert_eq!(get(address, "/").status, 200);
    let state = get(address, "/studio/state").json();
    assert_eq!(
        (&state["model"], &state["models"], &state["ready"]),
        (&json!(null), &json!([]), &json!(false))
    );
    for path in ["/studio/runs", "/studio/settings", "/studio/history", "/studio/voices"] {
        assert_eq!(get(address, path).status, 200, "{path}");
    }
    assert_eq!(get(address, "/v1/models").json()["data"], json!([]));
    assert_eq!(get(address, "/v1/audio/voices").json(), json!({ "voices": [] }));
    assert_eq!(get(address, "/speakers").json(), json!([]));
    let refused = say(address, "tts-1", "one").error(503);
    assert_eq!((&refused["code"], &refused["type"]), (&json!("no_model"), &json!("server_error")));
    assert!(refused["message"].as_str().unwrap().contains("--model"), "{refused}");
    let batch = json!({ "model": "tts-1", "voice": "anna", "items": [{ "input": "one" }] });
    assert_eq!(post(address, "/v1/audio/speech/batch", &batch).error(503)["code"], "no_model");
    let xtts = "/tts_stream/?text=hello&language=en&speaker_wav=anna";
    assert_eq!(get(address, xtts).error(503)["code"], "no_model");
    is_there.store(true, Ordering::SeqCst);
    assert_eq!(say(address, "tts-1", "one").status, 200);
    assert_eq!(get(address, "/ready").json()["model"], "late");
    server.stop();
    server.wait().unwrap();
}

#[test]
fn a_broken_second_model_does_not_affect_the_first() {
    let (first, ..) = hummer("first", 1);
    let shared = Arc::new(Shared::default());
    let broken = served("broken", shared, || -> Result<Hummer, SpeakError> {
        Err(SpeakError::NothingToSay { text: "as it was told".to_owned() })
    });
    let server = start(vec![first, broken], ModelLimits::default());
    for _ in 0..2 {
        let error = say(server.address(), "broken", "one").error(500);
        assert!(error["message"].as_str().unwrap().contains("cannot be opened"), "{error}");
    }
    assert_eq!(say(server.address(), "first", "one").status, 200);
    assert!(!server.is_stopping());
}
