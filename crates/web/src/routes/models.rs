//! The model, as OpenAI's API (`data`) and Open WebUI (`models`) read it.

use super::App;
use crate::answer::{ApiError, ok};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;

/// Names that clients send where their users have chosen none: they mean the model there is.
const ALIASES: [&str; 3] = ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"];

pub async fn list(State(app): State<Arc<App>>) -> Response {
    let model = &app.model;
    ok(&json!({
        "object": "list",
        "data": [{ "id": model, "object": "model", "created": app.created, "owned_by": "myxtts" }],
        "models": [{ "id": model, "name": model }],
    }))
}

/// Refuses a model that is not here.
pub fn check(app: &App, named: &str) -> Result<(), ApiError> {
    if named == app.model || ALIASES.contains(&named) {
        return Ok(());
    }
    let named: String = named.chars().take(60).collect();
    let message = format!("there is no model {named:?}: this server speaks with {:?}", app.model);
    let error = ApiError::field("model", "model_not_found", message);
    Err(ApiError { status: StatusCode::NOT_FOUND, ..error })
}
