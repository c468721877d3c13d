//! `POST /v1/audio/speech/batch`: many texts in one request, each answered with a line of JSON as soon as it is spoken.
//!
//! The body is that of `/v1/audio/speech` with `items` instead of `input`: `[{"input", "id", "voice", "language", "speed",
//! "seed"}]`; fields missing in an item are taken from the body. A line is `{"index", "id", "format", "seconds", "audio"}` with
//! base64 audio, or `{"index", "id", "error"}`. Lines are sent in order of completion.

use super::openai::{SpeechRequest, checked_text, format, invalid, optional, required};
use super::{App, client, object_with_limit};
use crate::audio_stream::{AudioEvent, to_f32};
use crate::body::encoding_failed;
use crate::limits::{BATCH_BYTES, BATCH_ITEMS};
use crate::models::{EnqueueError, Model};
use crate::queue::QueueError;
use crate::response::ApiError;
use crate::speaker::{RATE, SpeakerError, Utterance};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_core::Stream;
use myxtts_speak::audio_file::{Encoder, Format, SinkKind};
use serde_json::{Map, Value as Json, json};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// Texts of a batch that are spoken or queued at the same time; other clients take turns with them.
const AT_ONCE: usize = 8;

/// Retry interval when the queue is full.
const RETRY: Duration = Duration::from_millis(50);

/// A parsed batch request.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchRequest {
    pub model: String,
    pub format: Format,
    pub items: Vec<Item>,
}

/// One text of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The client's id; null if there is none.
    pub id: Json,
    pub utterance: Utterance,
}

impl BatchRequest {
    /// Parses the body of a request.
    pub fn read(object: &Map<String, Json>) -> Result<BatchRequest, ApiError> {
        let model = required(object, "model")?.to_owned();
        let format = format(optional(object, "response_format")?.unwrap_or("mp3"))?;
        let items = match object.get("items") {
            Some(Json::Array(items)) if (1..=BATCH_ITEMS).contains(&items.len()) => items,
            _ => return Err(invalid("items", &format!("a list of 1 to {BATCH_ITEMS} objects with `input`"))),
        };
        let mut defaults = object.clone();
        defaults.remove("items");
        let items = items.iter().enumerate().map(|(number, item)| {
            let located = |error: ApiError| ApiError {
                message: format!("items[{number}]: {}", error.message),
                param: Some(format!("items[{number}].{}", error.param.unwrap_or_default())),
                ..error
            };
            let Json::Object(own) = item else { return Err(located(invalid("", "an object with `input`"))) };
            let text =
                required(own, "input").and_then(|text| checked_text(text, "input")).map_err(located)?;
            let mut all = defaults.clone();
            all.extend(own.clone());
            let SpeechRequest { utterance, .. } = SpeechRequest::read(&all).map_err(located)?;
            let id = match own.get("id") {
                None | Some(Json::Null) => Json::Null,
                Some(id @ (Json::String(_) | Json::Number(_))) => id.clone(),
                Some(_) => return Err(located(invalid("id", "a string or a number"))),
            };
            Ok(Item { id, utterance: Utterance { text, ..utterance } })
        });
        Ok(BatchRequest { model, format, items: items.collect::<Result<_, _>>()? })
    }
}

pub async fn speech(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    let parsed = object_with_limit(request, BATCH_BYTES).await.and_then(|object| BatchRequest::read(&object));
    let BatchRequest { model, format, items } = match parsed {
        Ok(batch) => batch,
        Err(error) => return error.into_response(),
    };
    let model = match app.models.named(&model) {
        Ok(model) => model,
        Err(error) => return error.into_response(),
    };
    // At most one line waits for the client; when it disconnects, the tasks end.
    let (sender, lines) = mpsc::channel(1);
    let items = Arc::new(Mutex::new(items.into_iter().enumerate()));
    for _ in 0..AT_ONCE {
        let (app, model, items, sender) = (app.clone(), model.clone(), items.clone(), sender.clone());
        tokio::spawn(async move {
            loop {
                let Some((index, Item { id, utterance })) = items.lock().await.next() else { return };
                let spoken = tokio::select! {
                    spoken = speak(&app, &model, client, utterance, format) => spoken,
                    () = sender.closed() => return,
                };
                let line = match spoken {
                    Ok((bytes, seconds)) => json!({
                        "index": index,
                        "id": id,
                        "format": format.name(),
                        "seconds": seconds,
                        "audio": STANDARD.encode(bytes),
                    }),
                    Err(error) => json!({ "index": index, "id": id, "error": error.body()["error"] }),
                };
                if sender.send(Bytes::from(format!("{line}\n"))).await.is_err() {
                    return;
                }
            }
        });
    }
    let mut response = Response::new(Body::from_stream(Lines(lines)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Speaks one text and returns its encoded audio and length in seconds.
async fn speak(
    app: &App,
    model: &Arc<Model>,
    client: IpAddr,
    utterance: Utterance,
    format: Format,
) -> Result<(Vec<u8>, f64), ApiError> {
    let failed = |error| encoding_failed(&error);
    let mut receiver = loop {
        match app.models.speak(model, client, utterance.clone()) {
            Ok(receiver) => break receiver,
            Err(EnqueueError::Queue(QueueError::Full)) => tokio::time::sleep(RETRY).await,
            Err(error) => return Err(error.into()),
        }
    };
    let (mut bytes, mut count) = (Vec::new(), 0);
    let mut encoder = Encoder::begin(format, RATE, SinkKind::Streamed, &mut bytes).map_err(failed)?;
    loop {
        match receiver.next().await {
            Some(AudioEvent::Samples(samples)) => {
                count += samples.len();
                encoder.encode(&to_f32(&samples), &mut bytes).map_err(failed)?;
            }
            Some(AudioEvent::End(Ok(_))) => {
                encoder.finish(&mut bytes).map_err(failed)?;
                return Ok((bytes, count as f64 / f64::from(RATE)));
            }
            Some(AudioEvent::End(Err(error))) => return Err(error.into()),
            None => return Err(SpeakerError::Stopping.into()),
        }
    }
}

/// Response body of lines.
struct Lines(mpsc::Receiver<Bytes>);

impl Stream for Lines {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}
