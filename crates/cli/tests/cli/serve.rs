//! `myxtts serve` from the shell's side.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use myxtts_data::audio::wav;
use myxtts_demo as demo;
use myxtts_model::weights::Part;

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

/// Ended with the test, however that ends.
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
    // A GiB, unless the server has enough before.
    let _ = (0..1 << 14).try_for_each(|_| endless.write_all(&chunk));
    assert!(ask(&address, &request).starts_with(b"HTTP/1.1 200"), "others are served meanwhile");
    let after = memory();
    assert!(after <= before + 64, "from {before} to {after} MiB");
    drop(slow);

    let killed = Command::new("kill").arg(id.to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("stopping") && !said.contains("a-long-secret"), "{said}");
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
    // One that is made meanwhile is spoken with.
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
