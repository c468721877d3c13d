//! A server with OpenAI's transcription API that answers one request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// The answer to every file.
const TRANSCRIPT: &str = r#"{"text":"21"}"#;

/// A server that runs until it has answered.
pub struct FakeServer {
    /// Its `http://` address.
    pub address: String,
    thread: JoinHandle<std::io::Result<String>>,
}

impl FakeServer {
    /// Listens on a free port.
    pub fn start() -> std::io::Result<FakeServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("http://{}", listener.local_addr()?);
        let thread = std::thread::spawn(move || answer(&mut listener.accept()?.0));
        Ok(FakeServer { address, thread })
    }

    /// The field `model` of the request.
    pub fn requested_model(self) -> String {
        let request = self.thread.join().unwrap().unwrap();
        let (_, after) = request.split_once("name=\"model\"").unwrap_or_default();
        after.split_whitespace().next().unwrap_or_default().to_owned()
    }
}

/// Reads a request with a body, answers it, and returns it.
fn answer(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let length = TRANSCRIPT.len();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{TRANSCRIPT}")?;
                return Ok(text);
            }
        }
        match stream.read(&mut piece)? {
            0 => return Ok(text),
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
}
