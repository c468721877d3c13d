//! Lists voices with details: whether they can be removed, and the quality of their recordings.

use super::internal;
use crate::response::{ApiError, ok};
use crate::routes::{App, query};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

pub async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    let model = match (query(&request, "model"), app.models.first()) {
        // A server without a model has no voices yet.
        (None, Err(_)) => return ok(&json!({ "voices": [] })),
        (None, Ok(model)) => model,
        (Some(named), _) => match app.models.named(&named) {
            Ok(model) => model,
            Err(error) => return error.into_response(),
        },
    };
    let voices = model.voices.clone();
    let listed = tokio::task::spawn_blocking(move || {
        let failed = |_| internal("the voices cannot be read");
        let mut all = Vec::new();
        for name in voices.names().map_err(failed)? {
            // A damaged voice is listed too, so that it can be removed.
            all.push(match voices.details(&name) {
                Ok(None) => json!({ "name": name, "is_own": false }),
                Ok(Some(kept)) => {
                    json!({ "name": name, "is_own": true, "seconds": kept.seconds, "report": kept.report })
                }
                Err(_) => json!({ "name": name, "is_own": true }),
            });
        }
        Ok::<_, ApiError>(json!({ "voices": all }))
    });
    match listed.await {
        Ok(Ok(json)) => ok(&json),
        Ok(Err(error)) => error.into_response(),
        Err(_) => internal("the voices cannot be read").into_response(),
    }
}
