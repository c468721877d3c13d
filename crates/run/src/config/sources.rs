//! The sources of settings in order of precedence: defaults < auto-tuning < file < environment < command line. Every
//! value keeps its origin.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::error::{ConfigError, Mistake, Problem};
use super::host::HostResources;
use super::key::Key;
use super::keys::KEYS;
use super::lookup;
use super::node::clipped;
use super::removed_keys::RemovedKey;
use super::tune::{Tuned, tune};
use super::value::Value;
use super::yaml::read_layer;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// The table's default.
    Default,
    /// Chosen for this machine.
    Tuned {
        /// Why, for display.
        reason: String,
    },
    /// The configuration file.
    File {
        /// Path as the user gave it.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
    },
    /// An environment variable.
    Environment {
        /// Name of the variable: `MYXTTS_DATA__BATCH_SIZE`.
        name: String,
    },
    /// The command line.
    CommandLine {
        /// The flag, with its dashes.
        flag: String,
    },
}

impl Origin {
    /// Whether the user set the value, rather than the table or auto-tuning.
    pub fn is_explicit(&self) -> bool {
        !matches!(self, Origin::Default | Origin::Tuned { .. })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Tuned { reason } => write!(f, "auto-tuned: {reason}"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment { name } => f.write_str(name),
            Origin::CommandLine { flag } => f.write_str(flag),
        }
    }
}

/// A setting with a valid value.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The setting.
    pub key: &'static Key,
    /// The parsed value, within the range of the setting.
    pub value: Value,
    /// Where it was set.
    pub origin: Origin,
}

/// A command-line argument that sets a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Flag {
    /// `--set KEY=VALUE`: the text after `--set`.
    Set(String),
    /// A flag or positional argument of one setting.
    Own {
        /// As the user knows it: `--batch-size`, `DIR`.
        name: String,
        /// The setting.
        key: &'static Key,
        /// What was given.
        value: String,
    },
}

/// The valid and invalid settings of one source.
#[derive(Default)]
pub(super) struct Layer {
    pub assignments: Vec<Assignment>,
    pub mistakes: Vec<Mistake>,
    /// Notes on removed settings.
    pub notes: Vec<String>,
}

/// Every setting with its effective value, and notes on the sources.
#[derive(Clone, Debug)]
pub struct MergedSettings {
    /// One per setting, in table order.
    pub values: Vec<Assignment>,
    /// Full sentences about removed settings, for display.
    pub notes: Vec<String>,
}

impl Layer {
    /// Whether the path names a removed setting; adds a note if so.
    fn is_removed(&mut self, origin: &Origin, path: &str) -> bool {
        let removed = RemovedKey::find(path);
        self.notes.extend(removed.map(|removed| removed.note(origin, path)));
        removed.is_some()
    }

    fn take(&mut self, origin: Origin, key: Result<&'static Key, Problem>, text: &str) {
        match key.and_then(|key| key.read_text(text).map(|value| (key, value))) {
            Ok((key, value)) => self.assignments.push(Assignment { key, value, origin }),
            Err(problem) => self.mistakes.push(Mistake { origin, problem }),
        }
    }
}

/// All sources of the settings of one run.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The machine the run is planned for.
    pub host: HostResources,
    /// Values chosen for it; used where `data.auto_tune_performance` is on.
    pub tuned: Vec<Tuned>,
    /// The YAML file.
    pub file: Option<PathBuf>,
    /// Environment variables; those that are not settings are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// Command-line arguments in order; later ones win.
    pub command_line: Vec<Flag>,
}

impl Sources {
    /// The defaults and auto-tuning for a machine, without any user settings.
    pub fn for_host(host: HostResources) -> Sources {
        let tuned = tune(&host);
        Sources { host, tuned, file: None, environment: Vec::new(), command_line: Vec::new() }
    }

