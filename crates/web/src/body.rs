//! The sound of one request as the body of its answer, encoded when the client takes it.

use crate::answer::ApiError;
use crate::sound::{SoundEvent, SoundReceiver};
use crate::speaker::{RATE, SpeakerError, Usage};
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_core::Stream;
use myxtts_speak::sound_file::{Encoder, Format, SoundFileError, Start};
use serde_json::{Value as Json, json};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How bytes of sound are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Not at all.
    Audio,
    /// As server-sent events.
    Events,
}

/// Waits for the first sound: until then anything that goes wrong is an answer of its own.
pub async fn begin(mut receiver: SoundReceiver, format: Format, framing: Framing) -> Response {
    let mut bytes = Vec::new();
    let mut encoder = match Encoder::begin(format, RATE, Start::Sent, &mut bytes) {
        Ok(encoder) => encoder,
        Err(error) => return failed(&error).into_response(),
    };
    let end = match receiver.next().await {
        Some(SoundEvent::Samples(samples)) => {
            if let Err(error) = encoder.encode(&floats(&samples), &mut bytes) {
                return failed(&error).into_response();
            }
            None
        }
        Some(SoundEvent::End(Ok(usage))) => Some(usage),
        Some(SoundEvent::End(Err(error))) => return ApiError::from(error).into_response(),
        None => return ApiError::from(SpeakerError::Stopping).into_response(),
    };
    let mut body = SoundBody { receiver, encoder: Some(encoder), framing, ready: Vec::new(), error: None };
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

fn failed(error: &SoundFileError) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "encoding_failed", error.to_string())
}

fn floats(samples: &[i16]) -> Vec<f32> {
    samples.iter().map(|sample| f32::from(*sample) / 32768.0).collect()
}

fn event(json: &Json) -> Vec<u8> {
    format!("data: {json}\n\n").into_bytes()
}

struct SoundBody {
    receiver: SoundReceiver,
    /// None after the end.
    encoder: Option<Encoder>,
    framing: Framing,
    /// What can be sent.
    ready: Vec<u8>,
    /// Cuts the connection once all that is ready was sent: clients see that the sound is not whole.
    error: Option<io::Error>,
}

impl SoundBody {
    /// Makes encoded bytes ready.
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

    fn take(&mut self, samples: &[i16]) {
        let Some(encoder) = &mut self.encoder else { return };
        let mut bytes = Vec::new();
        match encoder.encode(&floats(samples), &mut bytes) {
            Ok(()) => self.add(&bytes),
            Err(error) => self.end(Err(failed(&error))),
        }
    }

    fn end(&mut self, result: Result<Usage, ApiError>) {
        let Some(encoder) = self.encoder.take() else { return };
        let mut rest = Vec::new();
        let result = result.and_then(|usage| match encoder.finish(&mut rest) {
            Ok(_) => Ok(usage),
            Err(error) => Err(failed(&error)),
        });
        self.add(&rest);
        match (result, self.framing) {
            (Ok(_), Framing::Audio) => {}
            (Ok(Usage { text_tokens, audio_tokens }), Framing::Events) => {
                let total = text_tokens + audio_tokens;
                let usage = json!({ "input_tokens": text_tokens, "output_tokens": audio_tokens, "total_tokens": total });
                self.ready.extend(event(&json!({ "type": "speech.audio.done", "usage": usage })));
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

impl Stream for SoundBody {
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
                Some(SoundEvent::Samples(samples)) => this.take(&samples),
                Some(SoundEvent::End(result)) => this.end(result.map_err(ApiError::from)),
                None => this.end(Err(SpeakerError::Stopping.into())),
            }
        }
    }
}
