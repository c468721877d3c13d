//! Whether the server lives, whether it can speak, and what it did.

use super::App;
use crate::answer::{ApiError, ok};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

pub async fn health() -> Response {
    ok(&json!({ "status": "ok" }))
}

/// After the first request has run, which is the server's own.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.facts.get() {
        Some(facts) if !app.jobs.is_closed() => {
            ok(&json!({ "status": "ready", "model": app.model, "languages": facts.languages }))
        }
        _ => ApiError::not_ready().into_response(),
    }
}

pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut response = app.metrics.text(app.jobs.len(), app.facts.get().is_some()).into_response();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}
