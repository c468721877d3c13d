//! Lists folders under the allowed roots.

use super::{Fields, answered, internal};
use crate::routes::App;
use axum::extract::{Query, State};
use axum::response::Response;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of folders listed.
const MAX_FOLDERS: usize = 1000;

pub async fn list(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    answered(&app, move |studio| {
        let path = fields.get("path").map_or("", String::as_str);
        let at = studio.roots.find(fields.get("root").map_or("0", String::as_str), path)?;
        let unreadable = |error| internal(format!("the folder cannot be read: {error}"));
        let mut folders = Vec::new();
        let mut sounds = 0;
        for entry in std::fs::read_dir(&at).map_err(unreadable)?.filter_map(Result::ok) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                // Links that lead outside the roots are not listed.
                if path.canonicalize().is_ok_and(|real| studio.roots.contain(&real)) {
                    folders.push(json!({ "name": name, "looks_like_corpus": looks_like_corpus(&path) }));
                }
            } else if is_audio(&path) {
                sounds += 1;
            }
        }
        folders.sort_by_key(|folder| folder["name"].as_str().unwrap_or_default().to_lowercase());
        folders.truncate(MAX_FOLDERS);
        Ok(json!({ "path": path, "folders": folders, "sounds": sounds, "looks_like_corpus": looks_like_corpus(&at) }))
    })
    .await
}

fn is_audio(path: &Path) -> bool {
    let extension =
        path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    ["wav", "flac", "mp3", "ogg", "opus", "m4a"].contains(&extension.as_str())
}

/// Quick heuristic, not the detection used for reading: metadata or audio files directly in the folder.
fn looks_like_corpus(folder: &Path) -> bool {
    const METADATA: [&str; 6] =
        ["metadata.csv", "metadata_train.csv", "validated.tsv", "train.tsv", "wavs", "txt"];
    METADATA.iter().any(|name| folder.join(name).exists())
        || std::fs::read_dir(folder).is_ok_and(|entries| {
            entries.filter_map(Result::ok).take(200).any(|entry| {
                let path = entry.path();
                is_audio(&path) || path.extension().is_some_and(|extension| extension == "jsonl")
            })
        })
}
