//! The form of a new training run: validated field by field and converted to arguments of `myxtts train`.

use super::Studio;
use crate::response::{ApiError, ok};
use axum::response::Response;
use myxtts_run::config::{Flag, HostResources, KEYS, Key, Sources, ValueKind};
use myxtts_run::folder::{FolderError, RunFolder};
use myxtts_run::plan::Plan;
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};

/// Maximum number of settings per request.
const MAX_SETTINGS: usize = 200;

/// A requested run.
#[derive(Debug, PartialEq)]
pub struct RunForm {
    /// Name; `None` for the next free number.
    pub name: Option<String>,
    /// Corpus folder; `None` for the built-in demo corpus.
    pub corpus: Option<String>,
    /// Stage to train; `None` for all missing ones.
    pub stage: Option<String>,
    /// Model folder to fine-tune.
    pub from: Option<String>,
    /// Settings and values, as for `--set`.
    pub settings: Vec<(&'static str, String)>,
}

fn invalid(param: &str, message: impl Into<String>) -> ApiError {
    ApiError::field(param, "invalid_value", message)
}

fn utf8(path: &Path, param: &str) -> Result<String, ApiError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| invalid(param, "the folder name is not valid UTF-8: rename it"))
}

/// Validates a run name and returns its folder.
pub fn check_name(studio: &Studio, name: &str) -> Result<PathBuf, ApiError> {
    match RunFolder::view(&studio.runs, name) {
        Err(error @ FolderError::Name { .. }) => Err(invalid("name", error.to_string())),
        _ => Ok(studio.runs.join(name)),
    }
}

/// Whether the page may change a setting: numbers and choices only. Files and commands are reserved to the owner of the machine.
fn may_be_set(key: &Key) -> bool {
    !matches!(key.kind, ValueKind::Text | ValueKind::Path | ValueKind::Paths)
}

impl RunForm {
    /// Parses the request of the page.
    pub fn read(studio: &Studio, object: &Map<String, Json>) -> Result<RunForm, ApiError> {
        let text = |name: &str| match object.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Json::String(text)) => Ok(Some(text.trim().to_owned())),
            Some(_) => Err(invalid(name, format!("{name} must be a string"))),
        };
        let name = text("name")?;
        if let Some(name) = &name {
            check_name(studio, name)?;
        }
        let corpus = match object.get("corpus") {
            None | Some(Json::Null) => None,
            Some(Json::Object(corpus)) => {
                let root = corpus.get("root").map(Json::to_string).unwrap_or_default();
                let path = corpus.get("path").and_then(Json::as_str).unwrap_or_default();
                Some(utf8(&studio.roots.find(root.trim_matches('"'), path)?, "corpus")?)
            }
            Some(_) => return Err(invalid("corpus", "corpus must be an object with root and path, or null")),
        };
        let stage = text("stage")?;
        if let Some(stage) = &stage
            && !["dvae", "gpt", "decoder"].contains(&stage.as_str())
        {
            return Err(invalid("stage", "the stages are dvae, gpt and decoder"));
        }
        let from = match text("from")? {
            None => None,
            Some(run) => {
                let folder = RunFolder::view(&studio.runs, &run)
                    .map_err(|_| invalid("from", format!("there is no run {run:?}")))?;
                let model = folder.path().join("model");
                if !model.join("manifest.json").is_file() {
                    return Err(invalid("from", format!("the run {run} has no model yet")));
                }
                Some(utf8(&model, "from")?)
            }
        };
        let settings = match object.get("settings") {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::Object(all)) if all.len() <= MAX_SETTINGS => {
                all.iter().map(|(path, value)| setting(path, value)).collect::<Result<_, _>>()?
            }
            Some(_) => {
                return Err(invalid("settings", "settings must be an object of settings and values"));
            }
        };
        Ok(RunForm { name, corpus, stage, from, settings })
    }

    /// Arguments of `myxtts`.
    pub fn arguments(&self, runs: &Path) -> Result<Vec<String>, ApiError> {
        let mut all = vec!["train".to_owned()];
        all.extend(self.corpus.clone());
        for (flag, value) in [("name", &self.name), ("stage", &self.stage), ("from", &self.from)] {
            all.extend(value.as_ref().map(|value| format!("--{flag}={value}")));
        }
        all.push(format!("--runs-dir={}", utf8(runs, "runs")?));
        all.extend(self.settings.iter().map(|(path, value)| format!("--set={path}={value}")));
        Ok(all)
    }

    /// The settings as they resolve on this machine.
    pub fn plan(&self, runs: &Path) -> Result<Plan, ApiError> {
        let own = |path: &'static str, flag: &str, value: String| {
            Key::find(path).map(|key| Flag::Own { name: flag.to_owned(), key, value })
        };
        let mut command_line: Vec<Flag> = Vec::new();
        command_line.extend(self.corpus.clone().and_then(|corpus| own("data.train_data", "CORPUS", corpus)));
        command_line.extend(own("training.runs_dir", "--runs-dir", utf8(runs, "runs")?));
        command_line.extend(self.settings.iter().map(|(path, value)| Flag::Set(format!("{path}={value}"))));
        let environment = std::env::vars_os().collect();
        let sources = Sources { environment, command_line, ..Sources::for_host(HostResources::detect()) };
        Plan::resolve(&sources).map_err(|error| invalid("settings", error.to_string()))
    }
}

