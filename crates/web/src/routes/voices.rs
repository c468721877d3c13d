//! `/v1/audio/voices`: list (format of Open WebUI), add (format of OpenAI's API) and remove.

use super::{App, client, discard, query};
use crate::limits::{UPLOAD_BYTES, UPLOAD_TIME};
use crate::models::Model;
use crate::response::{ApiError, json_response, ok};
use crate::speaker::SpeakerError;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Multipart, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use myxtts_speak::voices::{VoiceError, check_name};
use serde_json::json;
use std::io::Write;
use std::sync::Arc;
use tempfile::{NamedTempFile, TempPath};
use tokio::task::spawn_blocking;

/// Maximum bytes of a name field; valid names are far shorter.
const NAME_BYTES: usize = 1024;

pub async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    let named = query(&request, "model");
    let names = match (named, app.models.first()) {
        // A server without a model has no voices yet.
        (None, Err(_)) => Ok(Vec::new()),
        (None, Ok(model)) => names(&model).await,
        (Some(named), _) => match app.models.named(&named) {
            Ok(model) => names(&model).await,
            Err(error) => Err(error),
        },
    };
    match names {
        Ok(names) => {
            let voices: Vec<_> = names.iter().map(|name| json!({ "id": name, "name": name })).collect();
            ok(&json!({ "voices": voices }))
        }
        Err(error) => error.into_response(),
    }
}

/// Names of all voices of a model.
pub async fn names(model: &Arc<Model>) -> Result<Vec<String>, ApiError> {
    let voices = model.voices.clone();
    blocking(move || voices.names()).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VoiceError> + Send + 'static,
) -> Result<T, ApiError> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| refused(&error)),
        Err(_) => Err(internal("the voices could not be read")),
    }
}

fn internal(message: &str) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
}

fn refused(error: &VoiceError) -> ApiError {
    let (status, code) = match error {
        VoiceError::Name { .. } | VoiceError::Mix { .. } => (StatusCode::BAD_REQUEST, "invalid_name"),
        VoiceError::Unknown { .. } | VoiceError::NeitherVoiceNorFile { .. } => {
            (StatusCode::NOT_FOUND, "voice_not_found")
        }
        VoiceError::Exists { .. } => (StatusCode::CONFLICT, "voice_exists"),
        VoiceError::OtherModel { .. } | VoiceError::Damaged { .. } => {
            (StatusCode::CONFLICT, "voice_unusable")
        }
        // System errors contain paths of the server and are not sent to clients.
        VoiceError::Io { .. } | VoiceError::Disk(_) => {
            return internal("the voices cannot be read or written");
        }
    };
    let message = match error {
        VoiceError::Exists { name } => {
            format!("the voice {name:?} already exists: remove it first, or choose another name")
        }
        error => error.to_string(),
    };
    ApiError { param: Some("name".to_owned()), ..ApiError::new(status, code, message) }
}

pub async fn remove(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let Ok(Path(id)) = id else {
        return ApiError::field("name", "invalid_name", "the name is not valid UTF-8").into_response();
    };
    let model = match app.models.named_or_first(query(&request, "model").as_deref()) {
        Ok(model) => model,
        Err(error) => return error.into_response(),
    };
    let removed = blocking({
        let id = id.clone();
        move || check_name(&id).and_then(|()| model.voices.remove(&id))
    });
    match removed.await {
        Ok(()) => ok(&json!({ "id": id, "object": "audio.voice.deleted", "deleted": true })),
        Err(error) => error.into_response(),
    }
}

