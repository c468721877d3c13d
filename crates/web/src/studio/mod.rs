//! What the page works with beside speech: voices as they were heard, what was said before, corpora, and training runs.
//!
//! Everything lies in files: runs in the folder of all runs, and what is only the page's in `.page` inside it. Training, checks and
//! diagnoses are children of this program, with arguments built from fields that were checked; never a line for a shell.

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

use crate::answer::{ApiError, ok};
use crate::models::Model;
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

/// What the page may work with.
#[derive(Clone, Debug)]
pub struct StudioOptions {
    /// Where runs are.
    pub runs: PathBuf,
    /// Folders whose corpora may be looked at and trained on.
    pub roots: Vec<PathBuf>,
    /// This program, which training runs are children of.
    pub program: PathBuf,
}

impl Default for StudioOptions {
    fn default() -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("myxtts"));
        StudioOptions { runs: PathBuf::from("runs"), roots: Vec::new(), program }
    }
}

/// Everything that requests of the page share.
pub(crate) struct Studio {
    runs: PathBuf,
    roots: Roots,
    program: PathBuf,
    children: Children,
    /// Held while an entry gets its id.
    history: Mutex<()>,
    views: Mutex<RunViews>,
    corpora: Mutex<Corpora>,
    machine: OnceLock<Option<Sampler<Sample>>>,
}

impl Studio {
    pub(crate) fn new(options: StudioOptions) -> Studio {
        let StudioOptions { runs, roots, program } = options;
        // Children have the same working folder, but a plan is read by whoever looks at it later.
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

    /// A folder of the page's own, inside that of all runs.
    fn own(&self, name: &str) -> PathBuf {
        self.runs.join(".page").join(name)
    }
}

/// Bytes of a sound that is kept in the history: ten minutes.
const SOUND_BYTES: usize = 32 << 20;

/// Merged into the server's routes before the gate.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/studio/state", get(state))
        .route("/studio/voices", get(voices::list))
        .route("/studio/history", get(history::list).post(history::add))
        .route("/studio/history/{id}", delete(history::remove))
        .route(
            "/studio/history/{id}/sound",
            put(history::put_sound).layer(DefaultBodyLimit::max(SOUND_BYTES)).get(history::sound),
        )
        .route("/studio/folders", get(folders::list))
        .route("/studio/check", get(check::show).post(check::start))
        .route("/studio/clips", get(clips::list))
        .route("/studio/clips/sound", get(clips::sound))
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

/// What changes something comes from the page itself: of the same origin, and of a type that no form of another page can send.
async fn guard(request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        if !is_same_origin(headers) {
            let message = "only the page of this server may do this";
            return ApiError::new(StatusCode::FORBIDDEN, "forbidden_origin", message).into_response();
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let is_sound = *request.method() == Method::PUT && kind == "audio/wav";
        if !kind.eq_ignore_ascii_case("application/json") && !is_sound {
            let message = "send this with Content-Type: application/json";
            let error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message);
            return error.into_response();
        }
    }
    next.run(request).await
}

/// Programs send no origin; a browser's has to be that of the address it asked.
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

/// Whether the form of a run would be taken, where nothing is allowed but the demo corpus.
pub fn takes_run(object: &Map<String, Json>) -> bool {
    let studio =
        Studio::new(StudioOptions { runs: PathBuf::from("/nonexistent/runs"), ..StudioOptions::default() });
    form::RunForm::read(&studio, object).and_then(|form| form.arguments(&studio.runs)).is_ok()
}

/// Whether an entry of the history would be taken.
pub fn takes_entry(object: &Map<String, Json>) -> bool {
    history::entry(object, Duration::ZERO).is_ok()
}

/// How the server is, for the frame of the page.
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

/// Work that waits for the disk, on a thread that may.
async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Studio) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let app = app.clone();
    match tokio::task::spawn_blocking(move || work(&app.studio)).await {
        Ok(done) => done,
        Err(_) => Err(internal("this failed; the server's own output says why")),
    }
}

/// [`blocking`] work whose outcome is JSON.
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

/// [`blocking`] work whose outcome is a file.
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

/// A file that may be missing.
fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, ApiError> {
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
    fn only_the_same_origin_changes_something() {
        let may = |pairs: &[(&'static str, &str)]| {
            let headers: HeaderMap =
                pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            is_same_origin(&headers)
        };
        let host = ("host", "127.0.0.1:8020");
        assert!(may(&[host]) && may(&[host, ("origin", "http://127.0.0.1:8020")]));
        assert!(may(&[host, ("origin", "http://127.0.0.1:8020"), ("sec-fetch-site", "same-origin")]));
        for origin in ["http://127.0.0.1:3000", "http://localhost:8020", "null", "https://evil.example", ""] {
            assert!(!may(&[host, ("origin", origin)]), "{origin:?}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(!may(&[host, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!may(&[("origin", "http://127.0.0.1:8020")]));
    }
}
