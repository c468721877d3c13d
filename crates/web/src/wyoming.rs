//! The Wyoming protocol over TCP, as used by Home Assistant: a line of JSON, data and payload per event.
//!
//! | client sends | server replies |
//! |---|---|
//! | `describe` | `info`: voices and languages |
//! | `synthesize` | `audio-start`, `audio-chunk`..., `audio-stop` |
//! | `synthesize-start`, `synthesize-chunk`..., `synthesize-stop` | the same while text still arrives, then `synthesize-stopped` |
//! | `ping` | `pong` |
//!
//! The protocol has no authentication, so the server listens on a loopback address only.

use crate::connection::stopped;
use crate::limits::{JSON_BYTES, SESSION_IDLE_TIME, TEXT_CHARACTERS};
use crate::response::ApiError;
use crate::routes::App;
use crate::session::{Session, SessionEvent};
use crate::speaker::{RATE, Sampling, Utterance};
use serde_json::{Map, Value as Json, json};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Maximum bytes of a line.
const LINE_BYTES: usize = 64 << 10;

/// Maximum bytes of a payload, which is ignored.
const PAYLOAD_BYTES: usize = 1 << 20;

/// Maximum number of unprocessed events of a client.
const EVENTS: usize = 64;

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// An event from a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    Describe,
    /// A complete text.
    Synthesize(String, Voice),
    /// Start of a text that arrives in pieces.
    Start(Voice),
    Chunk(String),
    Stop,
    Ping(Json),
    /// An event that is ignored.
    Other,
}

/// Requested voice; `None` for the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Voice {
    pub name: Option<String>,
    pub language: Option<String>,
}

/// Header line of an event.
struct Head {
    kind: String,
    data: Map<String, Json>,
    data_length: usize,
    payload_length: usize,
}

fn broken(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}

impl Head {
    fn parse(line: &[u8]) -> io::Result<Head> {
        let Ok(Json::Object(mut object)) = serde_json::from_slice(line) else {
            return Err(broken("a line is not a JSON object"));
        };
        let length = |object: &Map<String, Json>, name: &str, limit: usize| match object.get(name) {
            None | Some(Json::Null) => Ok(0),
            Some(length) => length
                .as_u64()
                .filter(|length| *length <= limit as u64)
                .map(|length| length as usize)
                .ok_or_else(|| broken("a length is too large or not a number")),
        };
        let (data_length, payload_length) =
            (length(&object, "data_length", JSON_BYTES)?, length(&object, "payload_length", PAYLOAD_BYTES)?);
        let Some(Json::String(kind)) = object.remove("type") else {
            return Err(broken("an event has no type"));
        };
        let data = match object.remove("data") {
            Some(Json::Object(data)) => data,
            _ => Map::new(),
        };
        Ok(Head { kind, data, data_length, payload_length })
    }

    /// Combines the header with the data that follows it.
    fn with_data(mut self, data: &[u8]) -> io::Result<ClientEvent> {
        if !data.is_empty() {
            let Ok(Json::Object(more)) = serde_json::from_slice(data) else {
                return Err(broken("the data of an event is not a JSON object"));
            };
            self.data.extend(more);
        }
        let text = || self.data.get("text").and_then(Json::as_str).unwrap_or_default().to_owned();
        let voice = || {
            let field = |name: &str| self.data.get("voice")?.get(name)?.as_str().map(str::to_owned);
            Voice { name: field("name"), language: field("language") }
        };
        Ok(match self.kind.as_str() {
            "describe" => ClientEvent::Describe,
            "synthesize" => ClientEvent::Synthesize(text(), voice()),
            "synthesize-start" => ClientEvent::Start(voice()),
            "synthesize-chunk" => ClientEvent::Chunk(text()),
            "synthesize-stop" => ClientEvent::Stop,
            "ping" => ClientEvent::Ping(Json::Object(self.data)),
            _ => ClientEvent::Other,
        })
    }
}