fn setting(path: &str, value: &Json) -> Result<(&'static str, String), ApiError> {
    let key = Key::find(path).ok_or_else(|| invalid(path, format!("there is no setting {path:?}")))?;
    if !may_be_set(key) {
        return Err(invalid(
            path,
            format!("{path} is a file or a command and can only be set where the server is started"),
        ));
    }
    let text = match value {
        Json::Null => "null".to_owned(),
        Json::Bool(yes) => yes.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) if text.len() <= 200 && !text.contains(char::is_control) => text.clone(),
        _ => return Err(invalid(path, format!("{path} must be {}", key.allowed()))),
    };
    Ok((key.path, text))
}

/// All settings that the page may change.
pub async fn settings() -> Response {
    let keys = KEYS.iter().filter(|key| may_be_set(key)).map(|key| {
        let choices = match key.kind {
            ValueKind::Choice(choices) => Some(choices),
            _ => None,
        };
        json!({ "path": key.path, "default": key.default, "allowed": key.allowed(), "doc": key.doc, "choices": choices,
                "is_switch": key.kind == ValueKind::Bool })
    });
    ok(&json!({ "settings": keys.collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::StudioOptions;

    fn studio(at: &Path) -> Studio {
        std::fs::create_dir_all(at.join("data/mine")).unwrap();
        Studio::new(StudioOptions {
            runs: at.join("runs"),
            roots: vec![at.join("data")],
            ..StudioOptions::default()
        })
    }

    fn read(studio: &Studio, json: Json) -> Result<RunForm, ApiError> {
        RunForm::read(studio, json.as_object().unwrap())
    }

    #[test]
    fn every_field_becomes_one_argument() {
        let at = tempfile::tempdir().unwrap();
        let studio = studio(at.path());
        let request = json!({ "name": "a-1", "corpus": { "root": 0, "path": "mine" }, "stage": "gpt",
                            "settings": { "training.gpt_steps": 7, "model.preset": "tiny" } });
        let form = read(&studio, request).unwrap();
        let runs = std::path::absolute(at.path().join("runs")).unwrap();
        let corpus = at.path().join("data/mine").canonicalize().unwrap();
        assert_eq!(
            form.arguments(&studio.runs).unwrap(),
            [
                "train",
                corpus.to_str().unwrap(),
                "--name=a-1",
                "--stage=gpt",
                &format!("--runs-dir={}", runs.display()),
                "--set=model.preset=tiny",
                "--set=training.gpt_steps=7"
            ]
        );
        let plan = form.plan(&studio.runs).unwrap();
        assert_eq!(plan.value("training.gpt_steps").unwrap().value.to_string(), "7");
    }

    #[test]
    fn invalid_fields_are_refused_by_name() {
        let at = tempfile::tempdir().unwrap();
        let studio = studio(at.path());
        for (request, param) in [
            (json!({ "name": "../x" }), "name"),
            (json!({ "name": "--help" }), "name"),
            (json!({ "name": 3 }), "name"),
            (json!({ "corpus": "/etc" }), "corpus"),
            (json!({ "stage": "all" }), "stage"),
            (json!({ "from": "nobody" }), "from"),
            (json!({ "settings": { "no.such": 1 } }), "no.such"),
            (
                json!({ "settings": { "training.recognizer_command": "rm -rf ~" } }),
                "training.recognizer_command",
            ),
            (json!({ "settings": { "training.runs_dir": "/tmp" } }), "training.runs_dir"),
            (json!({ "settings": { "training.gpt_steps": [1] } }), "training.gpt_steps"),
            (json!({ "settings": { "model.preset": "tiny\n" } }), "model.preset"),
        ] {
            let error = read(&studio, request.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{request}");
        }
        assert!(read(&studio, json!({ "corpus": { "root": 0, "path": "../.." } })).is_err());
        let form = read(&studio, json!({ "settings": { "training.gpt_steps": -3 } })).unwrap();
        assert_eq!(form.plan(&studio.runs).unwrap_err().param.as_deref(), Some("settings"));
    }
}
