//! Streaming text over a WebSocket and Wyoming, and batches of texts.

use crate::client::{connect, head, post, read_head, send};
use crate::fake::{self, WORD, hum, wait_for};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

/// A WebSocket client.
struct Socket(BufReader<TcpStream>);

enum Frame {
    Audio(Vec<u8>),
    Event(Json),
    Close,
}

impl Socket {
    fn open(address: SocketAddr) -> Socket {
        let mut stream = connect(address);
        let headers = [
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let request = head("GET", "/v1/audio/speech/stream", &headers);
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        let sent = read_head(stream);
        assert_eq!(sent.status, 101);
        assert!(
            sent.headers
                .contains(&("sec-websocket-accept".to_owned(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned()))
        );
        Socket(sent.reader)
    }

    fn send(&mut self, json: &Json) {
        let text = json.to_string();
        assert!(text.len() < 126);
        // A zero mask leaves the payload unchanged.
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend(text.bytes());
        self.0.get_mut().write_all(&frame).unwrap();
    }

    fn next(&mut self) -> Frame {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).unwrap();
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.0.read_exact(&mut bytes).unwrap();
                u64::from(u16::from_be_bytes(bytes))
            }
            127 => {
                let mut bytes = [0; 8];
                self.0.read_exact(&mut bytes).unwrap();
                u64::from_be_bytes(bytes)
            }
            short => u64::from(short),
        };
        let mut bytes = vec![0; length as usize];
        self.0.read_exact(&mut bytes).unwrap();
        match head[0] & 15 {
            1 => Frame::Event(serde_json::from_slice(&bytes).unwrap()),
            2 => Frame::Audio(bytes),
            8 => Frame::Close,
            other => panic!("a frame of kind {other}"),
        }
    }

    /// All audio up to an event, and the event.
    fn until_event(&mut self) -> (Vec<u8>, Json) {
        let mut all = Vec::new();
        loop {
            match self.next() {
                Frame::Audio(bytes) => all.extend(bytes),
                Frame::Event(event) => return (all, event),
                Frame::Close => panic!("closed"),
            }
        }
    }
}

fn word_bytes() -> Vec<u8> {
    hum().iter().flat_map(|sample| ((sample * 32768.0).round_ties_even() as i16).to_le_bytes()).collect()
}

#[test]
fn audio_is_sent_while_text_still_arrives() {
    let (server, shared) = fake::start(None, 4);
    let mut socket = Socket::open(server.address());
    socket.send(&json!({ "voice": "anna", "language": "en" }));
    for text in ["Hello", " there. How", " are"] {
        socket.send(&json!({ "text": text }));
    }
    // The first sentence is spoken before the second is complete.
    let mut first = Vec::new();
    while first.len() < 2 * 2 * WORD {
        let Frame::Audio(bytes) = socket.next() else { panic!("no audio") };
        first.extend(bytes);
    }
    assert_eq!(first, word_bytes().repeat(2));
    assert_eq!(shared.received.lock().unwrap().len(), 1);
    socket.send(&json!({ "text": " you?" }));
    socket.send(&json!({ "type": "end" }));
    let (rest, event) = socket.until_event();
    assert_eq!(event["type"], "done");
    assert_eq!(event["usage"]["output_tokens"], 5);
    assert!(rest.ends_with(&word_bytes().repeat(3)), "{} bytes", rest.len());
    let received: Vec<String> =
        shared.received.lock().unwrap().iter().map(|one| one.text.trim().to_owned()).collect();
    assert_eq!(received, ["Hello there.", "How are you?"]);
    assert!(matches!(socket.next(), Frame::Close));
}