impl ClientEvent {
    /// Parses the first event.
    pub fn parse(bytes: &[u8]) -> io::Result<ClientEvent> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| broken("there is no line"))?;
        let head = Head::parse(&bytes[..end])?;
        let data =
            bytes.get(end + 1..end + 1 + head.data_length).ok_or_else(|| broken("the data is truncated"))?;
        head.with_data(data)
    }

    /// Reads the next event; `None` at the end of the connection.
    async fn read(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<ClientEvent>> {
        let mut line = Vec::new();
        reader.take(LINE_BYTES as u64).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(broken("a line is too long or incomplete"));
        }
        let head = Head::parse(&line)?;
        let mut data = vec![0; head.data_length];
        reader.read_exact(&mut data).await?;
        let mut payload = reader.take(head.payload_length as u64);
        tokio::io::copy(&mut payload, &mut tokio::io::sink()).await?;
        head.with_data(&data).map(Some)
    }
}

/// Serves connections until the server stops.
pub async fn serve(listener: TcpListener, app: Arc<App>) {
    let mut stopping = app.stopping.clone();
    loop {
        let accepted = tokio::select! {
            () = stopped(&mut stopping) => return,
            accepted = accept(&listener, &app) => accepted,
        };
        let Some((stream, client, permit)) = accepted else { continue };
        let app = app.clone();
        tokio::spawn(async move {
            // A connection broken by the client is not an error.
            let _ = Connection::serve(app, client, stream).await;
            drop(permit);
        });
    }
}