pub async fn add(State(app): State<Arc<App>>, request: Request) -> Response {
    match added(&app, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn added(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let client = client(&request);
    let Ok(_permit) = app.uploads.try_acquire() else {
        let message = "too many uploads at the same time: try again later";
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", message));
    };
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("multipart/form-data") {
        discard(request.into_body()).await;
        return Err(no_form("the Content-Type is different"));
    }
    let form = Multipart::from_request(request, &()).await.map_err(|error| no_form(&error.to_string()))?;
    let Upload { model, name, recording } = match tokio::time::timeout(UPLOAD_TIME, received(form)).await {
        Ok(received) => received?,
        Err(_) => {
            let message = format!("the upload did not arrive within {} seconds", UPLOAD_TIME.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message));
        }
    };
    check_name(&name).map_err(|error| refused(&error))?;
    let model = app.models.named_or_first(model.as_deref())?;
    if names(&model).await?.contains(&name) {
        return Err(refused(&VoiceError::Exists { name }));
    }
    let answered = app.models.encode_voice(&model, client, name.clone(), recording)?;
    let voice = answered.await.unwrap_or(Err(SpeakerError::Stopping))?;
    let json = json!({
        "id": name,
        "name": name,
        "object": "audio.voice",
        "created_at": app.created,
        "seconds": voice.seconds,
        "advice": voice.advice,
    });
    Ok(json_response(StatusCode::OK, &json))
}

fn no_form(why: &str) -> ApiError {
    let message = format!("a multipart/form-data form with `name` and `audio_sample` is required: {why}");
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
}

/// A received form.
struct Upload {
    /// Model of the voice; `None` for the first.
    model: Option<String>,
    name: String,
    recording: TempPath,
}

async fn received(mut form: Multipart) -> Result<Upload, ApiError> {
    let (mut model, mut name, mut recording) = (None, None, None);
    while let Some(field) = form.next_field().await.map_err(|error| broken(&error))? {
        match field.name() {
            Some("model") => model = Some(text(field).await?),
            Some("name") => name = Some(text(field).await?),
            Some("audio_sample") => recording = Some(file(field).await?),
            // Other fields, such as `consent`, are ignored.
            _ => {}
        }
    }
    let missing = |name| ApiError::field(name, "missing_required_parameter", format!("{name} is missing"));
    Ok(Upload {
        model,
        name: name.ok_or_else(|| missing("name"))?,
        recording: recording.ok_or_else(|| missing("audio_sample"))?,
    })
}

/// Whether a form with the boundary `x` would be accepted.
pub fn accepts_form(bytes: &[u8]) -> bool {
    let body = axum::body::Body::from(bytes.to_vec());
    let request = Request::builder().header(CONTENT_TYPE, "multipart/form-data; boundary=x").body(body);
    let (Ok(request), Ok(runtime)) = (request, tokio::runtime::Builder::new_current_thread().build()) else {
        return false;
    };
    runtime.block_on(async {
        match Multipart::from_request(request, &()).await {
            Ok(form) => received(form).await.is_ok_and(|upload| check_name(&upload.name).is_ok()),
            Err(_) => false,
        }
    })
}

fn broken(error: &MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => ApiError::new(
            StatusCode::BAD_REQUEST,
            "invalid_form",
            format!("the form cannot be read: {error}"),
        ),
    }
}

fn too_large() -> ApiError {
    let message = format!("a recording may have at most {} MiB", UPLOAD_BYTES >> 20);
    let error = ApiError::field("audio_sample", "body_too_large", message);
    ApiError { status: StatusCode::PAYLOAD_TOO_LARGE, ..error }
}

async fn text(mut field: Field<'_>) -> Result<String, ApiError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = field.chunk().await.map_err(|error| broken(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > NAME_BYTES {
            return Err(ApiError::field("name", "invalid_name", "the name is too long"));
        }
    }
    String::from_utf8(bytes)
        .map_err(|_| ApiError::field("name", "invalid_name", "the name is not valid UTF-8"))
}

/// Writes a file field to a temporary file; the client's file name is ignored.
async fn file(mut field: Field<'_>) -> Result<TempPath, ApiError> {
    let failed = |_| internal("the upload cannot be written");
    let mut file = NamedTempFile::with_prefix("myxtts-upload-").map_err(failed)?;
    let mut length = 0;
    while let Some(chunk) = field.chunk().await.map_err(|error| broken(&error))? {
        length += chunk.len();
        // An oversized field is still read, up to the limit of the form.
        if length <= UPLOAD_BYTES {
            file.write_all(&chunk).map_err(failed)?;
        }
    }
    if length > UPLOAD_BYTES {
        return Err(too_large());
    }
    Ok(file.into_temp_path())
}
