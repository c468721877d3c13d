//! Many clients, disconnecting clients, and a stopping server.

use crate::client::{get, post, send};
use crate::fake::{self, WORD, wait_for};
use crate::speech::body;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SPEECH: &str = "/v1/audio/speech";
const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

fn held() -> Vec<u8> {
    body("hold on", &json!({ "response_format": "pcm" })).to_string().into_bytes()
}

#[test]
fn a_disconnected_client_frees_the_speaker() {
    let (server, shared) = fake::start(None, 4);
    let mut sent = send(server.address(), "POST", SPEECH, &JSON, &held());
    sent.piece().unwrap();
    let left = Instant::now();
    drop(sent);
    wait_for(|| shared.speaking.load(Ordering::SeqCst) == 0);
    assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
    wait_for(|| server.metrics().cancelled() == 1);
    assert_eq!(post(server.address(), SPEECH, &body("next", &json!({}))).status, 200);
}

#[test]
fn a_full_queue_sends_retry_after() {
    let (server, shared) = fake::start(None, 2);
    let address = server.address();
    let mut first = send(address, "POST", SPEECH, &JSON, &held());
    first.piece().unwrap();
    let wait = |text: &'static str| {
        std::thread::spawn(move || post(address, SPEECH, &body(text, &json!({ "response_format": "pcm" }))))
    };
    let waiting = [wait("one"), wait("two")];
    let length =
        || String::from_utf8(get(address, "/metrics").body).unwrap().contains("myxtts_queue_length 2\n");
    wait_for(length);
    let refused = post(address, SPEECH, &body("three", &json!({})));
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(refused.error(429)["type"], "rate_limit_error");
    shared.released.store(true, Ordering::SeqCst);
    for one in waiting {
        let answer = one.join().unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, 2 * WORD));
    }
    assert_eq!(post(address, SPEECH, &body("four", &json!({}))).status, 200);
}

#[test]
fn waiting_requests_of_disconnected_clients_are_not_spoken() {
    let (server, shared) = fake::start(None, 4);
    let address = server.address();
    let mut first = send(address, "POST", SPEECH, &JSON, &held());
    first.piece().unwrap();
    let request = body("ghost", &json!({})).to_string();
    let head = crate::client::head("POST", SPEECH, &JSON);
    for _ in 0..12 {
        // More than the queue can hold: earlier clients have disconnected.
        let mut stream = crate::client::connect(address);
        let request = format!("{head}Content-Length: {}\r\n\r\n{request}", request.len());
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    shared.released.store(true, Ordering::SeqCst);
    assert_eq!(post(address, SPEECH, &body("real", &json!({}))).status, 200);
    let received: Vec<String> = shared.received.lock().unwrap().iter().map(|one| one.text.clone()).collect();
    assert_eq!(received, ["hold on", "real"]);
}

#[test]
fn a_stopping_server_finishes_active_requests() {
    let (server, shared) = fake::start(None, 4);
    let address = server.address();
    let mut first = send(address, "POST", SPEECH, &JSON, &held());
    first.piece().unwrap();
    let waiting = std::thread::spawn(move || post(address, SPEECH, &body("late", &json!({}))));
    wait_for(|| {
        String::from_utf8(get(address, "/metrics").body).unwrap().contains("myxtts_queue_length 1\n")
    });
    server.stop();
    assert_eq!(waiting.join().unwrap().error(503)["code"], "stopping");
    assert!(server.is_stopping());
    let released = shared.clone();
    let releases = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        released.released.store(true, Ordering::SeqCst);
    });
    let rest = std::thread::spawn(move || first.answer().body.len());
    server.wait().unwrap();
    releases.join().unwrap();
    assert_eq!(rest.join().unwrap(), 2 * WORD, "the second word arrives after the stop");
    assert!(std::net::TcpStream::connect(address).is_err(), "the server no longer listens");
}

#[test]
fn a_panicking_speaker_ends_the_server() {
    struct Panics;
    impl myxtts_web::Speaker for Panics {
        fn facts(&self) -> myxtts_web::SpeakerFacts {
            myxtts_web::SpeakerFacts { languages: Vec::new() }
        }
        fn warm_up(&mut self) -> Result<(), myxtts_speak::SpeakError> {
            Ok(())
        }
        fn work(
            &mut self,
            jobs: &myxtts_web::Jobs,
            _: &myxtts_web::metrics::Metrics,
        ) -> Result<(), myxtts_speak::SpeakError> {
            let _job = jobs.next();
            panic!("as requested");
        }
    }
    let shared = std::sync::Arc::new(fake::Shared::default());
    let server = {
        let panics = fake::served("hummer", shared, || Ok(Panics));
        myxtts_web::Server::start(fake::options(None, 1), vec![panics], None).unwrap()
    };
    post(server.address(), SPEECH, &body("hello", &json!({}))).error(503);
    let start = Instant::now();
    assert!(matches!(server.wait(), Err(myxtts_web::ServeError::Died)));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn eight_simultaneous_clients_are_served() {
    let (server, _) = fake::start(None, 32);
    let address = server.address();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..5 {
                    let answer =
                        post(address, SPEECH, &body("one two three", &json!({ "response_format": "pcm" })));
                    assert_eq!((answer.status, answer.body.len()), (200, 6 * WORD));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}
