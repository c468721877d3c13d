//! Malicious clients and random input.

use crate::client::{connect, get, head, post, read_head, send};
use crate::fake;
use crate::model::{add_voice, recording, start};
use crate::speech::body;
use myxtts_model::weights::Part;
use myxtts_run::seed::Seed;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Read, Write};

/// Random numbers below `below`.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 += 1;
        (Seed::new(self.0).derive("hostile").value() % below as u64) as usize
    }

    fn choose<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.next(all.len())]
    }
}

fn any_json(random: &mut Random, depth: usize) -> Json {
    match random.next(if depth == 0 { 6 } else { 8 }) {
        0 => Json::Null,
        1 => json!(random.next(2) == 0),
        2 => json!(random.next(1 << 40)),
        3 => json!(random.next(1000) as f64 / 250.0 - 1.0),
        4 => json!("x".repeat(random.next(5000))),
        5 => json!(
            ["anna", "wav", "pcm", "sse", "tts-1", "hello you", "", "\u{0}", "\u{202e}../.."][random.next(9)]
        ),
        6 => (0..random.next(4)).map(|_| any_json(random, depth - 1)).collect(),
        _ => json!({ "id": any_json(random, depth - 1) }),
    }
}

#[test]
fn random_bodies_never_cause_a_server_error() {
    let (server, _) = fake::start(None, 8);
    let mut random = Random(0);
    let kinds =
        ["application/json", "text/plain", "multipart/form-data; boundary=x", "multipart/form-data", ""];
    let paths = ["/v1/audio/speech", "/tts_to_audio/", "/set_tts_settings", "/v1/audio/voices"];
    let mut spoken = 0;
    for number in 0..400 {
        let mut bytes = match number % 4 {
            0 => (0..random.next(2000)).map(|_| random.next(256) as u8).collect(),
            1 => b"--x\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nben\r\n--x--\r\n".to_vec(),
            _ => {
                let mut request =
                    body("hello", &json!({ "text": "hello", "speaker_wav": "anna", "language": "en" }));
                let names = [
                    "model",
                    "input",
                    "voice",
                    "speed",
                    "response_format",
                    "stream_format",
                    "seed",
                    "language",
                    "temperature",
                    "text",
                ];
                for _ in 0..random.next(3) {
                    request[*random.choose(&names)] = any_json(&mut random, 2);
                }
                request.to_string().into_bytes()
            }
        };
        if random.next(3) == 0 && !bytes.is_empty() {
            let at = random.next(bytes.len());
            bytes[at] = random.next(256) as u8;
        }
        let kind = if number % 4 == 1 {
            kinds[2]
        } else if random.next(4) > 0 {
            kinds[0]
        } else {
            *random.choose(&kinds)
        };
        let path = *random.choose(&paths);
        let answer = send(server.address(), "POST", path, &[("Content-Type", kind)], &bytes).answer();
        assert!(
            answer.status < 500,
            "{path} {kind}: {} for {:?}",
            answer.status,
            String::from_utf8_lossy(&bytes)
        );
        spoken += usize::from(answer.status == 200);
        if answer.status != 200 {
            answer.error(answer.status);
        }
    }
    assert!(spoken > 20, "{spoken}: almost no body was valid");
    assert_eq!(get(server.address(), "/ready").status, 200);
}

#[test]
fn broken_requests_do_not_affect_others() {
    let (server, _) = fake::start(None, 8);
    let mut random = Random(7);
    let good = format!("{}Content-Length: 2\r\n\r\n{{}}", head("POST", "/v1/audio/speech", &[]));
    for _ in 0..100 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..random.next(6) {
            let at = random.next(bytes.len());
            bytes[at] = random.next(256) as u8;
        }
        bytes.truncate(random.next(bytes.len()) + 1);
        let mut stream = connect(server.address());
        stream.write_all(&bytes).unwrap();
    }
    assert_eq!(post(server.address(), "/v1/audio/speech", &body("hello", &json!({}))).status, 200);
}

