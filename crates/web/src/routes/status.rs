//! `/health`, `/ready` and `/metrics`.

use super::App;
use crate::response::{ApiError, ok};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

pub async fn health() -> Response {
    ok(&json!({ "status": "ok" }))
}

/// Ready once the server's own first request has run.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    let model = match app.models.first() {
        Ok(model) => model,
        Err(error) => return error.into_response(),
    };
    match model.facts.get() {
        Some(facts) if !app.models.is_stopping() => {
            ok(&json!({ "status": "ready", "model": model.name, "languages": facts.languages }))
        }
        _ => ApiError::not_ready().into_response(),
    }
}

pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let models = app.models.states();
    let is_ready = app.models.first().is_ok_and(|model| model.facts.get().is_some());
    let mut response = app.metrics.text(app.models.waiting(), is_ready, &models).into_response();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}
