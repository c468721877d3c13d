//! All routes, their shared state and middleware.

mod batch;
mod models;
mod openai;
mod socket;
mod status;
mod voices;
mod xtts;

use crate::access::Access;
use crate::body::{self, Framing};
use crate::connection::Peer;
use crate::limits::{BODY_TIME, JSON_BYTES, UPLOAD_BYTES};
use crate::metrics::Metrics;
use crate::models::{Model, Models};
use crate::page;
use crate::response::ApiError;
use crate::speaker::Utterance;
use crate::studio::{self, Studio};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW,
    CONTENT_LENGTH, CONTENT_TYPE, VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures_core::Stream;
use myxtts_speak::audio_file::Format;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Shared state of all routes, created by [`crate::Server::start`].
pub struct App {
    /// The models. Queueing a request never blocks.
    pub models: Arc<Models>,
    /// Counters behind `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Token, hosts and origins; checked by [`gate`] for every route, including the studio.
    pub access: Access,
    /// Start time of the server in Unix seconds.
    pub created: u64,
    /// Settings of `/set_tts_settings`, for the routes of XTTS clients.
    pub xtts: Mutex<xtts::Settings>,
    /// Permits for simultaneous uploads.
    pub uploads: Semaphore,
    /// Corpora, runs and history of the web page.
    pub studio: Studio,
    /// Permits for simultaneous sessions; the server waits for them when it stops.
    pub sessions: Arc<Semaphore>,
    /// Set when the server stops; idle sessions then end.
    pub stopping: watch::Receiver<bool>,
}

/// Maximum bytes of an upload form besides the recording.
const FORM_BYTES: usize = 64 << 10;

/// Limits for reading a body that is discarded.
const DISCARDED_BYTES: usize = 1 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    let voices = get(voices::list).post(voices::add).layer(DefaultBodyLimit::max(UPLOAD_BYTES + FORM_BYTES));
    let routes = Router::new()
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
        .fallback(|request: Request| async move {
            let message = format!("there is no route {}", beginning(request.uri().path()));
            ApiError::new(StatusCode::NOT_FOUND, "unknown_url", message)
        })
        .with_state(app.clone());
    // Around the finished router, not on its routes: the router adds `Allow` after the middleware of a route.
    Router::new().fallback_service(routes).layer(from_fn_with_state(app, gate))
}

/// Middleware of every request: access control and CORS headers.
async fn gate(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let route = route_name(request.uri().path());
    let origin =
        app.access.allowed_origin(request.headers()).and_then(|origin| HeaderValue::from_str(origin).ok());
    let is_preflight = request.method() == Method::OPTIONS && origin.is_some();
    let (method, path) = (request.method().clone(), beginning(request.uri().path()));
    let mut response = match app.access.check(request.headers()) {
        // A preflight request has no token.
        _ if is_preflight => StatusCode::NO_CONTENT.into_response(),
        // The page itself is public; it asks the user for the token.
        Err(error)
            if error.status == StatusCode::UNAUTHORIZED
                && page::is_public(request.method(), request.uri().path()) =>
        {
            next.run(request).await
        }
        Err(error) => {
            discard(request.into_body()).await;
            error.into_response()
        }
        Ok(()) => next.run(request).await,
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED
        && let Some(allowed) = response.headers().get(ALLOW)
    {
        response = method_not_allowed(&method, &path, allowed);
    }
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

/// The answer to a method that a route does not have. `allowed` is the value of the `Allow` header, which the router sets.
fn method_not_allowed(method: &Method, path: &str, allowed: &HeaderValue) -> Response {
    let names = allowed.to_str().unwrap_or_default().replace(',', " or ");
    let message = format!("{path} does not support {method}: use {names}");
    let mut response =
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into_response();
    response.headers_mut().insert(ALLOW, allowed.clone());
    response
}

/// The beginning of a path, for messages.
fn beginning(path: &str) -> String {
    path.chars().take(100).collect()
}

/// Name of a route in metrics: a fixed set, whatever clients request.
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
    if page::is_public(&Method::GET, path) {
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
    /// Queues an utterance and responds with its audio.
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
            Err(error) => ApiError::from(error).into_response(),
        }
    }
}

/// Names of all voices of a model.
pub async fn voice_names(model: &Arc<Model>) -> Result<Vec<String>, ApiError> {
    voices::names(model).await
}

/// A query parameter by its name.
pub fn query(request: &Request, name: &str) -> Option<String> {
    let Ok(Query(mut query)) = Query::<HashMap<String, String>>::try_from_uri(request.uri()) else {
        return None;
    };
    query.remove(name)
}

/// Address of the client of a request; unknown clients share one address.
fn client(request: &Request) -> IpAddr {
    request.extensions().get::<Peer>().map_or(IpAddr::from([0; 4]), |peer| peer.0)
}

