//! Recognisers of the user: commands and servers that work or fail.

use myxtts_text::compare::NumeralReading;
use myxtts_train::evaluate::listener::Listener;
use myxtts_train::evaluate::recognizer::Recognizer;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An audio file with its transcript next to it.
fn sound(folder: &Path) -> std::path::PathBuf {
    let wav = folder.join("it's \"a\" sound.wav");
    std::fs::write(&wav, b"RIFF and so on\r\n--").unwrap();
    std::fs::write(folder.join("it's \"a\" sound.wav.txt"), "Hello,\n  twelve worlds. \n").unwrap();
    wav
}

#[cfg(unix)]
#[test]
fn a_command_prints_a_transcript() {
    let folder = tempfile::tempdir().unwrap();
    let wav = sound(folder.path());
    let heard = |command: &str| Recognizer::command(command).unwrap().recognize(&wav, "en");
    assert_eq!(heard("cat {wav}.txt").unwrap(), "Hello, twelve worlds.");
    assert_eq!(heard("echo '{language} \"x' {wav}").unwrap(), format!("en \"x {}", wav.display()));
    // The command is not run by a shell, so a file name cannot inject one.
    assert_eq!(heard("echo $(ls) ; {wav}").unwrap(), format!("$(ls) ; {}", wav.display()));
    // More output than a pipe holds, on both pipes.
    let much = "sh -c 'head -c 300000 /dev/zero | tr \"\\\\0\" x >&2; head -c 300000 /dev/zero | tr \"\\\\0\" y' {wav}";
    assert_eq!(heard(much).unwrap().len(), 300_000);
    let failed = heard("sh -c 'echo loading >&2; echo no such model >&2; exit 3' {wav}").unwrap_err();
    assert!(!failed.is_usage() && failed.to_string().contains("no such model"), "{failed}");
    let missing = heard("there-is-no-such-program {wav}").unwrap_err();
    assert!(missing.to_string().contains("cannot start there-is-no-such-program"), "{missing}");
    let began = Instant::now();
    let slow = Recognizer::command("sleep 30 {wav}").unwrap().with_timeout(Duration::from_millis(50));
    let late = slow.recognize(&wav, "en").unwrap_err();
    // `sleep` may reject its second argument first; either way the call returns early.
    assert!(late.to_string().contains("failed") && began.elapsed() < Duration::from_secs(10), "{late}");
}

#[test]
fn an_invalid_recogniser_is_refused_before_it_is_started() {
    for (command, message) in [
        ("", "is empty"),
        ("whisper", "{wav}"),
        ("{wav}", "begins with {wav}"),
        ("whisper 'x {wav}", "quote"),
    ] {
        let error = Recognizer::command(command).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(message), "{command}: {error}");
    }
    for url in [
        "https://api.example.org/v1",
        "localhost:8000",
        "http://",
        "http:///v1",
        "http://a b/v1",
        "file:///x",
    ] {
        let error = Recognizer::url(url, "m").unwrap_err();
        assert!(error.is_usage(), "{url}: {error}");
    }
}

/// A server that answers one request with `answer`, and returns the request.
fn server(answer: &str) -> (String, JoinHandle<(String, Vec<u8>)>) {
    server_of(&[answer])
}

