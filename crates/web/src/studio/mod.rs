//! The API of the web page besides speech: voices with reports, speech history, corpora and training runs.
//!
//! All state is in files: runs in the runs folder, and the page's own data in `.page` inside it. Training, checks and diagnoses
//! are child processes of this program, with arguments built from validated fields; no shell is involved.

mod check;
mod clips;
mod control;
mod diagnosis;
mod folders;
mod form;
mod history;
mod machine;
mod process;
mod recording;
mod roots;
mod run_view;
mod runs;
mod voices;

use crate::models::Model;
use crate::response::{ApiError, ok};
use crate::routes::App;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use myxtts_monitor::{Sample, Sampler};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use clips::Corpora;
use process::Children;
use roots::Roots;
use run_view::RunViews;

/// Options of the web page.
#[derive(Clone, Debug)]
pub struct StudioOptions {
    /// Folder of all runs.
    pub runs: PathBuf,
    /// Folders whose corpora may be browsed and trained on.
    pub roots: Vec<PathBuf>,
    /// Path of this program, for child processes.
    pub program: PathBuf,
}

impl Default for StudioOptions {
    fn default() -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("myxtts"));
        StudioOptions { runs: PathBuf::from("runs"), roots: Vec::new(), program }
    }
}

/// Shared state of the page's routes.
pub(crate) struct Studio {
    runs: PathBuf,
    roots: Roots,
    program: PathBuf,
    children: Children,
    /// Held while a history entry gets its id.
    history: Mutex<()>,
    views: Mutex<RunViews>,
    corpora: Mutex<Corpora>,
    machine: OnceLock<Option<Sampler<Sample>>>,
}

impl Studio {
    pub(crate) fn new(options: StudioOptions) -> Studio {
        let StudioOptions { runs, roots, program } = options;
        // Children have the same working directory, but the stored plan is read later from anywhere.
        let runs = std::path::absolute(&runs).unwrap_or(runs);
        Studio {
            roots: Roots::new(roots),
            runs,
            program,
            children: Children::default(),
            history: Mutex::default(),
            views: Mutex::default(),
            corpora: Mutex::default(),
            machine: OnceLock::new(),
        }
    }

    /// A data folder of the page, inside the runs folder.
    fn page_folder(&self, name: &str) -> PathBuf {
        self.runs.join(".page").join(name)
    }
}

/// Maximum bytes of audio in the history: ten minutes.
const AUDIO_BYTES: usize = 32 << 20;

/// Routes of the page; merged into the server's routes before access control.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/studio/state", get(state))
        .route("/studio/voices", get(voices::list))
        .route("/studio/history", get(history::list).post(history::add))
        .route("/studio/history/{id}", delete(history::remove))
        .route(
            "/studio/history/{id}/sound",
            put(history::put_audio).layer(DefaultBodyLimit::max(AUDIO_BYTES)).get(history::audio),
        )
        .route("/studio/folders", get(folders::list))
        .route("/studio/check", get(check::show).post(check::start))
        .route("/studio/clips", get(clips::list))
        .route("/studio/clips/sound", get(clips::audio))
        .route("/studio/clips/mel", get(clips::mel))
        .route("/studio/settings", get(form::settings))
        .route("/studio/plan", post(control::plan))
        .route("/studio/runs", get(runs::list).post(control::start))
        .route("/studio/runs/{name}", get(runs::show))
        .route("/studio/runs/{name}/log", get(runs::log))
        .route("/studio/runs/{name}/stop", post(control::stop))
        .route("/studio/runs/{name}/resume", post(control::resume))
        .route("/studio/runs/{name}/diagnosis", get(diagnosis::show).post(diagnosis::start))
        .route("/studio/runs/{name}/samples/{file}", get(runs::sample))
        .route("/studio/runs/{name}/recordings/{sentence}", get(runs::recording))
        .route("/studio/runs/{name}/recordings/{sentence}/mel", get(runs::recording_mel))
        .route("/studio/machine", get(machine::show))
        .layer(from_fn(guard))
}

/// CSRF protection: requests that change something must have the same origin and a content type that no HTML form can send.
async fn guard(request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        if !is_same_origin(headers) {
            let message = "only the page of this server may do this";
            return ApiError::new(StatusCode::FORBIDDEN, "forbidden_origin", message).into_response();
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let is_audio = *request.method() == Method::PUT && kind == "audio/wav";
        if !kind.eq_ignore_ascii_case("application/json") && !is_audio {
            let message = "send this with Content-Type: application/json";
            let error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message);
            return error.into_response();
        }
    }
    next.run(request).await
}