/// Reads and discards the rest of a body, up to limits of size and time: closing the connection earlier would lose the response.
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
    // Slower clients may miss the response.
    let _ = tokio::time::timeout(DISCARD_TIME, all).await;
}

/// Reads the JSON object of a request.
pub async fn object(request: Request) -> Result<serde_json::Map<String, Json>, ApiError> {
    object_with_limit(request, JSON_BYTES).await
}

/// [`object`] with a given size limit in bytes.
async fn object_with_limit(
    request: Request,
    limit: usize,
) -> Result<serde_json::Map<String, Json>, ApiError> {
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default().to_owned());
    let is_json = kind.as_deref().is_none_or(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    });
    if !is_json {
        let message = format!(
            "the body must be JSON with Content-Type: application/json, not {:?}",
            kind.unwrap_or_default()
        );
        discard(request.into_body()).await;
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let too_large = || {
        let message = format!("the body has more than {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    let declared =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let Some(declared) = declared.filter(|length| *length > limit as u64) {
        if declared <= DISCARDED_BYTES as u64 {
            discard(request.into_body()).await;
        }
        return Err(too_large());
    }
    let bytes = match tokio::time::timeout(BODY_TIME, to_bytes(request.into_body(), limit)).await {
        Err(_) => {
            let message = format!("the body did not arrive within {} seconds", BODY_TIME.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message));
        }
        // Either it is too large or the client has disconnected, which needs no response.
        Ok(Err(_)) => return Err(too_large()),
        Ok(Ok(bytes)) => bytes,
    };
    parsed(&bytes)
}

/// Parses a body as a JSON object.
fn parsed(bytes: &[u8]) -> Result<serde_json::Map<String, Json>, ApiError> {
    let invalid = |message| ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message);
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err(invalid("the body is JSON, but not an object".to_owned())),
        Err(error) => Err(invalid(format!("the body is not JSON: {error}"))),
    }
}

/// Whether bodies and messages of clients would be accepted, for fuzzing.
pub mod bodies {
    use super::{batch, openai, parsed, socket, voices, xtts};
    use crate::studio;
    use axum::http::Uri;

    /// Body of `POST /v1/audio/speech`.
    pub fn speech(bytes: &[u8]) -> bool {
        parsed(bytes).and_then(|object| openai::SpeechRequest::read(&object)).is_ok()
    }

    /// Body of `POST /v1/audio/speech/batch`.
    pub fn batch(bytes: &[u8]) -> bool {
        parsed(bytes).and_then(|object| batch::BatchRequest::read(&object)).is_ok()
    }

    /// Body of `POST /set_tts_settings`.
    pub fn settings(bytes: &[u8]) -> bool {
        parsed(bytes).and_then(|object| xtts::settings(&object)).is_ok()
    }

    /// Body of `POST /tts_to_audio`.
    pub fn to_audio(bytes: &[u8]) -> bool {
        parsed(bytes).and_then(|object| xtts::XttsRequest::read(&object)).is_ok()
    }

    /// URI of `GET /tts_stream`, with its query string.
    pub fn stream_query(bytes: &[u8]) -> bool {
        let Ok(uri) = Uri::try_from(bytes) else { return false };
        xtts::query_fields(&uri).and_then(|object| xtts::XttsRequest::read(&object)).is_ok()
    }

    /// Messages of `GET /v1/audio/speech/stream`.
    pub fn socket(bytes: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        socket::ClientMessage::read(text, true).is_ok() || socket::ClientMessage::read(text, false).is_ok()
    }

    /// Body of `POST /v1/audio/voices`, a form with the boundary `x`.
    pub fn upload(bytes: &[u8]) -> bool {
        voices::accepts_form(bytes)
    }

    /// Body of `POST /studio/runs` and `/studio/plan`.
    pub fn run(bytes: &[u8]) -> bool {
        parsed(bytes).is_ok_and(|object| studio::accepts_run(&object))
    }

    /// Body of `POST /studio/history`.
    pub fn history(bytes: &[u8]) -> bool {
        parsed(bytes).is_ok_and(|object| studio::accepts_entry(&object))
    }

    /// Body of `PUT /studio/history/{id}/sound`.
    pub fn history_sound(bytes: &[u8]) -> bool {
        studio::accepts_audio(bytes)
    }

    /// Body of `POST /studio/check`.
    pub fn check(bytes: &[u8]) -> bool {
        parsed(bytes).is_ok_and(|object| studio::accepts_check(&object))
    }

    /// Body of `POST /studio/runs/{name}/diagnosis`.
    pub fn diagnosis(bytes: &[u8]) -> bool {
        parsed(bytes).is_ok_and(|object| studio::accepts_diagnosis(&object))
    }

    /// Wyoming events.
    pub fn wyoming(bytes: &[u8]) -> bool {
        crate::wyoming::ClientEvent::parse(bytes).is_ok()
    }
}
