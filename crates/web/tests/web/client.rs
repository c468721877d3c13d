//! A minimal HTTP client: one connection per request, with access to the pieces of the body.

use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    /// Asserts an error in OpenAI's format and returns it.
    #[track_caller]
    pub fn error(&self, status: u16) -> Json {
        let json = self.json();
        assert_eq!(self.status, status, "{json}");
        let error = json["error"].as_object().unwrap_or_else(|| panic!("{json}"));
        for key in ["message", "type", "param", "code"] {
            assert!(error.contains_key(key), "{key} is missing in {json}");
        }
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{json}");
        json["error"].clone()
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}")
}

/// A sent request whose response head was read.
pub struct Sent {
    pub reader: BufReader<TcpStream>,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    is_chunked: bool,
    length: usize,
}

/// Sends a request and reads the head of the response.
pub fn send(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Sent {
    let mut stream = connect(address);
    let head = head(method, path, headers);
    let mut bytes = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend(body);
    // A server may close the connection without reading everything.
    let _ = stream.write_all(&bytes);
    read_head(stream)
}

pub fn read_head(stream: TcpStream) -> Sent {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut text = String::new();
        reader.read_line(&mut text).unwrap();
        text.trim_end().to_owned()
    };
    let status = line().split(' ').nth(1).expect("a status line").parse().unwrap();
    let mut headers = Vec::new();
    while let Some((name, value)) = line().split_once(": ") {
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let find = |name: &str| headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.clone());
    let is_chunked = find("transfer-encoding").is_some_and(|value| value == "chunked");
    let length = find("content-length").map_or(0, |value| value.parse().unwrap());
    Sent { reader, status, headers, is_chunked, length }
}

impl Sent {
    /// The next piece of the body; `None` at its end. A truncated body is an error.
    pub fn piece(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        if !self.is_chunked {
            let mut all = vec![0; std::mem::take(&mut self.length)];
            self.reader.read_exact(&mut all)?;
            return Ok(Some(all).filter(|all| !all.is_empty()));
        }
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::UnexpectedEof))?;
        let mut piece = vec![0; length + 2];
        self.reader.read_exact(&mut piece)?;
        piece.truncate(length);
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    pub fn answer(mut self) -> Answer {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().expect("the body is complete") {
            body.extend(piece);
        }
        Answer { status: self.status, headers: self.headers, body }
    }
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, "GET", path, &[], b"").answer()
}

pub fn post(address: SocketAddr, path: &str, json: &Json) -> Answer {
    send(address, "POST", path, &[("Content-Type", "application/json")], json.to_string().as_bytes()).answer()
}

/// A form with a name and a recording.
pub fn form(name: &str, recording: &[u8]) -> (String, Vec<u8>) {
    let boundary = "a-boundary-of-tests";
    let mut body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\n{name}\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"audio_sample\"; filename=\"../../x.wav\"\r\nContent-Type: audio/wav\r\n\r\n"
    )
    .into_bytes();
    body.extend(recording);
    body.extend(format!("\r\n--{boundary}--\r\n").bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}
