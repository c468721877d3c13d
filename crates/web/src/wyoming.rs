//! Wyoming over TCP, as Home Assistant speaks it: a line of JSON, data and payload for each event.
//!
//! | the client sends | and gets |
//! |---|---|
//! | `describe` | `info`: voices and languages |
//! | `synthesize` | `audio-start`, `audio-chunk`..., `audio-stop` |
//! | `synthesize-start`, `synthesize-chunk`..., `synthesize-stop` | the same while text still comes, then `synthesize-stopped` |
//! | `ping` | `pong` |
//!
//! The protocol knows no token, so only a loopback address is listened on.

use crate::answer::ApiError;
use crate::connection::stopped;
use crate::limits::{JSON_BYTES, SESSION_IDLE_TIME, TEXT_CHARACTERS};
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

/// Bytes of a line.
const LINE_BYTES: usize = 64 << 10;

/// Bytes of a payload, which is none of ours and passed over.
const PAYLOAD_BYTES: usize = 1 << 20;

/// Events that a client may be ahead.
const EVENTS: usize = 64;

/// After an accept that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// What a client says.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    Describe,
    /// A text as a whole.
    Synthesize(String, Voice),
    /// A text that comes in pieces.
    Start(Voice),
    Chunk(String),
    Stop,
    Ping(Json),
    /// One that is nothing to us.
    Other,
}

/// Who is to speak; none for whoever there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Voice {
    pub name: Option<String>,
    pub language: Option<String>,
}

