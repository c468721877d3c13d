//! Plans, starts, stops and resumes runs.

use super::form::{RunForm, check_name};
use super::process::{ChildSpec, ChildState, failure_excerpt};
use super::{Studio, answered, conflict, internal, not_found};
use crate::response::ApiError;
use crate::routes::{App, object};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use myxtts_monitor::AttachedRun;
use myxtts_run::folder::RunFolder;
use serde_json::{Map, Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Maximum wait for a started run to appear.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Name of the child process that trains a run.
pub fn child_name(run: &str) -> String {
    format!("train {run}")
}

/// Log file of a run started here.
pub fn log_path(studio: &Studio, run: &str) -> PathBuf {
    studio.page_folder("logs").join(format!("{run}.log"))
}

async fn with_object(
    app: &Arc<App>,
    request: Request,
    work: impl FnOnce(&Studio, &Map<String, Json>) -> Result<Json, ApiError> + Send + 'static,
) -> Response {
    match object(request).await {
        Ok(object) => answered(app, move |studio| work(studio, &object)).await,
        Err(error) => error.into_response(),
    }
}

/// The resolved plan of a run before it is created.
pub async fn plan(State(app): State<Arc<App>>, request: Request) -> Response {
    with_object(&app, request, |studio, object| {
        let form = RunForm::read(studio, object)?;
        let plan = form.plan(&studio.runs)?;
        let values: Vec<Json> = plan
            .values
            .iter()
            .map(|resolved| {
                json!({ "path": resolved.key.path, "value": resolved.value.to_string(), "origin": resolved.origin.to_string(),
                        "is_written": resolved.origin.is_explicit(), "doc": resolved.key.doc,
                        "capped": resolved.capped.as_ref().map(|capped| &capped.reason) })
            })
            .collect();
        let command: Vec<String> = form.arguments(&studio.runs)?.iter().map(|word| quoted(word)).collect();
        Ok(json!({ "values": values, "notes": plan.notes, "command": format!("myxtts {}", command.join(" ")) }))
    })
    .await
}

/// Quotes an argument for a shell; for display only, never executed.
fn quoted(word: &str) -> String {
    match word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,".contains(&b)) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

pub async fn start(State(app): State<Arc<App>>, request: Request) -> Response {
    with_object(&app, request, |studio, object| {
        let mut form = RunForm::read(studio, object)?;
        form.plan(&studio.runs)?;
        let name = match &form.name {
            Some(name) => name.clone(),
            None => next_name(studio)?,
        };
        if RunFolder::is_run(&studio.runs.join(&name)) {
            let message = format!("the run {name} already exists: resume it, or choose another name");
            return Err(ApiError { param: Some("name".to_owned()), ..conflict(message) });
        }
        form.name = Some(name.clone());
        let arguments = form.arguments(&studio.runs)?;
        launch(studio, &name, arguments)
    })
    .await
}

fn next_name(studio: &Studio) -> Result<String, ApiError> {
    let names = RunFolder::list(&studio.runs).map_err(|error| internal(error.to_string()))?;
    let numbers = names.iter().filter_map(|name| name.strip_prefix("run-")?.parse::<u64>().ok());
    Ok(format!("run-{:03}", numbers.max().unwrap_or(0).saturating_add(1)))
}

/// Starts a training process and waits until the run exists or has failed.
fn launch(studio: &Studio, name: &str, arguments: Vec<String>) -> Result<Json, ApiError> {
    if let Some(running) = studio.children.running("train ") {
        let running = running.trim_start_matches("train ");
        return Err(conflict(format!(
            "the run {running} is training: stop it first, or wait until it has finished"
        )));
    }
    let (child, log) = (child_name(name), log_path(studio, name));
    let spec = ChildSpec { program: &studio.program, arguments, log: log.clone(), output: None };
    studio.children.start(&child, spec)?;
    let folder = studio.runs.join(name);
    let has_started = || RunFolder::is_run(&folder) && lock_holder(studio, name).is_some();
    match studio.children.wait(&child, START_TIMEOUT, has_started) {
        Some(ChildState::Ended(code)) if code != Some(0) && code != Some(143) => {
            let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}"));
            Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "training_refused",
                format!("training did not start ({code}): {}", failure_excerpt(&log)),
            ))
        }
        _ => Ok(json!({ "name": name })),
    }
}

/// Process id in the lock of a run.
fn lock_holder(studio: &Studio, name: &str) -> Option<u32> {
    AttachedRun::open(&studio.runs, name).ok()?.read().pid
}

/// Process that trains a run; a child of this server counts even if the program was renamed.
fn pid_of(studio: &Studio, name: &str) -> Option<u32> {
    lock_holder(studio, name).or_else(|| studio.children.pid(&child_name(name)))
}

fn check_exists(studio: &Studio, name: &str) -> Result<(), ApiError> {
    check_name(studio, name)?;
    match RunFolder::is_run(&studio.runs.join(name)) {
        true => Ok(()),
        false => Err(not_found(format!("there is no run {name:?}"))),
    }
}

/// Requests a run to stop; it saves a checkpoint first.
pub async fn stop(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    answered(&app, move |studio| {
        check_exists(studio, &name)?;
        let pid = pid_of(studio, &name)
            .ok_or_else(|| conflict(format!("no process on this machine is training the run {name}")))?;
        terminate(pid)?;
        Ok(json!({ "name": name, "stopping": true }))
    })
    .await
}

#[cfg(unix)]
fn terminate(pid: u32) -> Result<(), ApiError> {
    let pid = i32::try_from(pid).map_err(|_| internal("the process id is invalid"))?;
    // SAFETY: kill takes two numbers and touches no memory of ours.
    if unsafe { libc::kill(pid, libc::SIGTERM) } == 0 {
        return Ok(());
    }
    Err(internal(format!("the run cannot be stopped: {}", std::io::Error::last_os_error())))
}

#[cfg(not(unix))]
fn terminate(_: u32) -> Result<(), ApiError> {
    Err(internal("runs can be stopped from here on Unix only: press Ctrl-C where it was started"))
}

pub async fn resume(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    answered(&app, move |studio| {
        check_exists(studio, &name)?;
        if pid_of(studio, &name).is_some() {
            return Err(conflict(format!("the run {name} is already training")));
        }
        let runs =
            studio.runs.to_str().ok_or_else(|| internal("the path of the runs folder is not valid UTF-8"))?;
        let arguments = vec!["train".to_owned(), format!("--resume={name}"), format!("--runs-dir={runs}")];
        launch(studio, &name, arguments)
    })
    .await
}