#[test]
fn sessions_can_be_cancelled_and_flushed_and_report_errors() {
    let (server, shared) = fake::start(None, 4);
    let mut socket = Socket::open(server.address());
    socket.send(&json!({ "voice": "anna" }));
    socket.send(&json!({ "text": "hold on", "flush": true }));
    let Frame::Audio(_) = socket.next() else { panic!("no audio") };
    assert_eq!(shared.speaking.load(Ordering::SeqCst), 1);
    socket.send(&json!({ "type": "cancel" }));
    let (_, event) = socket.until_event();
    assert_eq!(event["type"], "cancelled");
    wait_for(|| shared.speaking.load(Ordering::SeqCst) == 0);
    socket.send(&json!({ "text": "again", "flush": true }));
    let Frame::Audio(sound) = socket.next() else { panic!("no audio") };
    assert_eq!(sound, word_bytes());
    socket.send(&json!({ "text": 7 }));
    let (_, event) = socket.until_event();
    assert_eq!((&event["type"], &event["error"]["param"]), (&json!("error"), &json!("text")));

    for (first, param) in
        [(json!({}), "voice"), (json!({ "voice": "anna", "response_format": "aac" }), "response_format")]
    {
        let mut socket = Socket::open(server.address());
        socket.send(&first);
        assert_eq!(socket.until_event().1["error"]["param"], param);
    }
    // A client that disconnects stops its speech.
    let mut socket = Socket::open(server.address());
    socket.send(&json!({ "voice": "anna" }));
    socket.send(&json!({ "text": "hold on", "flush": true }));
    let Frame::Audio(_) = socket.next() else { panic!("no audio") };
    drop(socket);
    wait_for(|| shared.speaking.load(Ordering::SeqCst) == 0);
    // A session that waits for text does not block the server from stopping.
    let mut socket = Socket::open(server.address());
    socket.send(&json!({ "voice": "anna" }));
    socket.send(&json!({ "text": "a", "flush": true }));
    let Frame::Audio(_) = socket.next() else { panic!("no audio") };
    server.stop();
    let (_, event) = socket.until_event();
    assert_eq!(event["error"]["code"], "stopping");
    server.wait().unwrap();
    let plain = fake::start(None, 1).0;
    send(plain.address(), "GET", "/v1/audio/speech/stream", &[], b"").answer().error(400);
}

struct Wyoming(BufReader<TcpStream>);

impl Wyoming {
    fn send(&mut self, kind: &str, data: &Json) {
        // Like the Python package: data after the line.
        let data = data.to_string();
        let head =
            json!({ "type": kind, "version": "1.7.0", "data_length": data.len(), "payload_length": 0 });
        self.0.get_mut().write_all(format!("{head}\n{data}").as_bytes()).unwrap();
    }

    fn next(&mut self) -> (String, Json, Vec<u8>) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let head: Json = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        let mut payload = vec![0; head["payload_length"].as_u64().unwrap_or(0) as usize];
        self.0.read_exact(&mut payload).unwrap();
        (head["type"].as_str().unwrap().to_owned(), head["data"].clone(), payload)
    }

    /// The audio of one response, and the types of the other events.
    fn sound(&mut self, last: &str) -> (Vec<u8>, Vec<String>) {
        let (mut all, mut kinds) = (Vec::new(), Vec::new());
        loop {
            let (kind, data, payload) = self.next();
            if kind == "audio-chunk" {
                assert_eq!(
                    (&data["rate"], &data["width"], &data["channels"]),
                    (&json!(24_000), &json!(2), &json!(1))
                );
                all.extend(payload);
                continue;
            }
            kinds.push(kind.clone());
            if kind == last {
                return (all, kinds);
            }
        }
    }
}

