//! What is answered where.

mod batch;
mod models;
mod openai;
mod socket;
mod status;
mod voices;
mod xtts;

use crate::access::Access;
use crate::answer::ApiError;
use crate::body::{self, Framing};
use crate::connection::Peer;
use crate::limits::{BODY_TIME, JSON_BYTES, UPLOAD_BYTES};
use crate::metrics::Metrics;
use crate::models::{Model, Models};
use crate::page;
use crate::speaker::Utterance;
use crate::studio::{self, Studio};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_LENGTH,
    CONTENT_TYPE, VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures_core::Stream;
use myxtts_speak::sound_file::Format;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Everything that requests share: made once by [`crate::Server::start`], the state of every route.
pub struct App {
    /// Who speaks. Asking for speech never blocks.
    pub models: Arc<Models>,
    /// Counters behind `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Token, hosts and origins; checked by [`gate`] for every route, the studio's too.
    pub access: Access,
    /// When the server started, in seconds of Unix time.
    pub created: u64,
    /// What SillyTavern has set, for the routes of XTTS clients.
    pub xtts: Mutex<xtts::Settings>,
    /// Uploads that are received at the same time.
    pub uploads: Semaphore,
    /// Corpora, runs and the history of the page.
    pub studio: Studio,
    /// Sessions that are open at the same time; the server waits for them when it stops.
    pub sessions: Arc<Semaphore>,
    /// Raised when the server stops: whoever waits for a client's next message ends.
    pub stopping: watch::Receiver<bool>,
}

/// Bytes of an upload's form beside the recording.
const FORM_BYTES: usize = 64 << 10;

/// What is read of a body that is not wanted.
const DISCARDED_BYTES: usize = 1 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    let voices = get(voices::list).post(voices::add).layer(DefaultBodyLimit::max(UPLOAD_BYTES + FORM_BYTES));
    Router::new()
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/metrics", get(status::metrics))
        .route("/v1/models", get(models::list))
        .route("/v1/audio/models", get(models::list))
        .route("/audio/models", get(models::list))
        .route("/v1/audio/speech", post(openai::speech))
        .route("/v1/audio/speech/batch", post(batch::speech))
        .route("/v1/audio/speech/stream", get(socket::open))
        .route("/v1/audio/voices", voices.clone())
        .route("/audio/voices", voices)
        .route("/v1/audio/voices/{id}", delete(voices::remove))
        .route("/audio/voices/{id}", delete(voices::remove))
        .route("/speakers", get(xtts::speakers))
        .route("/languages", get(xtts::languages))
        .route("/set_tts_settings", post(xtts::set_settings))
        .route("/tts_stream", get(xtts::stream))
        .route("/tts_stream/", get(xtts::stream))
        .route("/tts_to_audio", post(xtts::to_audio))
        .route("/tts_to_audio/", post(xtts::to_audio))
        .merge(page::routes())
        .merge(studio::routes())
        .fallback(|| async {
            ApiError::new(StatusCode::NOT_FOUND, "unknown_url", "there is no such address")
        })
        .method_not_allowed_fallback(|| async {
            let message = "this address does not answer to this method";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        })
        .layer(from_fn_with_state(app.clone(), gate))
        .with_state(app)
}

/// What every request passes: who may ask, and what pages of other origins may read.
async fn gate(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let route = route_name(request.uri().path());
    let origin =
        app.access.allowed_origin(request.headers()).and_then(|origin| HeaderValue::from_str(origin).ok());
    let is_preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = match app.access.check(request.headers()) {
        // A browser asks before it sends the token.
        _ if is_preflight => StatusCode::NO_CONTENT.into_response(),
        // The page asks its user for the token.
        Err(error)
            if error.status == StatusCode::UNAUTHORIZED
                && page::is_open(request.method(), request.uri().path()) =>
        {
            next.run(request).await
        }
        Err(error) => {
            discard(request.into_body()).await;
            error.into_response()
        }
        Ok(()) => next.run(request).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        if is_preflight {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
            headers.insert(
                ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static("Authorization, Content-Type, Cache-Control"),
            );
        }
    }
    app.metrics.answered(route, response.status().as_u16());
    response
}

/// A route as metrics call it: a few names, whatever clients ask for.
fn route_name(path: &str) -> &'static str {
    const ROUTES: [&str; 15] = [
        "/health",
        "/ready",
        "/metrics",
        "/v1/models",
        "/v1/audio/models",
        "/audio/models",
        "/v1/audio/speech",
        "/v1/audio/speech/batch",
        "/v1/audio/speech/stream",
        "/speakers",
        "/languages",
        "/set_tts_settings",
        "/tts_stream",
        "/tts_to_audio",
        "/audio/voices",
    ];
    if page::is_open(&Method::GET, path) {
        return "page";
    }
    if path.starts_with("/studio/") {
        return "studio";
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let path = if path.starts_with("/v1/audio/voices") { "/audio/voices" } else { path };
    let path = if path.starts_with("/audio/voices/") { "/audio/voices" } else { path };
    ROUTES.into_iter().find(|route| *route == path).unwrap_or("other")
}

