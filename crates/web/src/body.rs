//! The audio of one request as a response body, encoded on demand.

use crate::audio_stream::{AudioEvent, AudioReceiver, to_f32};
use crate::response::ApiError;
use crate::speaker::{RATE, SpeakerError, Usage};
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_core::Stream;
use myxtts_speak::audio_file::{AudioFileError, Encoder, Format, SinkKind};
use serde_json::{Value as Json, json};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Framing of encoded audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Raw audio bytes.
    Audio,
    /// Server-sent events.
    Events,
}

/// Waits for the first audio: until then any failure becomes an error response.
pub async fn begin(mut receiver: AudioReceiver, format: Format, framing: Framing) -> Response {
    let mut bytes = Vec::new();
    let mut encoder = match Encoder::begin(format, RATE, SinkKind::Streamed, &mut bytes) {
        Ok(encoder) => encoder,
        Err(error) => return encoding_failed(&error).into_response(),
    };
    let end = match receiver.next().await {
        Some(AudioEvent::Samples(samples)) => {
            if let Err(error) = encoder.encode(&to_f32(&samples), &mut bytes) {
                return encoding_failed(&error).into_response();
            }
            None
        }
        Some(AudioEvent::End(Ok(usage))) => Some(usage),
        Some(AudioEvent::End(Err(error))) => return ApiError::from(error).into_response(),
        None => return ApiError::from(SpeakerError::Stopping).into_response(),
    };
    let mut body = AudioBody { receiver, encoder: Some(encoder), framing, ready: Vec::new(), error: None };
    body.add(&bytes);
    if let Some(usage) = end {
        body.end(Ok(usage));
    }
    let kind = match framing {
        Framing::Audio => format.media_type(),
        Framing::Events => "text/event-stream",
    };
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Error response of a failed encoder.
pub(crate) fn encoding_failed(error: &AudioFileError) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "encoding_failed", error.to_string())
}

fn event(json: &Json) -> Vec<u8> {
    format!("data: {json}\n\n").into_bytes()
}

struct AudioBody {
    receiver: AudioReceiver,
    /// `None` after the end.
    encoder: Option<Encoder>,
    framing: Framing,
    /// Bytes ready to send.
    ready: Vec<u8>,
    /// Aborts the connection once all ready bytes are sent, so that clients notice the truncated audio.
    error: Option<io::Error>,
}

impl AudioBody {
    /// Queues encoded bytes for sending.
    fn add(&mut self, bytes: &[u8]) {
        match self.framing {
            Framing::Audio => self.ready.extend_from_slice(bytes),
            Framing::Events if bytes.is_empty() => {}
            Framing::Events => {
                let delta = json!({ "type": "speech.audio.delta", "audio": STANDARD.encode(bytes) });
                self.ready.extend(event(&delta));
            }
        }
    }

    fn encode(&mut self, samples: &[i16]) {
        let Some(encoder) = &mut self.encoder else { return };
        let mut bytes = Vec::new();
        match encoder.encode(&to_f32(samples), &mut bytes) {
            Ok(()) => self.add(&bytes),
            Err(error) => self.end(Err(encoding_failed(&error))),
        }
    }

    fn end(&mut self, result: Result<Usage, ApiError>) {
        let Some(encoder) = self.encoder.take() else { return };
        let mut rest = Vec::new();
        let result = result.and_then(|usage| match encoder.finish(&mut rest) {
            Ok(_) => Ok(usage),
            Err(error) => Err(encoding_failed(&error)),
        });
        self.add(&rest);
        match (result, self.framing) {
            (Ok(_), Framing::Audio) => {}
            (Ok(usage), Framing::Events) => {
                self.ready.extend(event(&json!({ "type": "speech.audio.done", "usage": usage.json() })));
            }
            (Err(error), Framing::Events) => {
                let mut json = error.body();
                json["type"] = "error".into();
                self.ready.extend(event(&json));
            }
            (Err(error), Framing::Audio) => self.error = Some(io::Error::other(error.message)),
        }
    }
}

impl Stream for AudioBody {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if !this.ready.is_empty() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut this.ready).into())));
            }
            if let Some(error) = this.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if this.encoder.is_none() {
                return Poll::Ready(None);
            }
            match std::task::ready!(this.receiver.poll(context)) {
                Some(AudioEvent::Samples(samples)) => this.encode(&samples),
                Some(AudioEvent::End(result)) => this.end(result.map_err(ApiError::from)),
                None => this.end(Err(SpeakerError::Stopping.into())),
            }
        }
    }
}
