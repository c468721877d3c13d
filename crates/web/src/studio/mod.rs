//! Routes of the page that do more than speak: corpora, training runs, what was spoken before. They pass the same gate as all others.

use crate::routes::App;
use axum::Router;
use std::sync::Arc;

/// Merged into the server's routes before the gate.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
