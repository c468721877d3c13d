//! The models, as OpenAI's API (`data`) and Open WebUI (`models`) read them.

use super::App;
use crate::response::ok;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value as Json, json};
use std::sync::Arc;

pub async fn list(State(app): State<Arc<App>>) -> Response {
    let names: Vec<String> = app.models.all().iter().map(|model| model.name.clone()).collect();
    let data: Vec<Json> = names
        .iter()
        .map(|name| json!({ "id": name, "object": "model", "created": app.created, "owned_by": "myxtts" }))
        .collect();
    let models: Vec<Json> = names.iter().map(|name| json!({ "id": name, "name": name })).collect();
    ok(&json!({ "object": "list", "data": data, "models": models }))
}
