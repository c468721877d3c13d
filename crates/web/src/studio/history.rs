//! Speech history of the page: one file with the request and its measurements, and one with the audio, so that it survives a
//! reload, another browser and a crash of the server.

use super::{Studio, answered, blocking, file, internal, lock, not_found, read_if_exists};
use crate::response::{ApiError, json_response};
use crate::routes::{App, object};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use myxtts_run::durable;
use serde_json::{Map, Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of newest entries kept.
const MAX_ENTRIES: usize = 200;
const NUMBERS: [&str; 3] = ["seconds", "first_ms", "rtf"];

fn folder(studio: &Studio) -> PathBuf {
    studio.page_folder("history")
}

/// File of an entry. Ids consist of digits, as [`add`] creates them.
fn entry_file(studio: &Studio, id: &str, extension: &str) -> Result<PathBuf, ApiError> {
    let is_valid = (1..=20).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
    if is_valid { Ok(folder(studio).join(format!("{id}.{extension}"))) } else { Err(unknown()) }
}

fn unknown() -> ApiError {
    not_found("there is no such entry in the history")
}

fn failed(error: impl std::fmt::Display) -> ApiError {
    internal(format!("the history cannot be written: {error}"))
}

/// Ids, oldest first.
fn ids(studio: &Studio) -> Result<Vec<String>, ApiError> {
    let entries = match std::fs::read_dir(folder(studio)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| internal(format!("the history cannot be read: {error}")))?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
    ids.retain(|id| entry_file(studio, id, "json").is_ok());
    ids.sort();
    Ok(ids)
}

pub async fn list(State(app): State<Arc<App>>) -> Response {
    answered(&app, |studio| {
        let mut items = Vec::new();
        for id in ids(studio)?.into_iter().rev().take(MAX_ENTRIES) {
            // An entry without audio is incomplete: the browser disconnected before sending it.
            if !entry_file(studio, &id, "wav")?.is_file() {
                continue;
            }
            let bytes = read_if_exists(&entry_file(studio, &id, "json")?)?.unwrap_or_default();
            if let Ok(Json::Object(mut item)) = serde_json::from_slice(&bytes) {
                item.insert("id".to_owned(), id.into());
                items.push(Json::Object(item));
            }
        }
        Ok(json!({ "items": items }))
    })
    .await
}

pub async fn add(State(app): State<Arc<App>>, request: Request) -> Response {
    let object = match object(request).await {
        Ok(object) => object,
        Err(error) => return error.into_response(),
    };
    match blocking(&app, move |studio| added(studio, &object)).await {
        Ok(id) => json_response(StatusCode::CREATED, &json!({ "id": id })),
        Err(error) => error.into_response(),
    }
}

/// Parses an entry for storage.
pub fn entry(object: &Map<String, Json>, now: Duration) -> Result<Json, ApiError> {
    let invalid = |name: &str| {
        ApiError::field(name, "invalid_value", format!("{name} is missing or has the wrong type"))
    };
    let said = object.get("said").and_then(Json::as_object).ok_or_else(|| invalid("said"))?;
    for name in ["text", "voice"] {
        said.get(name).and_then(Json::as_str).ok_or_else(|| invalid(name))?;
    }
    let mut entry = json!({ "said": said, "time": now.as_secs_f64() });
    for name in NUMBERS {
        entry[name] = object.get(name).and_then(Json::as_f64).ok_or_else(|| invalid(name))?.into();
    }
    Ok(entry)
}

fn added(studio: &Studio, object: &Map<String, Json>) -> Result<String, ApiError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let entry = entry(object, now)?;
    std::fs::create_dir_all(folder(studio)).map_err(failed)?;
    // One at a time, so that ids are unique.
    let _guard = lock(&studio.history);
    let last = ids(studio)?.pop().and_then(|id| id.parse::<u128>().ok()).unwrap_or(0);
    let id = now.as_millis().max(last + 1).to_string();
    durable::write(&entry_file(studio, &id, "json")?, entry.to_string().as_bytes()).map_err(failed)?;
    let all = ids(studio)?;
    for old in &all[..all.len().saturating_sub(MAX_ENTRIES)] {
        remove_files(studio, old)?;
    }
    Ok(id)
}

fn remove_files(studio: &Studio, id: &str) -> Result<(), ApiError> {
    for extension in ["wav", "json"] {
        match std::fs::remove_file(entry_file(studio, id, extension)?) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the audio is a WAV file, since it is served as one.
pub fn check_audio(body: &[u8]) -> Result<(), ApiError> {
    if body.len() < 44 || !body.starts_with(b"RIFF") || &body[8..12] != b"WAVE" {
        return Err(ApiError::field("body", "invalid_audio", "the audio must be a WAV file"));
    }
    Ok(())
}

pub async fn put_audio(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        let message = "the audio is too large or incomplete";
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message).into_response();
    };
    answered(&app, move |studio| {
        if !entry_file(studio, &id, "json")?.is_file() {
            return Err(unknown());
        }
        check_audio(&body)?;
        durable::write(&entry_file(studio, &id, "wav")?, &body).map_err(failed)?;
        Ok(json!({ "id": id }))
    })
    .await
}

pub async fn audio(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    file(&app, "audio/wav", move |studio| {
        read_if_exists(&entry_file(studio, &id, "wav")?)?.ok_or_else(unknown)
    })
    .await
}

pub async fn remove(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    answered(&app, move |studio| {
        if !entry_file(studio, &id, "json")?.is_file() {
            return Err(unknown());
        }
        remove_files(studio, &id)?;
        Ok(json!({ "id": id, "deleted": true }))
    })
    .await
}
