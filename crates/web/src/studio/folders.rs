//! Folders under the allowed ones.

use super::{Fields, answered, internal};
use crate::routes::App;
use axum::extract::{Query, State};
use axum::response::Response;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Folders that are listed at most.
const MOST: usize = 1000;

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
                // A link that leads out is no folder of ours.
                if path.canonicalize().is_ok_and(|real| studio.roots.hold(&real)) {
                    folders.push(json!({ "name": name, "looks_like_corpus": looks_like_corpus(&path) }));
                }
            } else if is_sound(&path) {
                sounds += 1;
            }
        }
        folders.sort_by_key(|folder| folder["name"].as_str().unwrap_or_default().to_lowercase());
        folders.truncate(MOST);
        Ok(json!({ "path": path, "folders": folders, "sounds": sounds, "looks_like_corpus": looks_like_corpus(&at) }))
    })
    .await
}

fn is_sound(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    ["wav", "flac", "mp3", "ogg", "opus", "m4a"].contains(&ending.as_str())
}

/// A quick look, not the detection that reading does: metadata or sounds right there.
fn looks_like_corpus(folder: &Path) -> bool {
    const METADATA: [&str; 6] =
        ["metadata.csv", "metadata_train.csv", "validated.tsv", "train.tsv", "wavs", "txt"];
    METADATA.iter().any(|name| folder.join(name).exists())
        || std::fs::read_dir(folder).is_ok_and(|entries| {
            entries.filter_map(Result::ok).take(200).any(|entry| {
                let path = entry.path();
                is_sound(&path) || path.extension().is_some_and(|ending| ending == "jsonl")
            })
        })
}