/// A server that answers one request after another, and returns the last.
fn server_of(answers: &[&str]) -> (String, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1/", listener.local_addr().unwrap());
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let thread = std::thread::spawn(move || {
        let mut last = (String::new(), Vec::new());
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut head).unwrap() > 0, "the request ended: {head}");
            }
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.expect("the body has a length")];
            reader.read_exact(&mut body).unwrap();
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
            last = (head, body);
        }
        last
    });
    (base, thread)
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_server_gets_requests_of_the_openai_api() {
    let folder = tempfile::tempdir().unwrap();
    let wav = sound(folder.path());
    let (base, thread) = server(&answer("200 OK", "{\"text\": \" Hello,\\n twelve worlds.\", \"x\": 1}"));
    let recognizer = Recognizer::url(&base, "whisper-small").unwrap();
    assert_eq!(recognizer.recognize(&wav, "fa").unwrap(), "Hello, twelve worlds.");
    let (head, body) = thread.join().unwrap();
    assert!(head.starts_with("POST /v1/audio/transcriptions HTTP/1.1\r\n"), "{head}");
    let boundary = head.split("boundary=").nth(1).unwrap().lines().next().unwrap().to_owned();
    let body = String::from_utf8(body).unwrap();
    assert!(body.ends_with(&format!("\r\n--{boundary}--\r\n")), "{body}");
    let parts: Vec<&str> = body.split(&format!("--{boundary}\r\n")).collect();
    let part = |name: &str| {
        let wanted = format!("name=\"{name}\"");
        let part = parts.iter().find(|part| part.contains(&wanted)).unwrap();
        part.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    assert_eq!((part("model").trim(), part("language").trim()), ("whisper-small", "fa"));
    assert!(
        part("file").starts_with("RIFF and so on\r\n--\r\n"),
        "the audio must be unchanged: {}",
        part("file")
    );
}

#[test]
fn chinese_and_unknown_languages_were_refused_by_servers() {
    let folder = tempfile::tempdir().unwrap();
    let wav = sound(folder.path());
    for (language, sent) in [("zh-cn", Some("zh")), ("fa", Some("fa")), ("", None)] {
        let (base, thread) = server(&answer("200 OK", "{\"text\": \"x\"}"));
        Recognizer::url(&base, "m").unwrap().recognize(&wav, language).unwrap();
        let (head, body) = thread.join().unwrap();
        let body = String::from_utf8(body).unwrap();
        let part = body.split("name=\"language\"\r\n\r\n").nth(1);
        assert_eq!(part.and_then(|part| part.lines().next()), sent, "{body}");
        assert!(!head.to_ascii_lowercase().contains("authorization"), "{head}");
    }
}

#[test]
fn a_server_with_a_key_gets_it_and_nothing_prints_it() {
    let folder = tempfile::tempdir().unwrap();
    let wav = sound(folder.path());
    let (base, thread) = server(&answer("200 OK", "{\"text\": \"x\"}"));
    let recognizer = Recognizer::url(&base, "m").unwrap().with_key(Some("secret".to_owned()));
    recognizer.recognize(&wav, "en").unwrap();
    let (head, _) = thread.join().unwrap();
    assert!(head.to_ascii_lowercase().contains("\r\nauthorization: bearer secret\r\n"), "{head}");
    assert!(!format!("{recognizer} {recognizer:?}").contains("secret"));
}

#[test]
fn one_busy_answer_ended_the_error_rates_of_a_whole_list() {
    let folder = tempfile::tempdir().unwrap();
    let wav = sound(folder.path());
    let busy = answer("503 Service Unavailable", "busy");
    let (base, thread) = server_of(&[&busy, &answer("200 OK", "{\"text\": \"hello\"}")]);
    let mut listener = Listener::new(Recognizer::url(&base, "m").unwrap(), NumeralReading::Numbers);
    let heard = listener.transcribe(&wav, "Hello.", "en");
    thread.join().unwrap();
    assert_eq!(heard.unwrap().score.words.errors, 0);
    assert!(listener.failed().is_none());
}

#[test]
fn a_failing_server_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let wav = sound(folder.path());
    for (given, message) in [
        (
            answer("500 Internal Server Error", "{\"error\": {\"message\": \"out of\\u001b[2J memory\"}}"),
            "500",
        ),
        (answer("404 Not Found", "nothing here"), "nothing here"),
        (answer("302 Found", "elsewhere"), "302"),
        (answer("200 OK", "plain text"), "not JSON"),
        (answer("200 OK", "{\"txt\": 1}"), "no \"text\""),
        ("garbage\r\n\r\n".to_owned(), "failed"),
        (String::new(), "failed"),
    ] {
        let (base, thread) = server(&given);
        let error = Recognizer::url(&base, "m").unwrap().recognize(&wav, "en").unwrap_err().to_string();
        assert!(error.contains(message) && !error.contains('\u{1b}'), "{given}: {error}");
        thread.join().unwrap();
    }
    // No server, or one that never answers.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", gone.local_addr().unwrap());
    let patient = Recognizer::url(&base, "m").unwrap().with_timeout(Duration::from_millis(200));
    let began = Instant::now();
    assert!(patient.recognize(&wav, "en").is_err() && began.elapsed() < Duration::from_secs(10));
    drop(gone);
    assert!(Recognizer::url(&base, "m").unwrap().recognize(&wav, "en").is_err());
}

#[test]
fn a_listener_that_failed_twice_is_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let wav = sound(folder.path());
    let (base, thread) = server(&answer("200 OK", "{\"text\": \"hello 12 words\"}"));
    let mut listener = Listener::new(Recognizer::url(&base, "m").unwrap(), NumeralReading::Numbers);
    let heard = listener.transcribe(&wav, "Hello, twelve worlds.", "en").unwrap();
    thread.join().unwrap();
    assert_eq!((heard.score.words.errors, heard.score.words.of), (1, 3));
    assert_eq!(listener.silence("Hello there.", "en").score.words.rate(), 1.0);
    assert!(listener.failed().is_none());
    assert!(listener.transcribe(&wav, "Hello.", "en").is_none(), "the server is gone");
    assert!(listener.failed().is_some() && listener.transcribe(&wav, "Hello.", "en").is_none());
}