/// Whether a request has the server's own origin. Programs send no origin and are accepted.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let fetched = text("sec-fetch-site".parse().unwrap_or(ORIGIN));
    if fetched.is_some_and(|site| site.contains("site") || site == "?") {
        return false;
    }
    match (text(ORIGIN), text(HOST)) {
        (None, _) => true,
        (Some(origin), Some(host)) => {
            let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            bare.is_some_and(|bare| bare.eq_ignore_ascii_case(host))
        }
        (Some(_), None) => false,
    }
}

/// Whether the form of a run would be accepted, with only the demo corpus allowed.
pub fn accepts_run(object: &Map<String, Json>) -> bool {
    let studio =
        Studio::new(StudioOptions { runs: PathBuf::from("/nonexistent/runs"), ..StudioOptions::default() });
    form::RunForm::read(&studio, object).and_then(|form| form.arguments(&studio.runs)).is_ok()
}

/// Whether a history entry would be accepted.
pub fn accepts_entry(object: &Map<String, Json>) -> bool {
    history::entry(object, Duration::ZERO).is_ok()
}

/// Whether the audio of an entry would be accepted.
pub fn accepts_audio(bytes: &[u8]) -> bool {
    history::check_audio(bytes).is_ok()
}

/// Whether a check of a corpus would be started, with the folder for temporary files as the only allowed one.
pub fn accepts_check(object: &Map<String, Json>) -> bool {
    check::folder(&Roots::new(vec![std::env::temp_dir()]), object).is_ok()
}

/// Whether a diagnosis would be started.
pub fn accepts_diagnosis(object: &Map<String, Json>) -> bool {
    diagnosis::stage(object).is_ok()
}

/// State of the server, for the header of the page.
async fn state(State(app): State<Arc<App>>) -> Response {
    let models = app.models.all();
    let is_ready = |model: &Arc<Model>| model.facts.get().is_some() && !app.models.is_stopping();
    let one = |model: &Arc<Model>| {
        json!({
            "name": model.name,
            "ready": is_ready(model),
            "open": model.is_open(),
            "languages": model.languages(),
        })
    };
    let first = models.first();
    ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": first.map(|model| model.name.clone()),
        "ready": first.is_some_and(is_ready),
        "languages": first.map(|model| model.languages()).unwrap_or_default(),
        "models": models.iter().map(one).collect::<Vec<_>>(),
        "roots": app.studio.roots.names(),
    }))
}

/// Runs disk work on a blocking thread.
async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Studio) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let app = app.clone();
    match tokio::task::spawn_blocking(move || work(&app.studio)).await {
        Ok(done) => done,
        Err(_) => Err(internal("this failed; see the output of the server")),
    }
}

/// Runs [`blocking`] work and responds with JSON.
async fn answered(
    app: &Arc<App>,
    work: impl FnOnce(&Studio) -> Result<Json, ApiError> + Send + 'static,
) -> Response {
    blocking(app, work).await.map_or_else(IntoResponse::into_response, |json| {
        let mut response = ok(&json);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    })
}

/// Runs [`blocking`] work and responds with a file.
async fn file(
    app: &Arc<App>,
    kind: &'static str,
    work: impl FnOnce(&Studio) -> Result<Vec<u8>, ApiError> + Send + 'static,
) -> Response {
    blocking(app, work).await.map_or_else(IntoResponse::into_response, |bytes| {
        let mut response = bytes.into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    })
}

type Fields = Query<HashMap<String, String>>;

fn internal(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
}

fn not_found(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

fn conflict(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "conflict", message)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a file; `None` if it does not exist.
fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, ApiError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(internal(format!("a file of the page cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_origin_may_change_something() {
        let is_allowed = |pairs: &[(&'static str, &str)]| {
            let headers: HeaderMap =
                pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            is_same_origin(&headers)
        };
        let host = ("host", "127.0.0.1:8020");
        assert!(is_allowed(&[host]) && is_allowed(&[host, ("origin", "http://127.0.0.1:8020")]));
        assert!(is_allowed(&[host, ("origin", "http://127.0.0.1:8020"), ("sec-fetch-site", "same-origin")]));
        for origin in ["http://127.0.0.1:3000", "http://localhost:8020", "null", "https://evil.example", ""] {
            assert!(!is_allowed(&[host, ("origin", origin)]), "{origin:?}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(!is_allowed(&[host, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!is_allowed(&[("origin", "http://127.0.0.1:8020")]));
    }
}
