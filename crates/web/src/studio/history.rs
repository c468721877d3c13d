//! What was said from the page: a file with the request and its figures, and one with the sound, so that it is still there after a
//! reload, in another browser, and after the server was killed.

use super::{Studio, answered, blocking, file, internal, lock, not_found, read_if_there};
use crate::answer::{ApiError, answer};
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

/// Entries that are kept: the newest.
const KEPT: usize = 200;
const NUMBERS: [&str; 3] = ["seconds", "first_ms", "rtf"];

fn folder(studio: &Studio) -> PathBuf {
    studio.own("history")
}

/// The file of an entry. An id is what [`add`] made: digits.
fn place(studio: &Studio, id: &str, ending: &str) -> Result<PathBuf, ApiError> {
    let fits = (1..=20).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
    if fits { Ok(folder(studio).join(format!("{id}.{ending}"))) } else { Err(unknown()) }
}

fn unknown() -> ApiError {
    not_found("there is no such entry in the history")
}

fn failed(error: impl std::fmt::Display) -> ApiError {
    internal(format!("the history cannot be written: {error}"))
}

/// Ids, the oldest first.
fn ids(studio: &Studio) -> Result<Vec<String>, ApiError> {
    let entries = match std::fs::read_dir(folder(studio)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| internal(format!("the history cannot be read: {error}")))?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
    ids.retain(|id| place(studio, id, "json").is_ok());
    ids.sort();
    Ok(ids)
}

pub async fn list(State(app): State<Arc<App>>) -> Response {
    answered(&app, |studio| {
        let mut items = Vec::new();
        for id in ids(studio)?.into_iter().rev().take(KEPT) {
            // Without its sound an entry is not whole: its browser left before.
            if !place(studio, &id, "wav")?.is_file() {
                continue;
            }
            let bytes = read_if_there(&place(studio, &id, "json")?)?.unwrap_or_default();
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
        Ok(id) => answer(StatusCode::CREATED, &json!({ "id": id })),
        Err(error) => error.into_response(),
    }
}

/// What the page has sent, as it is kept.
pub fn entry(object: &Map<String, Json>, now: Duration) -> Result<Json, ApiError> {
    let wrong =
        |name: &str| ApiError::field(name, "invalid_value", format!("{name} is missing or of a wrong type"));
    let said = object.get("said").and_then(Json::as_object).ok_or_else(|| wrong("said"))?;
    for name in ["text", "voice"] {
        said.get(name).and_then(Json::as_str).ok_or_else(|| wrong(name))?;
    }
    let mut entry = json!({ "said": said, "time": now.as_secs_f64() });
    for name in NUMBERS {
        entry[name] = object.get(name).and_then(Json::as_f64).ok_or_else(|| wrong(name))?.into();
    }
    Ok(entry)
}

fn added(studio: &Studio, object: &Map<String, Json>) -> Result<String, ApiError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let entry = entry(object, now)?;
    std::fs::create_dir_all(folder(studio)).map_err(failed)?;
    // One at a time, so that each has an id of its own.
    let _turn = lock(&studio.history);
    let last = ids(studio)?.pop().and_then(|id| id.parse::<u128>().ok()).unwrap_or(0);
    let id = now.as_millis().max(last + 1).to_string();
    durable::write(&place(studio, &id, "json")?, entry.to_string().as_bytes()).map_err(failed)?;
    let all = ids(studio)?;
    for old in &all[..all.len().saturating_sub(KEPT)] {
        forget(studio, old)?;
    }
    Ok(id)
}

fn forget(studio: &Studio, id: &str) -> Result<(), ApiError> {
    for ending in ["wav", "json"] {
        match std::fs::remove_file(place(studio, id, ending)?) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}

pub async fn put_sound(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        let message = "the sound is too large to be kept, or did not come whole";
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message).into_response();
    };
    answered(&app, move |studio| {
        if !place(studio, &id, "json")?.is_file() {
            return Err(unknown());
        }
        if body.len() < 44 || !body.starts_with(b"RIFF") || &body[8..12] != b"WAVE" {
            return Err(ApiError::field("body", "invalid_audio", "the sound is to be a WAV file"));
        }
        durable::write(&place(studio, &id, "wav")?, &body).map_err(failed)?;
        Ok(json!({ "id": id }))
    })
    .await
}

pub async fn sound(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    file(&app, "audio/wav", move |studio| read_if_there(&place(studio, &id, "wav")?)?.ok_or_else(unknown))
        .await
}

pub async fn remove(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    answered(&app, move |studio| {
        if !place(studio, &id, "json")?.is_file() {
            return Err(unknown());
        }
        forget(studio, &id)?;
        Ok(json!({ "id": id, "deleted": true }))
    })
    .await
}
