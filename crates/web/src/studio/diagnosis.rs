//! `myxtts diagnose` with the settings of a run, as a child; its report is kept until the next.

use super::process::{ChildSpec, ChildState, last_words, tail};
use super::{Studio, answered, conflict, internal, not_found, read_if_there};
use crate::answer::ApiError;
use crate::routes::{App, object};
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use myxtts_run::durable;
use myxtts_run::folder::RunFolder;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Batches that are looked at: enough to name what is slow, few enough to wait for.
const BATCHES: usize = 20;

fn place(studio: &Studio, run: &str, ending: &str) -> PathBuf {
    studio.own("diagnoses").join(format!("{run}.{ending}"))
}

fn child_name(run: &str) -> String {
    format!("diagnose {run}")
}

fn opened(studio: &Studio, name: &str) -> Result<RunFolder, ApiError> {
    RunFolder::view(&studio.runs, name).map_err(|_| not_found(format!("there is no run {name:?}")))
}

pub async fn start(State(app): State<Arc<App>>, Path(name): Path<String>, request: Request) -> Response {
    let object = match object(request).await {
        Ok(object) => object,
        Err(error) => return error.into_response(),
    };
    answered(&app, move |studio| {
        let stage = object.get("stage").and_then(Json::as_str).unwrap_or("gpt").to_owned();
        if !["dvae", "gpt", "decoder"].contains(&stage.as_str()) {
            return Err(ApiError::field("stage", "invalid_value", "the stages are dvae, gpt and decoder"));
        }
        let plan = opened(studio, &name)?.plan().map_err(|error| internal(error.to_string()))?;
        if let Some(running) = studio.children.running("diagnose ") {
            return Err(conflict(format!("another diagnosis runs ({running}): wait until it is done")));
        }
        // YAML can be written as JSON. What a plan holds beside its settings is none of a file's.
        let settings = json!({ "data": plan.data, "model": plan.model, "training": plan.training });
        let (config, output) = (place(studio, &name, "yaml"), place(studio, &name, "json"));
        let unwritable =
            |error: &dyn std::fmt::Display| internal(format!("the diagnosis cannot be written: {error}"));
        std::fs::create_dir_all(studio.own("diagnoses")).map_err(|error| unwritable(&error))?;
        durable::write(&config, settings.to_string().as_bytes()).map_err(|error| unwritable(&error))?;
        let config = config.to_str().ok_or_else(|| internal("the folder of the runs is not valid UTF-8"))?;
        let arguments = vec![
            "diagnose".to_owned(),
            format!("--config={config}"),
            format!("--stage={stage}"),
            format!("--num-batches={BATCHES}"),
            "--json".to_owned(),
        ];
        let log = place(studio, &name, "log");
        let spec = ChildSpec { program: &studio.program, arguments, log, output: Some(output) };
        studio.children.start(&child_name(&name), spec)?;
        Ok(json!({ "state": "running" }))
    })
    .await
}

pub async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    answered(&app, move |studio| {
        opened(studio, &name)?;
        let (child, log) = (child_name(&name), place(studio, &name, "log"));
        if studio.children.is_running(&child) {
            return Ok(json!({ "state": "running", "log": tail(&log) }));
        }
        let found = read_if_there(&place(studio, &name, "json"))?.unwrap_or_default();
        match serde_json::from_slice::<Json>(&found) {
            Ok(Json::Object(mut report)) => {
                // Every moment of every batch: far more than a page shows.
                report.remove("trace");
                Ok(json!({ "state": "done", "report": report }))
            }
            _ => match studio.children.state(&child) {
                Some(ChildState::Ended(_)) => Ok(json!({ "state": "failed", "log": last_words(&log) })),
                _ => Ok(json!({ "state": "none" })),
            },
        }
    })
    .await
}