/// A line, and what follows it.
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
            return Err(broken("a line is no JSON object"));
        };
        let length = |object: &Map<String, Json>, name: &str, most: usize| match object.get(name) {
            None | Some(Json::Null) => Ok(0),
            Some(length) => length
                .as_u64()
                .filter(|length| *length <= most as u64)
                .map(|length| length as usize)
                .ok_or_else(|| broken("a length is too large or no number")),
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

    /// With the data that followed.
    fn with(mut self, data: &[u8]) -> io::Result<ClientEvent> {
        if !data.is_empty() {
            let Ok(Json::Object(more)) = serde_json::from_slice(data) else {
                return Err(broken("the data of an event are no JSON object"));
            };
            self.data.extend(more);
        }
        let text = || self.data.get("text").and_then(Json::as_str).unwrap_or_default().to_owned();
        let voice = || {
            let of = |name: &str| self.data.get("voice")?.get(name)?.as_str().map(str::to_owned);
            Voice { name: of("name"), language: of("language") }
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
    /// The first event of bytes.
    pub fn parse(bytes: &[u8]) -> io::Result<ClientEvent> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| broken("no line"))?;
        let head = Head::parse(&bytes[..end])?;
        let data = bytes.get(end + 1..end + 1 + head.data_length).ok_or_else(|| broken("cut off"))?;
        head.with(data)
    }

    /// The next event; none at the end.
    async fn read(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<ClientEvent>> {
        let mut line = Vec::new();
        reader.take(LINE_BYTES as u64).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(broken("a line does not end"));
        }
        let head = Head::parse(&line)?;
        let mut data = vec![0; head.data_length];
        reader.read_exact(&mut data).await?;
        let mut payload = reader.take(head.payload_length as u64);
        tokio::io::copy(&mut payload, &mut tokio::io::sink()).await?;
        head.with(&data).map(Some)
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
            // A client that breaks a connection is none of our errors.
            let _ = Conversation::hold(app, client, stream).await;
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

/// A connection.
struct Conversation {
    app: Arc<App>,
    client: IpAddr,
    writer: OwnedWriteHalf,
    session: Option<Session>,
    /// Whether its text comes in pieces.
    is_streaming: bool,
    has_begun: bool,
}

impl Conversation {
    async fn hold(app: Arc<App>, client: IpAddr, stream: TcpStream) -> io::Result<()> {
        // Small pieces of sound are sent as they come. A socket without this option works as well.
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
            Conversation { app, client, writer, session: None, is_streaming: false, has_begun: false };
        let held = this.run(&mut events, &mut stopping).await;
        reading.abort();
        held
    }

    async fn run(
        &mut self,
        events: &mut mpsc::Receiver<ClientEvent>,
        stopping: &mut tokio::sync::watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut waiting: VecDeque<ClientEvent> = VecDeque::new();
        loop {
            // While one text is said whole, what comes after it waits.
            let listens = self.session.is_none() || self.is_streaming;
            if listens && let Some(event) = waiting.pop_front() {
                self.answer(event).await?;
                continue;
            }
            let is_idle = self.session.as_ref().is_none_or(Session::is_idle);
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) if waiting.len() < EVENTS => waiting.push_back(event),
                    // It has left, or will not wait.
                    _ => return Ok(()),
                },
                event = next(&mut self.session) => self.send_sound(event).await?,
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
            // Clients send the whole text as well, for servers that take no pieces.
            ClientEvent::Synthesize(..) if self.is_streaming => Ok(()),
            ClientEvent::Synthesize(text, voice) => {
                let Some(mut session) = self.begin(voice, false).await? else { return Ok(()) };
                let taken = match text.chars().count() <= TEXT_CHARACTERS {
                    true => session.push(&text),
                    false => Err(ApiError::field("text", "string_above_max_length", "the text is too long")),
                };
                session.end();
                self.session = Some(session);
                match taken {
                    Ok(()) => Ok(()),
                    Err(error) => self.send_sound(SessionEvent::Failed(error)).await,
                }
            }
            ClientEvent::Start(voice) => {
                self.session = self.begin(voice, true).await?;
                Ok(())
            }
            ClientEvent::Chunk(text) => match self.session.as_mut().map(|session| session.push(&text)) {
                Some(Err(error)) => self.send_sound(SessionEvent::Failed(error)).await,
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

    /// None where there is nobody to speak, which the client is told.
    async fn begin(&mut self, voice: Voice, is_streaming: bool) -> io::Result<Option<Session>> {
        (self.is_streaming, self.has_begun) = (is_streaming, false);
        let model = match self.app.models.first() {
            Ok(model) => model,
            Err(error) => {
                self.send_sound(SessionEvent::Failed(error)).await?;
                return Ok(None);
            }
        };
        let languages = model.languages();
        let language = voice.language.map(|code| code.to_ascii_lowercase()).and_then(|code| {
            let base = code.split(['-', '_']).next().unwrap_or_default().to_owned();
            [code, base].into_iter().find(|code| languages.contains(code))
        });
        let manner = Utterance {
            text: String::new(),
            voice: voice.name.unwrap_or_else(|| crate::model::DEFAULT_VOICE.to_owned()),
            language,
            speed: 1.0,
            seed: 0,
            sampling: Sampling::default(),
        };
        Ok(Some(Session::new(self.app.clone(), model, self.client, manner)))
    }

    async fn send_sound(&mut self, event: SessionEvent) -> io::Result<()> {
        if matches!(event, SessionEvent::Idle) {
            return Ok(());
        }
        let sound = json!({ "rate": RATE, "width": 2, "channels": 1 });
        if !self.has_begun {
            self.has_begun = true;
            self.send("audio-start", &sound, &[]).await?;
        }
        let failed = match event {
            SessionEvent::Samples(samples) => {
                let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                return self.send("audio-chunk", &sound, &bytes).await;
            }
            SessionEvent::Idle | SessionEvent::Finished(_) => None,
            SessionEvent::Failed(error) => Some(error),
        };
        self.session = None;
        if let Some(error) = failed {
            self.send("error", &json!({ "text": error.message, "code": error.code }), &[]).await?;
        }
        self.send("audio-stop", &json!({}), &[]).await?;
        if std::mem::take(&mut self.is_streaming) {
            self.send("synthesize-stopped", &json!({}), &[]).await?;
        }
        Ok(())
    }

    async fn info(&self) -> Json {
        let by = json!({ "name": "MyXTTS", "url": "" });
        let model = self.app.models.first().ok();
        let (names, languages) = match &model {
            Some(model) => (crate::routes::voice_names(model).await.unwrap_or_default(), model.languages()),
            None => Default::default(),
        };
        let speaks = model.map_or_else(|| "no model yet".to_owned(), |model| model.name.clone());
        let version = env!("CARGO_PKG_VERSION");
        let voice = |name: &String| {
            json!({
                "name": name,
                "description": name,
                "attribution": by,
                "installed": true,
                "version": version,
                "languages": languages,
                "speakers": null,
            })
        };
        let voices: Vec<Json> = names.iter().map(voice).collect();
        let program = json!({
            "name": "myxtts",
            "description": format!("MyXTTS speaking with {speaks}"),
            "attribution": by,
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

/// The next of a session's sound; for ever nothing where there is none.
async fn next(session: &mut Option<Session>) -> SessionEvent {
    match session {
        Some(session) => session.next().await,
        None => std::future::pending().await,
    }
}
