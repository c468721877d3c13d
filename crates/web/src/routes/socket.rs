//! `GET /v1/audio/speech/stream`, a WebSocket: text comes in pieces, sound goes out while more of it comes.
//!
//! | the client sends | meaning |
//! |---|---|
//! | `{"voice", "response_format", "language", "speed", "seed", "model"}` | how to speak; the first message, `voice` alone is needed; `pcm` where no format is named |
//! | `{"text": "..."}` | more text; `"flush": true` beside it: say it although its sentence may go on |
//! | `{"type": "cancel"}` | forget what was not said, stop what is being said |
//! | `{"type": "end"}` | no more text comes |
//!
//! Sound comes as binary messages, one stream in the format; events as text: `{"type": "cancelled"}`, `{"type": "done", "usage"}`
//! before the end, `{"type": "error", "error"}` as OpenAI's API has errors.

use super::openai::{format, manner, optional, wrong};
use super::{App, client};
use crate::answer::ApiError;
use crate::connection::stopped;
use crate::limits::{JSON_BYTES, SESSION_IDLE_TIME};
use crate::session::{Session, SessionEvent};
use crate::speaker::{RATE, SpeakerError, Usage, Utterance};
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use myxtts_speak::sound_file::{Encoder, Format, Start};
use serde_json::{Map, Value as Json, json};
use std::net::IpAddr;
use std::sync::Arc;

pub async fn open(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    let Ok(permit) = app.sessions.clone().try_acquire_owned() else {
        let message = "too many sessions are open already: try again later";
        return ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", message).into_response();
    };
    let (mut parts, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(_) => {
            let message = "this address is a WebSocket: connect to it as one";
            return ApiError::new(StatusCode::BAD_REQUEST, "not_a_websocket", message).into_response();
        }
    };
    upgrade.max_message_size(JSON_BYTES).on_upgrade(move |socket| async move {
        serve(app, client, socket).await;
        drop(permit);
    })
}

/// What a client says.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage {
    /// How to speak.
    Begin {
        model: Option<String>,
        manner: Utterance,
        format: Format,
    },
    /// More text, and whether to say it now.
    Text(String, bool),
    Cancel,
    End,
}

impl ClientMessage {
    /// Of a text message; `is_first` where nothing came before it.
    pub fn read(text: &str, is_first: bool) -> Result<ClientMessage, ApiError> {
        let object: Map<String, Json> = match serde_json::from_str(text) {
            Ok(Json::Object(object)) => object,
            Ok(_) => return Err(invalid("the message is JSON, but no object".to_owned())),
            Err(error) => return Err(invalid(format!("the message is not JSON: {error}"))),
        };
        if is_first {
            let format = format(optional(&object, "response_format")?.unwrap_or("pcm"))?;
            let model = optional(&object, "model")?.map(str::to_owned);
            return Ok(ClientMessage::Begin { model, manner: manner(&object)?, format });
        }
        match optional(&object, "type")? {
            Some("cancel") => return Ok(ClientMessage::Cancel),
            Some("end") => return Ok(ClientMessage::End),
            None | Some("text") => {}
            Some(_) => return Err(wrong("type", "`text`, `cancel` or `end`")),
        }
        let text = optional(&object, "text")?.ok_or_else(|| wrong("text", "a string"))?;
        let flush = match object.get("flush") {
            None | Some(Json::Null) => false,
            Some(flush) => flush.as_bool().ok_or_else(|| wrong("flush", "true or false"))?,
        };
        Ok(ClientMessage::Text(text.to_owned(), flush))
    }
}

fn invalid(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message)
}

async fn serve(app: Arc<App>, client: IpAddr, mut socket: WebSocket) {
    // A client that is gone is told nothing.
    let _ = match talk(app, client, &mut socket).await {
        Ok(usage) => {
            let Usage { text_tokens, audio_tokens } = usage;
            let total = text_tokens + audio_tokens;
            let usage =
                json!({ "input_tokens": text_tokens, "output_tokens": audio_tokens, "total_tokens": total });
            socket.send(text(&json!({ "type": "done", "usage": usage }))).await
        }
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

/// The next text message; an error without a reason where the client is gone.
async fn received(socket: &mut WebSocket) -> Result<String, Option<ApiError>> {
    loop {
        match socket.recv().await {
            Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
            Some(Ok(Message::Binary(_))) => {
                return Err(Some(invalid("messages are to be text with JSON".to_owned())));
            }
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(None),
        }
    }
}

async fn talk(app: Arc<App>, client: IpAddr, socket: &mut WebSocket) -> Result<Usage, Option<ApiError>> {
    let idle = || {
        let message = format!("nothing came for {} seconds", SESSION_IDLE_TIME.as_secs());
        Some(ApiError::new(StatusCode::REQUEST_TIMEOUT, "session_idle", message))
    };
    let first = tokio::time::timeout(SESSION_IDLE_TIME, received(socket)).await.map_err(|_| idle())??;
    let ClientMessage::Begin { model, manner, format } = ClientMessage::read(&first, true)? else {
        return Err(None);
    };
    let model = app.models.named_or_first(model.as_deref())?;
    let failed = |error: myxtts_speak::sound_file::SoundFileError| {
        Some(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "encoding_failed", error.to_string()))
    };
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(format, RATE, Start::Sent, &mut bytes).map_err(failed)?;
    let mut stopping = app.stopping.clone();
    let mut session = Session::new(app, model, client, manner);
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
                    // Only the first message is read as one.
                    ClientMessage::Begin { .. } => return Err(None),
                }
            }
            event = session.next() => match event {
                SessionEvent::Samples(samples) => {
                    let samples: Vec<f32> = samples.iter().map(|sample| f32::from(*sample) / 32768.0).collect();
                    encoder.encode(&samples, &mut bytes).map_err(failed)?;
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