impl App {
    /// Says something, and answers with its sound.
    async fn speak(
        &self,
        model: &Arc<Model>,
        client: IpAddr,
        utterance: Utterance,
        format: Format,
        framing: Framing,
    ) -> Response {
        match self.models.speak(model, client, utterance) {
            Ok(receiver) => body::begin(receiver, format, framing).await,
            Err(not_taken) => ApiError::from(not_taken).into_response(),
        }
    }
}

/// Names of all voices of a model.
pub async fn voice_names(model: &Arc<Model>) -> Result<Vec<String>, ApiError> {
    voices::names(model).await
}

/// What stands behind `?` under a name.
pub fn query(request: &Request, name: &str) -> Option<String> {
    let Ok(Query(mut query)) = Query::<HashMap<String, String>>::try_from_uri(request.uri()) else {
        return None;
    };
    query.remove(name)
}

/// Who a request is from; where nobody said, all are one.
fn client(request: &Request) -> IpAddr {
    request.extensions().get::<Peer>().map_or(IpAddr::from([0; 4]), |peer| peer.0)
}

/// Reads what a client still sends, up to a limit of bytes and time: a connection that is closed before loses the answer.
async fn discard(body: Body) {
    let mut chunks = body.into_data_stream();
    let all = async {
        let mut length = 0;
        while let Some(Ok(chunk)) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
            length += chunk.len();
            if length > DISCARDED_BYTES {
                break;
            }
        }
    };
    // Who is slower does without.
    let _ = tokio::time::timeout(DISCARD_TIME, all).await;
}

/// The object that a request brings.
pub async fn object(request: Request) -> Result<serde_json::Map<String, Json>, ApiError> {
    object_of(request, JSON_BYTES).await
}

/// The same of at most so many bytes.
async fn object_of(request: Request, most: usize) -> Result<serde_json::Map<String, Json>, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default().to_owned());
    let is_json = kind.as_deref().is_none_or(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    });
    if !is_json {
        let message = format!(
            "the body is to be JSON, sent with Content-Type: application/json, and not {:?}",
            kind.unwrap_or_default()
        );
        discard(request.into_body()).await;
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let too_large = || {
        let message = format!("the body has more than {most} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    let said =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let Some(said) = said.filter(|said| *said > most as u64) {
        if said <= DISCARDED_BYTES as u64 {
            discard(request.into_body()).await;
        }
        return Err(too_large());
    }
    let bytes = match tokio::time::timeout(BODY_TIME, to_bytes(request.into_body(), most)).await {
        Err(_) => {
            let message = format!("the body did not come within {} seconds", BODY_TIME.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message));
        }
        // Either it is too large or the client left, who hears nothing.
        Ok(Err(_)) => return Err(too_large()),
        Ok(Ok(bytes)) => bytes,
    };
    parsed(&bytes)
}

/// The object that a body is.
fn parsed(bytes: &[u8]) -> Result<serde_json::Map<String, Json>, ApiError> {
    let invalid = |message| ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message);
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err(invalid("the body is JSON, but no object".to_owned())),
        Err(error) => Err(invalid(format!("the body is not JSON: {error}"))),
    }
}

/// Bodies and messages of clients: whether each would be taken. For those who try what nobody would send.
pub mod bodies {
    use super::{batch, openai, parsed, socket, voices, xtts};
    use crate::studio;

    /// Of `POST /v1/audio/speech`.
    pub fn speech(bytes: &[u8]) -> bool {
        parsed(bytes).and_then(|object| openai::SpeechRequest::read(&object)).is_ok()
    }

    /// Of `POST /v1/audio/speech/batch`.
    pub fn batch(bytes: &[u8]) -> bool {
        parsed(bytes).and_then(|object| batch::BatchRequest::read(&object)).is_ok()
    }

    /// Of `POST /set_tts_settings`.
    pub fn settings(bytes: &[u8]) -> bool {
        parsed(bytes).and_then(|object| xtts::settings(&object)).is_ok()
    }

    /// Messages of `GET /v1/audio/speech/stream`.
    pub fn socket(bytes: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        socket::ClientMessage::read(text, true).is_ok() || socket::ClientMessage::read(text, false).is_ok()
    }

    /// Of `POST /v1/audio/voices`, a form whose boundary is `x`.
    pub fn upload(bytes: &[u8]) -> bool {
        voices::takes_form(bytes)
    }

    /// Of `POST /studio/runs` and `/studio/plan`.
    pub fn run(bytes: &[u8]) -> bool {
        parsed(bytes).is_ok_and(|object| studio::takes_run(&object))
    }

    /// Of `POST /studio/history`.
    pub fn history(bytes: &[u8]) -> bool {
        parsed(bytes).is_ok_and(|object| studio::takes_entry(&object))
    }

    /// Events of Wyoming.
    pub fn wyoming(bytes: &[u8]) -> bool {
        crate::wyoming::ClientEvent::parse(bytes).is_ok()
    }
}
