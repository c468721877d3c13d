//! Runs `myxtts check` on a corpus as a child process; its report is kept until the next check.

use super::process::{ChildSpec, ChildState, failure_excerpt, tail};
use super::roots::Roots;
use super::{Fields, Studio, answered, conflict, internal, read_if_exists};
use crate::response::ApiError;
use crate::routes::{App, object};
use axum::extract::{Query, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of problems shown; the counts include all.
const MAX_PROBLEMS: usize = 500;

/// Child name and files of a check.
struct CheckFiles {
    child: String,
    report: PathBuf,
    log: PathBuf,
}

fn check_files(studio: &Studio, folder: &Path) -> CheckFiles {
    let name = &blake3::hash(folder.as_os_str().as_encoded_bytes()).to_hex()[..24];
    let at = studio.page_folder("checks");
    CheckFiles {
        child: format!("check {name}"),
        report: at.join(format!("{name}.json")),
        log: at.join(format!("{name}.log")),
    }
}

/// Folder of a request, given by the index `root` and the relative `path`.
pub fn folder(roots: &Roots, object: &Map<String, Json>) -> Result<PathBuf, ApiError> {
    let field = |name: &str| {
        object.get(name).map_or_else(String::new, |value| match value {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        })
    };
    roots.find(&field("root"), &field("path"))
}

pub async fn start(State(app): State<Arc<App>>, request: Request) -> Response {
    let object = match object(request).await {
        Ok(object) => object,
        Err(error) => return error.into_response(),
    };
    answered(&app, move |studio| {
        let folder = folder(&studio.roots, &object)?;
        let CheckFiles { child, report, log } = check_files(studio, &folder);
        if let Some(running) = studio.children.running("check ").filter(|running| *running != child) {
            return Err(conflict(format!(
                "another corpus is being checked ({running}): wait until it has finished"
            )));
        }
        if !studio.children.is_running(&child) {
            let _ = std::fs::remove_file(&report);
            let path = |path: &Path| {
                path.to_str().map(str::to_owned).ok_or_else(|| {
                    ApiError::field("path", "invalid_value", "the folder name is not valid UTF-8: rename it")
                })
            };
            let arguments = vec!["check".to_owned(), path(&folder)?, format!("--json={}", path(&report)?)];
            let spec = ChildSpec { program: &studio.program, arguments, log, output: None };
            studio.children.start(&child, spec)?;
        }
        Ok(json!({ "state": "running" }))
    })
    .await
}

pub async fn show(State(app): State<Arc<App>>, Query(fields): Fields) -> Response {
    answered(&app, move |studio| {
        let field = |name| fields.get(name).map_or("", String::as_str);
        let folder = studio.roots.find(field("root"), field("path"))?;
        let CheckFiles { child, report, log } = check_files(studio, &folder);
        if studio.children.is_running(&child) {
            return Ok(json!({ "state": "running", "log": tail(&log) }));
        }
        let Some(bytes) = read_if_exists(&report)? else {
            return Ok(match studio.children.state(&child) {
                Some(ChildState::Ended(_)) => json!({ "state": "failed", "log": failure_excerpt(&log) }),
                _ => json!({ "state": "none" }),
            });
        };
        let mut found: Json = serde_json::from_slice(&bytes)
            .map_err(|_| internal("the report is damaged: run the check again"))?;
        let created = report.metadata().and_then(|facts| facts.modified()).ok();
        let created = created
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map(|time| time.as_secs());
        let problems = found["problems"].as_array().map_or(0, Vec::len);
        if let Some(list) = found["problems"].as_array_mut() {
            list.truncate(MAX_PROBLEMS);
        }
        Ok(json!({ "state": "done", "time": created, "report": found, "problems": problems }))
    })
    .await
}