async fn accept(
    listener: &TcpListener,
    app: &App,
) -> Option<(TcpStream, IpAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = app.sessions.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer.ip(), permit)),
        Err(_) => {
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

/// One client connection.
struct Connection {
    app: Arc<App>,
    client: IpAddr,
    writer: OwnedWriteHalf,
    session: Option<Session>,
    /// Whether its text arrives in pieces.
    is_streaming: bool,
    has_started: bool,
}

impl Connection {
    async fn serve(app: Arc<App>, client: IpAddr, stream: TcpStream) -> io::Result<()> {
        // Small pieces of audio are sent immediately. A failure to set this is harmless.
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let (sender, mut events) = mpsc::channel(EVENTS);
        let reading = tokio::spawn(async move {
            let mut reader = BufReader::new(reader);
            while let Ok(Some(event)) = ClientEvent::read(&mut reader).await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        });
        let mut stopping = app.stopping.clone();
        let mut this =
            Connection { app, client, writer, session: None, is_streaming: false, has_started: false };
        let result = this.run(&mut events, &mut stopping).await;
        reading.abort();
        result
    }

    async fn run(
        &mut self,
        events: &mut mpsc::Receiver<ClientEvent>,
        stopping: &mut tokio::sync::watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut waiting: VecDeque<ClientEvent> = VecDeque::new();
        loop {
            // While a complete text is spoken, later events wait.
            let can_answer = self.session.is_none() || self.is_streaming;
            if can_answer && let Some(event) = waiting.pop_front() {
                self.answer(event).await?;
                continue;
            }
            let is_idle = self.session.as_ref().is_none_or(Session::is_idle);
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) if waiting.len() < EVENTS => waiting.push_back(event),
                    // The client has disconnected or sends too much.
                    _ => return Ok(()),
                },
                event = next(&mut self.session) => self.send_audio(event).await?,
                () = tokio::time::sleep(SESSION_IDLE_TIME), if is_idle => return Ok(()),
                () = stopped(stopping), if is_idle => return Ok(()),
            }
        }
    }

    async fn answer(&mut self, event: ClientEvent) -> io::Result<()> {
        match event {
            ClientEvent::Describe => {
                let info = self.info().await;
                self.send("info", &info, &[]).await
            }
            ClientEvent::Ping(data) => self.send("pong", &data, &[]).await,
            // Clients also send the complete text, for servers without streaming.
            ClientEvent::Synthesize(..) if self.is_streaming => Ok(()),
            ClientEvent::Synthesize(text, voice) => {
                let Some(mut session) = self.begin(voice, false).await? else { return Ok(()) };
                let result = match text.chars().count() <= TEXT_CHARACTERS {
                    true => session.push(&text),
                    false => Err(ApiError::field("text", "string_above_max_length", "the text is too long")),
                };
                session.end();
                self.session = Some(session);
                match result {
                    Ok(()) => Ok(()),
                    Err(error) => self.send_audio(SessionEvent::Failed(error)).await,
                }
            }
            ClientEvent::Start(voice) => {
                self.session = self.begin(voice, true).await?;
                Ok(())
            }
            ClientEvent::Chunk(text) => match self.session.as_mut().map(|session| session.push(&text)) {
                Some(Err(error)) => self.send_audio(SessionEvent::Failed(error)).await,
                _ => Ok(()),
            },
            ClientEvent::Stop => {
                if let Some(session) = &mut self.session {
                    session.end();
                }
                Ok(())
            }
            ClientEvent::Other => Ok(()),
        }
    }

    /// Starts a session; `None` if there is no model, which is reported to the client.
    async fn begin(&mut self, voice: Voice, is_streaming: bool) -> io::Result<Option<Session>> {
        (self.is_streaming, self.has_started) = (is_streaming, false);
        let model = match self.app.models.first() {
            Ok(model) => model,
            Err(error) => {
                self.send_audio(SessionEvent::Failed(error)).await?;
                return Ok(None);
            }
        };
        let languages = model.languages();
        let language = voice.language.map(|code| code.to_ascii_lowercase()).and_then(|code| {
            let base = code.split(['-', '_']).next().unwrap_or_default().to_owned();
            [code, base].into_iter().find(|code| languages.contains(code))
        });
        let options = Utterance {
            text: String::new(),
            voice: voice.name.unwrap_or_else(|| crate::model::DEFAULT_VOICE.to_owned()),
            language,
            speed: 1.0,
            seed: 0,
            sampling: Sampling::default(),
        };
        Ok(Some(Session::new(self.app.clone(), model, self.client, options)))
    }

    async fn send_audio(&mut self, event: SessionEvent) -> io::Result<()> {
        if matches!(event, SessionEvent::Idle) {
            return Ok(());
        }
        let audio = json!({ "rate": RATE, "width": 2, "channels": 1 });
        if !self.has_started {
            self.has_started = true;
            self.send("audio-start", &audio, &[]).await?;
        }
        let error = match event {
            SessionEvent::Samples(samples) => {
                let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                return self.send("audio-chunk", &audio, &bytes).await;
            }
            SessionEvent::Idle | SessionEvent::Finished(_) => None,
            SessionEvent::Failed(error) => Some(error),
        };
        self.session = None;
        if let Some(error) = error {
            self.send("error", &json!({ "text": error.message, "code": error.code }), &[]).await?;
        }
        self.send("audio-stop", &json!({}), &[]).await?;
        if std::mem::take(&mut self.is_streaming) {
            self.send("synthesize-stopped", &json!({}), &[]).await?;
        }
        Ok(())
    }

    async fn info(&self) -> Json {
        let attribution = json!({ "name": "MyXTTS", "url": "" });
        let model = self.app.models.first().ok();
        let (names, languages) = match &model {
            Some(model) => (crate::routes::voice_names(model).await.unwrap_or_default(), model.languages()),
            None => Default::default(),
        };
        let name = model.map_or_else(|| "no model yet".to_owned(), |model| model.name.clone());
        let version = env!("CARGO_PKG_VERSION");
        let voice = |name: &String| {
            json!({
                "name": name,
                "description": name,
                "attribution": attribution,
                "installed": true,
                "version": version,
                "languages": languages,
                "speakers": null,
            })
        };
        let voices: Vec<Json> = names.iter().map(voice).collect();
        let program = json!({
            "name": "myxtts",
            "description": format!("MyXTTS with the model {name}"),
            "attribution": attribution,
            "installed": true,
            "version": version,
            "voices": voices,
            "supports_synthesize_streaming": true,
        });
        let none: [Json; 0] = [];
        json!({ "asr": none, "tts": [program], "handle": none, "intent": none, "wake": none, "mic": none, "snd": none })
    }

    async fn send(&mut self, kind: &str, data: &Json, payload: &[u8]) -> io::Result<()> {
        let head = json!({ "type": kind, "data": data, "payload_length": payload.len() });
        let mut bytes = format!("{head}\n").into_bytes();
        bytes.extend_from_slice(payload);
        match tokio::time::timeout(crate::limits::STALLED_TIME, self.writer.write_all(&bytes)).await {
            Ok(written) => written,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Next event of a session; pending forever without one.
async fn next(session: &mut Option<Session>) -> SessionEvent {
    match session {
        Some(session) => session.next().await,
        None => std::future::pending().await,
    }
}
