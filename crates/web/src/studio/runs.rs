//! Read access to runs: the list, one run, its samples and the original recordings.

use super::control::{child_name, log_path};
use super::form::check_name;
use super::process::{ChildState, failure_excerpt, tail};
use super::{Fields, Studio, answered, file, internal, lock, not_found, recording};
use crate::response::ApiError;
use crate::routes::App;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use myxtts_run::folder::{FolderError, RunFolder};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Characters of an id that are part of a sample's file name.
const NAME_LETTERS: usize = 80;

fn missing(error: FolderError) -> ApiError {
    match error {
        FolderError::Missing { .. } | FolderError::NotARun { .. } | FolderError::Name { .. } => {
            not_found("there is no such run")
        }
        error => internal(error.to_string()),
    }
}

/// Adds the state of the child process: that it failed, and why.
fn with_child(studio: &Studio, name: &str, mut json: Json) -> Json {
    match studio.children.state(&child_name(name)) {
        Some(ChildState::Running(_)) if json["state"] == "stopped" => json["state"] = "running".into(),
        Some(ChildState::Ended(code)) if json["state"] != "running" && !matches!(code, Some(0 | 143)) => {
            json["state"] = "failed".into();
            json["why"] = failure_excerpt(&log_path(studio, name)).into();
        }
        _ => {}
    }
    json
}

pub async fn list(State(app): State<Arc<App>>) -> Response {
    answered(&app, |studio| {
        let names = RunFolder::list(&studio.runs).map_err(missing)?;
        let mut views = lock(&studio.views);
        let mut runs: Vec<Json> = Vec::new();
        for name in &names {
            // A run that cannot be read, or was just removed, does not hide the others.
            if let Ok(view) = views.get(&studio.runs, name) {
                runs.push(with_child(studio, name, view.summary(name)));
            }
        }
        let began = |run: &Json| run["began"].as_f64().unwrap_or(f64::INFINITY);
        runs.sort_by(|a, b| began(b).total_cmp(&began(a)));
        Ok(json!({ "runs": runs }))
    })
    .await
}

pub async fn show(State(app): State<Arc<App>>, Path(name): Path<String>, Query(fields): Fields) -> Response {
    answered(&app, move |studio| {
        let mut views = lock(&studio.views);
        let view = views.get(&studio.runs, &name).map_err(missing)?;
        let json = with_child(studio, &name, view.summary(&name));
        // The client already has this revision.
        let tag = format!("{}{}", view.revision, json["state"].as_str().unwrap_or_default());
        if fields.get("seen") == Some(&tag) {
            return Ok(json!({ "seen": tag, "same": true }));
        }
        let mut json = with_child(studio, &name, view.details(&name));
        drop(views);
        json["seen"] = tag.into();
        let plan = RunFolder::view(&studio.runs, &name).map_err(missing)?.plan();
        json["plan"] = plan.map_or(
            Json::Null,
            |plan| json!({ "data": plan.data, "model": plan.model, "training": plan.training }),
        );
        Ok(json)
    })
    .await
}

/// Log of a run started here.
pub async fn log(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    answered(&app, move |studio| {
        check_name(studio, &name)?;
        Ok(json!({ "log": tail(&log_path(studio, &name)) }))
    })
    .await
}

/// A sample or its image.
pub async fn sample(State(app): State<Arc<App>>, Path((name, wanted)): Path<(String, String)>) -> Response {
    let kind = if wanted.ends_with(".png") { "image/png" } else { "audio/wav" };
    file(&app, kind, move |studio| {
        let none = || not_found("the run has no such sample");
        let folder = RunFolder::view(&studio.runs, &name).map_err(missing)?.samples();
        // The name must be an entry of the folder, not just a path that resolves.
        let is_there = |entry: std::fs::DirEntry| entry.file_name().to_str() == Some(&wanted);
        let found = std::fs::read_dir(&folder).map_err(|_| none())?.filter_map(Result::ok).any(is_there);
        let is_supported = wanted.ends_with(".wav") || wanted.ends_with(".png");
        let real = folder.join(&wanted).canonicalize().map_err(|_| none())?;
        let is_inside = folder.canonicalize().is_ok_and(|folder| real.starts_with(folder));
        if !found || !is_supported || !is_inside {
            return Err(none());
        }
        std::fs::read(real).map_err(|_| none())
    })
    .await
}

impl Studio {
    /// Recording of a validation sentence, found in the corpora of the run.
    fn recording_of(&self, run: &str, sentence: &str) -> Result<PathBuf, ApiError> {
        let plan = RunFolder::view(&self.runs, run).map_err(missing)?.plan().map_err(missing)?;
        let file_name = |id: &str| -> String {
            let letter = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '_' };
            id.chars().take(NAME_LETTERS).map(letter).collect()
        };
        let demo = PathBuf::from("demo-voice");
        let mut corpora: Vec<&PathBuf> = plan.data.train_data.iter().chain(&plan.data.val_data).collect();
        if corpora.is_empty() {
            corpora.push(&demo);
        }
        for folder in corpora {
            let Ok(folder) = folder.canonicalize() else { continue };
            let Ok(corpus) = self.corpus(&folder) else { continue };
            let found = corpus.utterances.iter().find(|one| file_name(&one.id) == sentence);
            let Some(real) = found.and_then(|one| one.audio.canonicalize().ok()) else { continue };
            // Metadata may name any file: only files of the corpus or under the allowed folders are served.
            let home = if folder.is_dir() { folder.as_path() } else { folder.parent().unwrap_or(&folder) };
            if real.starts_with(home) || self.roots.contain(&real) {
                return Ok(real);
            }
        }
        Err(not_found("the recording of this sentence is no longer where the run found it"))
    }
}

pub async fn recording(
    State(app): State<Arc<App>>,
    Path((run, sentence)): Path<(String, String)>,
) -> Response {
    file(&app, "audio/wav", move |studio| recording::wav(&studio.recording_of(&run, &sentence)?)).await
}

pub async fn recording_mel(
    State(app): State<Arc<App>>,
    Path((run, sentence)): Path<(String, String)>,
) -> Response {
    file(&app, "image/png", move |studio| recording::mel(&studio.recording_of(&run, &sentence)?)).await
}
