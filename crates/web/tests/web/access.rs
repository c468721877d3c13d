//! Access control.

use crate::client::{get, send};
use crate::fake;
use myxtts_web::{ServeError, Server};
use std::sync::Arc;

const ROUTES: [(&str, &str); 22] = [
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", "/v1/audio/models"),
    ("GET", "/audio/models"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/audio/speech/batch"),
    ("GET", "/v1/audio/speech/stream"),
    ("GET", "/v1/audio/voices"),
    ("POST", "/v1/audio/voices"),
    ("DELETE", "/v1/audio/voices/anna"),
    ("GET", "/audio/voices"),
    ("DELETE", "/audio/voices/anna"),
    ("GET", "/speakers"),
    ("GET", "/languages"),
    ("POST", "/set_tts_settings"),
    ("GET", "/tts_stream/?text=a&speaker_wav=anna&language=en"),
    ("POST", "/tts_to_audio/"),
    ("GET", "/studio/state"),
    ("GET", "/nothing"),
    ("OPTIONS", "/health"),
];

#[test]
fn every_route_needs_the_token() {
    let (server, shared) = fake::start(Some("a-long-secret"), 4);
    for (method, path) in ROUTES {
        for value in [
            None,
            Some("Bearer wrong-secret"),
            Some("Bearer a-long-secre"),
            Some("a-long-secret"),
            Some("Bearer "),
        ] {
            let headers: Vec<_> = value.map(|value| ("Authorization", value)).into_iter().collect();
            let answer = send(server.address(), method, path, &headers, b"").answer();
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
            let error = answer.error(401);
            assert!(!error.to_string().contains("a-long-secret"));
        }
    }
    let with = [("Authorization", "Bearer a-long-secret")];
    assert_eq!(send(server.address(), "GET", "/speakers", &with, b"").answer().status, 200);
    assert_eq!(shared.voices.lock().unwrap().len(), 1, "no voice was removed");
}

#[test]
fn addresses_reachable_from_other_machines_need_a_token() {
    let start = |address: [u8; 4], token: Option<&str>| {
        let mut options = fake::options(token, 1);
        options.address = (address, 0).into();
        let shared = Arc::new(fake::Shared::default());
        let hummer = shared.clone();
        let open = move || Ok(fake::Hummer(hummer.clone()));
        Server::start(options, vec![fake::served("hummer", shared, open)], None)
    };
    let Err(error @ ServeError::NoToken { .. }) = start([0, 0, 0, 0], None) else {
        panic!("the server started")
    };
    assert!(error.to_string().contains("--token"), "{error}");
    for weak in ["", "short", "with a space in it", "کلمه‌ی طولانی"] {
        assert!(matches!(start([127, 0, 0, 1], Some(weak)), Err(ServeError::Token)), "{weak:?}");
    }
    assert!(start([0, 0, 0, 0], Some("a-long-secret")).is_ok());
}

#[test]
fn only_pages_of_this_machine_are_allowed() {
    let (server, shared) = fake::start(None, 4);
    let address = server.address();
    let page = [("Origin", "http://127.0.0.1:8000")];
    let answer = send(address, "GET", "/speakers", &page, b"").answer();
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://127.0.0.1:8000"));
    let headers = [page[0], ("Access-Control-Request-Method", "POST")];
    let preflight = send(address, "OPTIONS", "/tts_to_audio/", &headers, b"").answer();
    assert_eq!(preflight.status, 204);
    assert!(preflight.header("access-control-allow-headers").unwrap().contains("Content-Type"));
    let foreign = [("Origin", "https://evil.example")];
    let answer = send(address, "DELETE", "/v1/audio/voices/anna", &foreign, b"").answer();
    assert_eq!(answer.header("access-control-allow-origin"), None);
    answer.error(403);
    assert_eq!(shared.voices.lock().unwrap().len(), 1);
    assert_eq!(get(address, "/speakers").header("access-control-allow-origin"), None);
}
