//! Runs, looked at: their list, one of them, its samples and the recordings beside them.

use super::control::{child_name, log_of};
use super::form::check_name;
use super::process::{ChildState, last_words, tail};
use super::{Fields, Studio, answered, file, internal, lock, not_found, recording};
use crate::answer::ApiError;
use crate::routes::App;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use myxtts_run::folder::{FolderError, RunFolder};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Letters of an id that are part of a sample's name.
const NAME_LETTERS: usize = 80;

fn missing(error: FolderError) -> ApiError {
    match error {
        FolderError::NotARun { .. } | FolderError::Name { .. } => not_found("there is no such run"),
        error => internal(error.to_string()),
    }
}

/// Adds what only this server knows: that its child has failed, and why.
fn with_child(studio: &Studio, name: &str, mut json: Json) -> Json {
    match studio.children.state(&child_name(name)) {
        Some(ChildState::Running(_)) if json["state"] == "stopped" => json["state"] = "running".into(),
        Some(ChildState::Ended(code)) if json["state"] != "running" && !matches!(code, Some(0 | 143)) => {
            json["state"] = "failed".into();
            json["why"] = last_words(&log_of(studio, name)).into();
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
            // One that cannot be read, or was removed just now, does not hide the others.
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
        // The caller has all of it.
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

/// What a run that was started here has said.
pub async fn log(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    answered(&app, move |studio| {
        check_name(studio, &name)?;
        Ok(json!({ "log": tail(&log_of(studio, &name)) }))
    })
    .await
}

/// A sample or its picture.
pub async fn sample(State(app): State<Arc<App>>, Path((name, wanted)): Path<(String, String)>) -> Response {
    let kind = if wanted.ends_with(".png") { "image/png" } else { "audio/wav" };
    file(&app, kind, move |studio| {
        let none = || not_found("the run has no such sample");
        let folder = RunFolder::view(&studio.runs, &name).map_err(missing)?.samples();
        // A name that the folder has, not one that is put together with it.
        let is_there = |entry: std::fs::DirEntry| entry.file_name().to_str() == Some(&wanted);
        let found = std::fs::read_dir(&folder).map_err(|_| none())?.filter_map(Result::ok).any(is_there);
        let fits = wanted.ends_with(".wav") || wanted.ends_with(".png");
        let real = folder.join(&wanted).canonicalize().map_err(|_| none())?;
        let is_inside = folder.canonicalize().is_ok_and(|folder| real.starts_with(folder));
        if !found || !fits || !is_inside {
            return Err(none());
        }
        std::fs::read(real).map_err(|_| none())
    })
    .await
}

impl Studio {
    /// The recording of a held-out sentence, found in the corpora that the run was begun with.
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
            // Metadata may name any file: those of the corpus are shown, and those under the allowed folders.
            let home = if folder.is_dir() { folder.as_path() } else { folder.parent().unwrap_or(&folder) };
            if real.starts_with(home) || self.roots.hold(&real) {
                return Ok(real);
            }
        }
        Err(not_found("the recording of this sentence is not where the run has found it"))
    }
}

pub async fn recording(
    State(app): State<Arc<App>>,
    Path((run, sentence)): Path<(String, String)>,
) -> Response {
    file(&app, "audio/wav", move |studio| recording::sound(&studio.recording_of(&run, &sentence)?)).await
}

pub async fn recording_mel(
    State(app): State<Arc<App>>,
    Path((run, sentence)): Path<(String, String)>,
) -> Response {
    file(&app, "image/png", move |studio| recording::mel(&studio.recording_of(&run, &sentence)?)).await
}
