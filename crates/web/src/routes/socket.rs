//! `GET /v1/audio/speech/stream`, a WebSocket: text arrives in pieces and audio is sent while more arrives.
//!
//! | client sends | meaning |
//! |---|---|
//! | `{"voice", "response_format", "language", "speed", "seed", "model"}` | options; the first message; only `voice` is required; the default format is `pcm` |
//! | `{"text": "..."}` | more text; with `"flush": true` it is spoken even if its sentence is incomplete |
//! | `{"type": "cancel"}` | discard waiting text and stop speaking |
//! | `{"type": "end"}` | end of the text |
//!
//! Audio is sent as binary messages that form one stream in the given format; events are text messages:
//! `{"type": "cancelled"}`, `{"type": "done", "usage"}` before the end, and `{"type": "error", "error"}` as in OpenAI's API.

use super::openai::{format, invalid as invalid_field, optional, speech_options};
use super::{App, client};
use crate::audio_stream::to_f32;
use crate::body::encoding_failed;
use crate::connection::stopped;
use crate::limits::{JSON_BYTES, SESSION_IDLE_TIME};
use crate::response::ApiError;
use crate::session::{Session, SessionEvent};
use crate::speaker::{RATE, SpeakerError, Usage, Utterance};
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use myxtts_speak::audio_file::{Encoder, Format, SinkKind};
use serde_json::{Map, Value as Json, json};
use std::net::IpAddr;
use std::sync::Arc;

pub async fn open(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    let Ok(permit) = app.sessions.clone().try_acquire_owned() else {
        let message = "too many sessions are open: try again later";
        return ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", message).into_response();
    };
    let (mut parts, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(_) => {
            let message = "this URL is a WebSocket: connect to it as one";
            return ApiError::new(StatusCode::BAD_REQUEST, "not_a_websocket", message).into_response();
        }
    };
    upgrade.max_message_size(JSON_BYTES).on_upgrade(move |socket| async move {
        serve(app, client, socket).await;
        drop(permit);
    })
}

/// A message from a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage {
    /// Options of the session.
    Begin {
        model: Option<String>,
        options: Utterance,
        format: Format,
    },
    /// More text, and whether to speak it now.
    Text(String, bool),
    Cancel,
    End,
}

impl ClientMessage {
    /// Parses a text message; `is_first` for the first one.
    pub fn read(text: &str, is_first: bool) -> Result<ClientMessage, ApiError> {
        let object: Map<String, Json> = match serde_json::from_str(text) {
            Ok(Json::Object(object)) => object,
            Ok(_) => return Err(invalid("the message is JSON, but not an object".to_owned())),
            Err(error) => return Err(invalid(format!("the message is not JSON: {error}"))),
        };
        if is_first {
            let format = format(optional(&object, "response_format")?.unwrap_or("pcm"))?;
            let model = optional(&object, "model")?.map(str::to_owned);
            return Ok(ClientMessage::Begin { model, options: speech_options(&object)?, format });
        }
        match optional(&object, "type")? {
            Some("cancel") => return Ok(ClientMessage::Cancel),
            Some("end") => return Ok(ClientMessage::End),
            None | Some("text") => {}
            Some(_) => return Err(invalid_field("type", "`text`, `cancel` or `end`")),
        }
        let text = optional(&object, "text")?.ok_or_else(|| invalid_field("text", "a string"))?;
        let flush = match object.get("flush") {
            None | Some(Json::Null) => false,
            Some(flush) => flush.as_bool().ok_or_else(|| invalid_field("flush", "true or false"))?,
        };
        Ok(ClientMessage::Text(text.to_owned(), flush))
    }
}

fn invalid(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message)
}

async fn serve(app: Arc<App>, client: IpAddr, mut socket: WebSocket) {
    // A disconnected client receives nothing.
    let _ = match run(app, client, &mut socket).await {
        Ok(usage) => socket.send(text(&json!({ "type": "done", "usage": usage.json() }))).await,
        Err(Some(error)) => {
            let mut json = error.body();
            json["type"] = "error".into();
            socket.send(text(&json)).await
        }
        Err(None) => return,
    };
    let close = CloseFrame { code: axum::extract::ws::close_code::NORMAL, reason: "".into() };
    let _ = socket.send(Message::Close(Some(close))).await;
}

fn text(json: &Json) -> Message {
    Message::Text(json.to_string().into())
}

/// Receives the next text message; an error without a reason means that the client has disconnected.
async fn received(socket: &mut WebSocket) -> Result<String, Option<ApiError>> {
    loop {
        match socket.recv().await {
            Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
            Some(Ok(Message::Binary(_))) => {
                return Err(Some(invalid("messages must be JSON text".to_owned())));
            }
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(None),
        }
    }
}

async fn run(app: Arc<App>, client: IpAddr, socket: &mut WebSocket) -> Result<Usage, Option<ApiError>> {
    let idle = || {
        let message = format!("no message arrived for {} seconds", SESSION_IDLE_TIME.as_secs());
        Some(ApiError::new(StatusCode::REQUEST_TIMEOUT, "session_idle", message))
    };
    let first = tokio::time::timeout(SESSION_IDLE_TIME, received(socket)).await.map_err(|_| idle())??;
    let ClientMessage::Begin { model, options, format } = ClientMessage::read(&first, true)? else {
        return Err(None);
    };
    let model = app.models.named_or_first(model.as_deref())?;
    let failed = |error| Some(encoding_failed(&error));
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(format, RATE, SinkKind::Streamed, &mut bytes).map_err(failed)?;
    let mut stopping = app.stopping.clone();
    let mut session = Session::new(app, model, client, options);
    loop {
        if !bytes.is_empty() {
            let sent = socket.send(Message::Binary(std::mem::take(&mut bytes).into()));
            sent.await.map_err(|_| None)?;
        }
        let is_idle = session.is_idle();
        tokio::select! {
            message = received(socket) => {
                match ClientMessage::read(&message?, false)? {
                    ClientMessage::Text(text, flush) => {
                        session.push(&text)?;
                        if flush {
                            session.flush();
                        }
                    }
                    ClientMessage::Cancel => {
                        session.cancel();
                        socket.send(self::text(&json!({ "type": "cancelled" }))).await.map_err(|_| None)?;
                    }
                    ClientMessage::End => session.end(),
                    // Only the first message is parsed as `Begin`.
                    ClientMessage::Begin { .. } => return Err(None),
                }
            }
            event = session.next() => match event {
                SessionEvent::Samples(samples) => {
                    encoder.encode(&to_f32(&samples), &mut bytes).map_err(failed)?;
                }
                SessionEvent::Idle => {}
                SessionEvent::Finished(usage) => {
                    encoder.finish(&mut bytes).map_err(failed)?;
                    socket.send(Message::Binary(bytes.into())).await.map_err(|_| None)?;
                    return Ok(usage);
                }
                SessionEvent::Failed(error) => return Err(Some(error)),
            },
            () = tokio::time::sleep(SESSION_IDLE_TIME), if is_idle => return Err(idle()),
            () = stopped(&mut stopping), if is_idle => {
                return Err(Some(SpeakerError::Stopping.into()));
            }
        }
    }
}
