//! `myxtts serve`: start, requests, and exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use myxtts_data::audio::wav;
use myxtts_demo as demo;
use myxtts_model::weights::Part;
use serde_json::Value as Json;

use crate::tiny;

fn serve(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command
        .current_dir(folder)
        .env_remove("MYXTTS_TOKEN")
        .args(["serve", "--device", "cpu", "--port", "0"])
        .args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that is ready, and its address.
fn ready(folder: &Path, arguments: &[&str]) -> (Running, String) {
    let mut child = Running(serve(folder, arguments).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let address = first.rsplit_once("http://").unwrap_or_else(|| panic!("{first}")).1.to_owned();
    assert!(lines.next().unwrap().unwrap().starts_with("ready"));
    (child, address)
}

fn model() -> tempfile::TempDir {
    let at = tempfile::tempdir().unwrap();
    tiny::write(&at.path().join("model"), &[Part::Decoder, Part::Speaker]);
    let speech = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    std::fs::write(at.path().join("ref.wav"), wav::encode_pcm16(&speech, demo::SAMPLE_RATE)).unwrap();
    at
}

fn ask(address: &str, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn other_addresses_are_refused_without_a_token() {
    let at = model();
    let output = serve(at.path(), &["--host", "0.0.0.0"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--token"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_speaks_stays_small_and_stops_with_143() {
    let at = model();
    let added = Command::new(env!("CARGO_BIN_EXE_myxtts"))
        .current_dir(at.path())
        .args(["voice", "add", "anna", "ref.wav", "--device", "cpu"])
        .output()
        .unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let (mut server, address) = ready(at.path(), &["--token", "a-long-secret"]);
    let child = &mut server.0;
    let body = r#"{"model":"tts-1","input":"hello world","voice":"anna","response_format":"wav"}"#;
    let head = "POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let token = "Authorization: Bearer a-long-secret\r\n";
    let request = format!("{head}{token}Content-Length: {}\r\n\r\n{body}", body.len());
    let spoken = ask(&address, &request);
    assert!(
        spoken.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&spoken[..spoken.len().min(300)])
    );
    assert!(spoken.len() > 20_000, "{} bytes", spoken.len());

    let id = child.id();
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let before = memory();
    // Clients that send half a request and wait.
    let slow: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream
                .write_all(
                    format!("{head}{token}Content-Length: 100000\r\n\r\n{}", " ".repeat(20_000)).as_bytes(),
                )
                .unwrap();
            stream
        })
        .collect();
    let mut endless = TcpStream::connect(&address).unwrap();
    endless.write_all(format!("{head}{token}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
    // A GiB, unless the server refuses before.
    let _ = (0..1 << 14).try_for_each(|_| endless.write_all(&chunk));
    assert!(ask(&address, &request).starts_with(b"HTTP/1.1 200"), "others are served meanwhile");
    let after = memory();
    assert!(after <= before + 64, "from {before} to {after} MiB");
    drop(slow);

    let killed = Command::new("kill").arg(id.to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("stopping") && !stderr.contains("a-long-secret"), "{stderr}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_starts_without_a_model_and_speaks_with_several() {
    let at = tempfile::tempdir().unwrap();
    let mut child = Running(serve(at.path(), &[]).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("no model yet"), "{first}");
    let address = first.rsplit_once("http://").unwrap_or_else(|| panic!("{first}")).1.to_owned();
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        String::from_utf8_lossy(&ask(&address, &request)).into_owned()
    };
    assert!(get("/").starts_with("HTTP/1.1 200"));
    assert!(get("/ready").contains("no_model"));
    // A model that appears later is used.
    tiny::write(&at.path().join("model"), &[Part::Decoder, Part::Speaker]);
    assert!(get("/v1/models").contains("\"id\":\"model\""));
    drop(child);

    tiny::write(&at.path().join("other"), &[Part::Decoder, Part::Speaker]);
    let more = ["--model", "model", "--model", "other", "--memory-limit", "0.001", "--unload-after", "60"];
    let (_server, address) = ready(at.path(), &more);
    let request = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let listed = String::from_utf8_lossy(&ask(&address, request)).into_owned();
    assert!(listed.contains("\"id\":\"model\"") && listed.contains("\"id\":\"other\""), "{listed}");
    let twice = serve(at.path(), &["--model", "model", "--model", "./model"]).output().unwrap();
    assert_eq!(twice.status.code(), Some(2), "{}", String::from_utf8_lossy(&twice.stderr));
}

/// Status and body of an answer that is not chunked.
fn exchange(address: &str, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer[end..].to_vec())
}

fn json(address: &str, method: &str, path: &str, body: &Json) -> Json {
    let (status, answer) = exchange(address, method, path, "application/json", body.to_string().as_bytes());
    assert!((200..300).contains(&status), "{method} {path}: {status} {}", String::from_utf8_lossy(&answer));
    serde_json::from_slice(&answer).unwrap()
}

/// The voices, the history and one run, as a server reports them.
fn stored(address: &str, run: &str, entry: &str) -> (Json, Json, Vec<u8>, Json) {
    let get = |path: &str| json(address, "GET", path, &Json::Null);
    let (status, wav) = exchange(address, "GET", &format!("/studio/history/{entry}/sound"), "", b"");
    assert_eq!(status, 200);
    let mut run = get(&format!("/studio/runs/{run}"));
    // How often the server has read the run's events, not what they hold.
    for key in ["revision", "seen"] {
        run.as_object_mut().unwrap().remove(key);
    }
    (get("/studio/voices"), get("/studio/history"), wav, run)
}

#[cfg(target_os = "linux")]
#[test]
fn voices_history_and_runs_survive_a_killed_server() {
    let at = model();
    let made = Command::new(env!("CARGO_BIN_EXE_myxtts"))
        .current_dir(at.path())
        .args(["demo-corpus", "data/small", "--utterances", "16"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let arguments = ["--model", "model", "--data-root", "data"];
    let (mut server, address) = ready(at.path(), &arguments);

    let recording = std::fs::read(at.path().join("ref.wav")).unwrap();
    let part = |name: &str, more: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n").into_bytes()
    };
    let file = part("audio_sample", "; filename=\"ref.wav\"\r\nContent-Type: audio/wav");
    let form =
        [part("name", ""), b"mina\r\n".to_vec(), file, recording.clone(), b"\r\n--x--\r\n".to_vec()].concat();
    let (status, answer) =
        exchange(&address, "POST", "/v1/audio/voices", "multipart/form-data; boundary=x", &form);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));

    let said = serde_json::json!({ "text": "hello world", "voice": "mina", "speed": 1 });
    let entry = serde_json::json!({ "said": said, "seconds": 1.0, "first_ms": 20.0, "rtf": 0.5 });
    let entry = json(&address, "POST", "/studio/history", &entry)["id"].as_str().unwrap().to_owned();
    let sound = format!("/studio/history/{entry}/sound");
    assert_eq!(exchange(&address, "PUT", &sound, "audio/wav", &recording).0, 200);

    let settings = serde_json::json!({
        "model.preset": "tiny", "training.dvae_steps": 4, "training.validate_every": 0, "data.num_workers": 1,
    });
    let run = serde_json::json!({
        "name": "small", "corpus": { "root": 0, "path": "small" }, "stage": "dvae", "settings": settings,
    });
    assert_eq!(json(&address, "POST", "/studio/runs", &run)["name"], "small");
    let is_finished = || json(&address, "GET", "/studio/runs/small", &Json::Null)["state"] == "finished";
    let late = Instant::now() + Duration::from_secs(120);
    while !is_finished() {
        assert!(Instant::now() < late, "{}", json(&address, "GET", "/studio/runs/small/log", &Json::Null));
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = stored(&address, "small", &entry);
    assert_eq!(before.1["items"][0]["said"]["text"], "hello world");
    assert!(before.2 == recording);
    assert_eq!(before.3["parts"][0]["stage"], "dvae", "{}", before.3);

    // SIGKILL: the server gets no chance to write anything.
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let (_server, address) = ready(at.path(), &arguments);
    let after = stored(&address, "small", &entry);
    assert_eq!(after.0, before.0, "the voices");
    assert!(
        before.0["voices"].as_array().unwrap().iter().any(|voice| voice["name"] == "mina"),
        "{}",
        before.0
    );
    assert_eq!(after.1, before.1, "the history");
    assert!(after.2 == before.2, "the audio of the history");
    assert_eq!(after.3, before.3, "the run");
    let body =
        serde_json::json!({ "model": "tts-1", "input": "hello", "voice": "mina", "response_format": "wav" });
    let body = body.to_string().into_bytes();
    assert_eq!(exchange(&address, "POST", "/v1/audio/speech", "application/json", &body).0, 200);
}
