//! `POST /v1/audio/speech/batch`: many texts in one request, each answered with a line of JSON as soon as it is spoken.
//!
//! The body is that of `/v1/audio/speech` with `items` in the place of `input`: `[{"input", "id", "voice", "language", "speed",
//! "seed"}]`; what an item does not say is as the body says. A line: `{"index", "id", "format", "seconds", "audio"}` with the sound
//! in base64, or `{"index", "id", "error"}`. Lines come in the order in which texts are done.

use super::openai::{SpeechRequest, format, optional, required, text_of, wrong};
use super::{App, client, object_of};
use crate::answer::ApiError;
use crate::limits::{BATCH_BYTES, BATCH_ITEMS};
use crate::models::{Model, NotTaken};
use crate::queue::Refused;
use crate::sound::SoundEvent;
use crate::speaker::{RATE, SpeakerError, Utterance};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_core::Stream;
use myxtts_speak::sound_file::{Encoder, Format, Start};
use serde_json::{Map, Value as Json, json};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// Texts of a batch that are spoken or wait in the queue at the same time: others have their turns between them.
const AT_ONCE: usize = 8;

/// Until it is tried again where the queue is full.
const RETRY: Duration = Duration::from_millis(50);

/// What a client asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchRequest {
    pub model: String,
    pub format: Format,
    pub items: Vec<Item>,
}

/// One text of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// As the client calls it; null where it does not.
    pub id: Json,
    pub utterance: Utterance,
}

impl BatchRequest {
    /// Of the body of a request.
    pub fn read(object: &Map<String, Json>) -> Result<BatchRequest, ApiError> {
        let model = required(object, "model")?.to_owned();
        let format = format(optional(object, "response_format")?.unwrap_or("mp3"))?;
        let items = match object.get("items") {
            Some(Json::Array(items)) if (1..=BATCH_ITEMS).contains(&items.len()) => items,
            _ => return Err(wrong("items", &format!("a list of 1 to {BATCH_ITEMS} objects with `input`"))),
        };
        let mut usual = object.clone();
        usual.remove("items");
        let items = items.iter().enumerate().map(|(number, item)| {
            let named = |error: ApiError| ApiError {
                message: format!("items[{number}]: {}", error.message),
                param: Some(format!("items[{number}].{}", error.param.unwrap_or_default())),
                ..error
            };
            let Json::Object(own) = item else { return Err(named(wrong("", "an object with `input`"))) };
            let text = required(own, "input").and_then(|text| text_of(text, "input")).map_err(named)?;
            let mut all = usual.clone();
            all.extend(own.clone());
            let SpeechRequest { utterance, .. } = SpeechRequest::read(&all).map_err(named)?;
            let id = match own.get("id") {
                None | Some(Json::Null) => Json::Null,
                Some(id @ (Json::String(_) | Json::Number(_))) => id.clone(),
                Some(_) => return Err(named(wrong("id", "a string or a number"))),
            };
            Ok(Item { id, utterance: Utterance { text, ..utterance } })
        });
        Ok(BatchRequest { model, format, items: items.collect::<Result<_, _>>()? })
    }
}

pub async fn speech(State(app): State<Arc<App>>, request: Request) -> Response {
    let client = client(&request);
    let asked = object_of(request, BATCH_BYTES).await.and_then(|object| BatchRequest::read(&object));
    let BatchRequest { model, format, items } = match asked {
        Ok(asked) => asked,
        Err(error) => return error.into_response(),
    };
    let model = match app.models.named(&model) {
        Ok(model) => model,
        Err(error) => return error.into_response(),
    };
    // One line at a time waits for the client; when it leaves, whoever sends to it ends.
    let (sender, lines) = mpsc::channel(1);
    let items = Arc::new(Mutex::new(items.into_iter().enumerate()));
    for _ in 0..AT_ONCE {
        let (app, model, items, sender) = (app.clone(), model.clone(), items.clone(), sender.clone());
        tokio::spawn(async move {
            loop {
                let Some((index, Item { id, utterance })) = items.lock().await.next() else { return };
                let said = tokio::select! {
                    said = say(&app, &model, client, utterance, format) => said,
                    () = sender.closed() => return,
                };
                let line = match said {
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

/// The sound of one text and its seconds.
async fn say(
    app: &App,
    model: &Arc<Model>,
    client: IpAddr,
    utterance: Utterance,
    format: Format,
) -> Result<(Vec<u8>, f64), ApiError> {
    let failed = |error: myxtts_speak::sound_file::SoundFileError| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "encoding_failed", error.to_string())
    };
    let mut receiver = loop {
        match app.models.speak(model, client, utterance.clone()) {
            Ok(receiver) => break receiver,
            Err(NotTaken::Refused(Refused::Full)) => tokio::time::sleep(RETRY).await,
            Err(not_taken) => return Err(not_taken.into()),
        }
    };
    let (mut bytes, mut count) = (Vec::new(), 0);
    let mut encoder = Encoder::begin(format, RATE, Start::Sent, &mut bytes).map_err(failed)?;
    loop {
        match receiver.next().await {
            Some(SoundEvent::Samples(samples)) => {
                count += samples.len();
                let samples: Vec<f32> = samples.iter().map(|sample| f32::from(*sample) / 32768.0).collect();
                encoder.encode(&samples, &mut bytes).map_err(failed)?;
            }
            Some(SoundEvent::End(Ok(_))) => {
                encoder.finish(&mut bytes).map_err(failed)?;
                return Ok((bytes, count as f64 / f64::from(RATE)));
            }
            Some(SoundEvent::End(Err(error))) => return Err(error.into()),
            None => return Err(SpeakerError::Stopping.into()),
        }
    }
}

/// Lines as they come.
struct Lines(mpsc::Receiver<Bytes>);

impl Stream for Lines {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}