    /// Merges all sources: one assignment per setting, in table order, from the source with the highest precedence.
    pub fn merge(&self) -> Result<MergedSettings, ConfigError> {
        let file = self.file.as_deref().map(read_layer).transpose()?.unwrap_or_default();
        let layers =
            [self.tuned_layer(), file, environment_layer(&self.environment), self.command_line_layer()];
        let mistakes: Vec<_> = layers.iter().flat_map(|layer| layer.mistakes.iter().cloned()).collect();
        if !mistakes.is_empty() {
            return Err(ConfigError::Mistakes(mistakes));
        }
        let notes = layers.iter().flat_map(|layer| layer.notes.iter().cloned()).collect();
        let [tuned, file, environment, command_line] = layers.map(|layer| layer.assignments);
        let written = [file, environment, command_line].concat();
        let tuned = if tuning_is_on(&written) { tuned } else { Vec::new() };
        let values = KEYS
            .iter()
            .map(|key| {
                let by_precedence = written.iter().rev().chain(tuned.iter().rev());
                by_precedence.into_iter().find(|assignment| assignment.key == key).cloned().unwrap_or_else(
                    || Assignment { key, value: key.default_value(), origin: Origin::Default },
                )
            })
            .collect();
        Ok(MergedSettings { values, notes })
    }

    fn tuned_layer(&self) -> Layer {
        let mut layer = Layer::default();
        for Tuned { path, value, reason } in &self.tuned {
            layer.take(Origin::Tuned { reason: reason.clone() }, lookup::by_path(path), value);
        }
        layer
    }

    fn command_line_layer(&self) -> Layer {
        let mut layer = Layer::default();
        for flag in &self.command_line {
            match flag {
                Flag::Own { name, key, value } => {
                    layer.take(Origin::CommandLine { flag: name.clone() }, Ok(key), value);
                }
                Flag::Set(text) => match text.split_once('=') {
                    Some((path, value)) => {
                        let path = path.trim();
                        let origin = Origin::CommandLine { flag: format!("--set {}", clipped(path)) };
                        if !layer.is_removed(&origin, path) {
                            layer.take(origin, lookup::by_path(path), value);
                        }
                    }
                    None => layer.mistakes.push(Mistake {
                        origin: Origin::CommandLine { flag: "--set".to_owned() },
                        problem: Problem::NotAnAssignment(clipped(text)),
                    }),
                },
            }
        }
        layer
    }
}

fn tuning_is_on(written: &[Assignment]) -> bool {
    let key = Key::find("data.auto_tune_performance").expect("a setting of the table");
    let explicit = written.iter().rev().find(|assignment| assignment.key == key);
    explicit.map_or_else(|| key.default_value(), |assignment| assignment.value.clone()) == Value::Bool(true)
}

/// Reads variables such as `MYXTTS_DATA__BATCH_SIZE`: two underscores after the section, because names contain single
/// ones.
fn environment_layer(variables: &[(OsString, OsString)]) -> Layer {
    let mut layer = Layer::default();
    // Sorted, so that messages and results do not depend on the order of the environment.
    let mut ours: Vec<_> = variables
        .iter()
        .filter_map(|(name, value)| {
            let name = name.to_str()?;
            Some((name, name.strip_prefix("MYXTTS_")?.to_lowercase(), value))
        })
        .collect();
    ours.sort_unstable();
    for (name, rest, value) in ours {
        let origin = Origin::Environment { name: name.to_owned() };
        let Some((section, setting)) = rest.split_once("__") else {
            // Variables such as MYXTTS_GOLDENS are not settings. A setting with one underscore too few would be
            // ignored silently.
            if let Some(key) = KEYS.iter().find(|key| key.path.replace('.', "_") == rest) {
                let problem = Problem::Misplaced { path: name.to_owned(), instead: key.variable() };
                layer.mistakes.push(Mistake { origin, problem });
            }
            continue;
        };
        let path = format!("{section}.{setting}");
        if layer.is_removed(&origin, &path) {
            continue;
        }
        let key = lookup::by_path(&path);
        let Some(text) = value.to_str() else {
            layer.mistakes.push(Mistake { origin, problem: Problem::NotUtf8 });
            continue;
        };
        if let Ok(key) = key
            && let Some(other) = layer.assignments.iter().find(|assignment| assignment.key == key)
        {
            let problem = Problem::Conflict(format!(
                "sets {}, which {} also sets; unset one of them",
                key.path, other.origin
            ));
            layer.mistakes.push(Mistake { origin, problem });
            continue;
        }
        layer.take(origin, key, text);
    }
    layer
}