#[test]
fn home_assistant_speaks_wyoming() {
    let (server, shared) = fake::start(Some("a-long-secret"), 4);
    let address = server.wyoming_address().unwrap();
    assert!(address.ip().is_loopback());
    let mut client = Wyoming(BufReader::new(connect(address)));
    client.send("describe", &json!({}));
    let (kind, info, _) = client.next();
    assert_eq!((kind.as_str(), &info["tts"][0]["voices"][0]["name"]), ("info", &json!("anna")));
    assert_eq!(info["tts"][0]["voices"][0]["languages"], json!(["en", "fa"]));
    client
        .send("synthesize", &json!({ "text": "one two", "voice": { "name": "anna", "language": "en-US" } }));
    let (sound, kinds) = client.sound("audio-stop");
    assert_eq!(
        (sound, kinds),
        (word_bytes().repeat(2), vec!["audio-start".to_owned(), "audio-stop".to_owned()])
    );
    assert_eq!(shared.received.lock().unwrap()[0].language.as_deref(), Some("en"));

    client.send("synthesize-start", &json!({ "voice": { "name": "anna" } }));
    client.send("synthesize-chunk", &json!({ "text": "Hello there. How" }));
    client.send("synthesize-chunk", &json!({ "text": " are you?" }));
    client.send("synthesize", &json!({ "text": "Hello there. How are you?" }));
    client.send("synthesize-stop", &json!({}));
    let (sound, kinds) = client.sound("synthesize-stopped");
    assert_eq!(kinds, ["audio-start", "audio-stop", "synthesize-stopped"]);
    assert!(sound.starts_with(&word_bytes().repeat(2)) && sound.ends_with(&word_bytes().repeat(3)));

    client.send("synthesize", &json!({ "text": "hello", "voice": { "name": "nobody" } }));
    assert_eq!(client.sound("audio-stop").1, ["audio-start", "error", "audio-stop"]);
    client.send("ping", &json!({ "text": "x" }));
    assert_eq!(client.next().0, "pong");
    // A client that disconnects during speech.
    client.send("synthesize", &json!({ "text": "hold on", "voice": { "name": "anna" } }));
    wait_for(|| shared.speaking.load(Ordering::SeqCst) == 1);
    drop(client);
    wait_for(|| shared.speaking.load(Ordering::SeqCst) == 0);
    for broken in ["no json\n", "{}\n", "{\"type\":\"x\",\"data_length\":99999999999}\n"] {
        let mut stream = connect(address);
        stream.write_all(broken.as_bytes()).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{broken}");
    }
}

#[test]
fn a_batch_is_answered_line_by_line() {
    let (server, _) = fake::start(None, 4);
    let item = |number: usize| match number {
        3 => json!({ "input": "fail", "id": 3 }),
        number => {
            json!({ "input": "word ".repeat(1 + number % 4), "id": format!("n{number}"), "seed": number })
        }
    };
    // More than the queue can hold.
    let items: Vec<Json> = (0..20).map(item).collect();
    let request = json!({ "model": "tts-1", "voice": "anna", "response_format": "pcm", "items": items });
    let answer = post(server.address(), "/v1/audio/speech/batch", &request);
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let mut lines: Vec<Json> = String::from_utf8(answer.body)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 20);
    lines.sort_by_key(|line| line["index"].as_u64());
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["index"], number);
        if number == 3 {
            assert_eq!((&line["id"], &line["error"]["code"]), (&json!(3), &json!("synthesis_failed")));
            continue;
        }
        let words = 1 + number % 4;
        assert_eq!(
            (&line["id"], &line["seconds"]),
            (&json!(format!("n{number}")), &json!(words as f64 / 5.0))
        );
        let base64 = line["audio"].as_str().unwrap();
        assert_eq!(base64.len(), (2 * WORD * words).div_ceil(3) * 4);
    }
    for (change, param) in [
        (json!({ "items": [] }), "items"),
        (json!({ "items": [{ "input": "a" }, 7] }), "items[1]."),
        (json!({ "items": [{ "input": "" }] }), "items[0].input"),
        (json!({ "items": [{ "input": "a", "speed": 9 }] }), "items[0].speed"),
        (json!({ "response_format": "aac" }), "response_format"),
    ] {
        let mut request = request.clone();
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(post(server.address(), "/v1/audio/speech/batch", &request).error(400)["param"], param);
    }
}