/// A name that tries to escape the folder of voices.
fn hostile(random: &mut Random) -> String {
    let ups =
        ["../", "..\\", "..%2f", "..%252f", "....//", "./", "/", "//", "..;/", "\u{2025}/", ".\u{200c}./"];
    let ends = [
        "secret",
        "secret.safetensors",
        "secret.wav",
        "etc/passwd",
        "manifest.json",
        "vocab.json",
        "gpt.safetensors",
        "voices/anna",
        "anna.safetensors",
        "anna\u{0}",
        "anna/",
        "anna/../anna",
        "CON",
        "~",
        "file:secret.wav",
        "\\\\host\\share",
        "anna(1)+../secret",
        "secret.wav(1)",
        "",
    ];
    let mut name: String = (0..1 + random.next(4)).map(|_| *random.choose(&ups)).collect();
    name += ends[random.next(ends.len())];
    name
}

fn escaped(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn ten_thousand_hostile_names_stay_inside_the_folder() {
    let at = tempfile::tempdir().unwrap();
    let server = start(at.path(), &[Part::Decoder, Part::Speaker]);
    assert_eq!(add_voice(&server, "anna", &recording()).status, 200);
    let voice = std::fs::read(at.path().join("model/voices/anna.safetensors")).unwrap();
    // The targets: a voice and recordings next to the folder of voices and above it.
    for place in ["model/secret.safetensors", "secret.safetensors", "model/secret", "secret"] {
        std::fs::write(at.path().join(place), &voice).unwrap();
    }
    for place in ["model/secret.wav", "secret.wav", "model/voices/secret.wav"] {
        std::fs::write(at.path().join(place), recording()).unwrap();
    }
    let files = |at: &std::path::Path| {
        let mut all: Vec<_> = ["", "model", "model/voices"]
            .iter()
            .flat_map(|folder| std::fs::read_dir(at.join(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .collect();
        all.sort();
        all
    };
    let before = files(at.path());
    let mut random = Random(11);
    let mut stream = BufReader::new(connect(server.address()));
    for number in 0..10_000 {
        let mut name = hostile(&mut random);
        if number % 5 == 0 {
            let place = at.path().join(random.choose(&["secret", "secret.wav", "model/secret.safetensors"]));
            name = place.display().to_string();
        }
        let (method, path, body) = match number % 4 {
            0 => ("DELETE", format!("/v1/audio/voices/{}", escaped(&name)), String::new()),
            1 => {
                ("POST", "/v1/audio/speech".to_owned(), body("hello", &json!({ "voice": name })).to_string())
            }
            2 => (
                "GET",
                format!("/tts_stream/?text=hello&language=en&speaker_wav={}", escaped(&name)),
                String::new(),
            ),
            _ => {
                // Unescaped, except for characters that end a request line.
                let raw: String = name.chars().filter(|c| c.is_ascii_graphic()).collect();
                ("GET", format!("/v1/audio/voices/{raw}"), String::new())
            }
        };
        let head = head(method, &path, &[("Content-Type", "application/json")]);
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status: u16 = line.split(' ').nth(1).unwrap().parse().unwrap();
        assert!((400..500).contains(&status), "{status} for {method} {path} {body}");
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).unwrap();
        let json: Json = serde_json::from_slice(&answer).unwrap();
        assert!(json["error"]["message"].is_string(), "{json}");
    }
    assert_eq!(files(at.path()), before, "the folder is unchanged");
}

#[test]
fn an_endless_body_is_not_read_to_its_end() {
    let (server, _) = fake::start(None, 8);
    let mut stream = connect(server.address());
    let head = head(
        "POST",
        "/v1/audio/speech",
        &[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")],
    );
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
    let mut sent = 0usize;
    // Until the server closes the connection, long before a GiB.
    while sent < 1 << 30 {
        match stream.write_all(&chunk) {
            Ok(()) => sent += 0x10000,
            Err(_) => break,
        }
    }
    assert!(sent < 64 << 20, "{sent} bytes were accepted");
    let mut declared = connect(server.address());
    let head = crate::client::head("POST", "/v1/audio/speech", &[("Content-Type", "application/json")]);
    declared.write_all(format!("{head}Content-Length: {}\r\n\r\n", 1u64 << 30).as_bytes()).unwrap();
    read_head(declared).answer().error(413);
}
