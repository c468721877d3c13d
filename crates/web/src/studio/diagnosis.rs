//! Runs `myxtts diagnose` with the settings of a run as a child process; its report is kept until the next one.

use super::process::{ChildSpec, ChildState, failure_excerpt, tail};
use super::{Studio, answered, conflict, internal, not_found, read_if_exists};
use crate::response::ApiError;
use crate::routes::{App, object};
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use myxtts_run::durable;
use myxtts_run::folder::RunFolder;
use serde_json::{Map, Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Number of batches: enough to find the bottleneck, few enough to wait for.
const BATCHES: usize = 20;

fn diagnosis_file(studio: &Studio, run: &str, extension: &str) -> PathBuf {
    studio.page_folder("diagnoses").join(format!("{run}.{extension}"))
}

fn child_name(run: &str) -> String {
    format!("diagnose {run}")
}

fn opened(studio: &Studio, name: &str) -> Result<RunFolder, ApiError> {
    RunFolder::view(&studio.runs, name).map_err(|_| not_found(format!("there is no run {name:?}")))
}

/// Stage of a request; GPT by default.
pub fn stage(object: &Map<String, Json>) -> Result<&'static str, ApiError> {
    let known = ["dvae", "gpt", "decoder"];
    let named = match object.get("stage") {
        None | Some(Json::Null) => Some("gpt"),
        Some(named) => named.as_str(),
    };
    let found = named.and_then(|named| known.into_iter().find(|stage| *stage == named));
    found.ok_or_else(|| ApiError::field("stage", "invalid_value", "the stages are dvae, gpt and decoder"))
}

pub async fn start(State(app): State<Arc<App>>, Path(name): Path<String>, request: Request) -> Response {
    let object = match object(request).await {
        Ok(object) => object,
        Err(error) => return error.into_response(),
    };
    answered(&app, move |studio| {
        let stage = stage(&object)?;
        let plan = opened(studio, &name)?.plan().map_err(|error| internal(error.to_string()))?;
        if let Some(running) = studio.children.running("diagnose ") {
            return Err(conflict(format!(
                "another diagnosis is running ({running}): wait until it has finished"
            )));
        }
        // JSON is valid YAML. Only the settings of the plan belong in a configuration file.
        let settings = json!({ "data": plan.data, "model": plan.model, "training": plan.training });
        let (config, output) = (diagnosis_file(studio, &name, "yaml"), diagnosis_file(studio, &name, "json"));
        let unwritable =
            |error: &dyn std::fmt::Display| internal(format!("the diagnosis cannot be written: {error}"));
        std::fs::create_dir_all(studio.page_folder("diagnoses")).map_err(|error| unwritable(&error))?;
        durable::write(&config, settings.to_string().as_bytes()).map_err(|error| unwritable(&error))?;
        let config =
            config.to_str().ok_or_else(|| internal("the path of the runs folder is not valid UTF-8"))?;
        let arguments = vec![
            "diagnose".to_owned(),
            format!("--config={config}"),
            format!("--stage={stage}"),
            format!("--num-batches={BATCHES}"),
            "--json".to_owned(),
        ];
        let log = diagnosis_file(studio, &name, "log");
        let spec = ChildSpec { program: &studio.program, arguments, log, output: Some(output) };
        studio.children.start(&child_name(&name), spec)?;
        Ok(json!({ "state": "running" }))
    })
    .await
}

pub async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    answered(&app, move |studio| {
        opened(studio, &name)?;
        let (child, log) = (child_name(&name), diagnosis_file(studio, &name, "log"));
        if studio.children.is_running(&child) {
            return Ok(json!({ "state": "running", "log": tail(&log) }));
        }
        let found = read_if_exists(&diagnosis_file(studio, &name, "json"))?.unwrap_or_default();
        match serde_json::from_slice::<Json>(&found) {
            Ok(Json::Object(mut report)) => {
                // The trace of every batch is far more than the page shows.
                report.remove("trace");
                Ok(json!({ "state": "done", "report": report }))
            }
            _ => match studio.children.state(&child) {
                Some(ChildState::Ended(_)) => Ok(json!({ "state": "failed", "log": failure_excerpt(&log) })),
                _ => Ok(json!({ "state": "none" })),
            },
        }
    })
    .await
}
