//! The sources of settings and their order: defaults < auto-tuning < file < environment < command
//! line. Every value keeps the place it came from.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::error::{ConfigError, Mistake, Problem};
use super::key::Key;
use super::keys::KEYS;
use super::lookup;
use super::node::clipped;
use super::removed::Removed;
use super::tune::{Machine, Tuned, tune};
use super::value::Value;
use super::yaml::read_layer;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// Chosen for this machine.
    Tuned {
        /// Why.
        reason: String,
    },
    /// The configuration file.
    File {
        /// As it was named.
        path: PathBuf,
        /// From 1.
        line: u64,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        name: String,
    },
    /// The command line.
    CommandLine {
        /// The flag, with its dashes.
        flag: String,
    },
}

impl Origin {
    /// Whether a person wrote it, and not the table or the tuning.
    pub fn is_written(&self) -> bool {
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

/// One setting with a value that fits it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The setting.
    pub key: &'static Key,
    /// Its value.
    pub value: Value,
    /// Where it was said.
    pub origin: Origin,
}

/// Something on the command line that sets a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Flag {
    /// `--set KEY=VALUE`: what follows `--set`.
    Set(String),
    /// A flag or an argument that stands for one setting.
    Own {
        /// As the user knows it: `--batch-size`, `DIR`.
        name: String,
        /// The setting.
        key: &'static Key,
        /// What was given.
        value: String,
    },
}

/// What one source said: what could be used, and what could not.
#[derive(Default)]
pub(super) struct Layer {
    pub assignments: Vec<Assignment>,
    pub mistakes: Vec<Mistake>,
    /// What was said of settings that are no more.
    pub notes: Vec<String>,
}

/// Every setting with the value that holds, and what is to be said of the sources.
#[derive(Clone, Debug)]
pub struct Settled {
    /// In the order of the table.
    pub values: Vec<Assignment>,
    /// Whole sentences: settings that no longer mean anything.
    pub notes: Vec<String>,
}

impl Layer {
    /// Whether a path is that of a setting that is no more, which is noted.
    fn is_removed(&mut self, origin: &Origin, path: &str) -> bool {
        let removed = Removed::find(path);
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

/// Everything that has a say in the settings of one run.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The machine the run is planned for.
    pub machine: Machine,
    /// What suits it; heeded where `data.auto_tune_performance` is on.
    pub tuned: Vec<Tuned>,
    /// The YAML file.
    pub file: Option<PathBuf>,
    /// Environment variables; those that are no settings are passed over.
    pub environment: Vec<(OsString, OsString)>,
    /// The command line in its order: what comes later wins.
    pub command_line: Vec<Flag>,
}

impl Sources {
    /// Nothing but the defaults and what suits the machine.
    pub fn of(machine: Machine) -> Sources {
        let tuned = tune(&machine);
        Sources { machine, tuned, file: None, environment: Vec::new(), command_line: Vec::new() }
    }

    /// One assignment per setting, in the order of the table: the one that has the last word.
    pub fn settle(&self) -> Result<Settled, ConfigError> {
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
                let said = written.iter().rev().chain(tuned.iter().rev());
                said.into_iter().find(|assignment| assignment.key == key).cloned().unwrap_or_else(|| {
                    Assignment { key, value: key.default_value(), origin: Origin::Default }
                })
            })
            .collect();
        Ok(Settled { values, notes })
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
    let said = written.iter().rev().find(|assignment| assignment.key == key);
    said.map_or_else(|| key.default_value(), |assignment| assignment.value.clone()) == Value::Bool(true)
}

/// `MYXTTS_DATA__BATCH_SIZE`: two underscores after the section, because names have single ones.
fn environment_layer(variables: &[(OsString, OsString)]) -> Layer {
    let mut layer = Layer::default();
    // Sorted, so that messages and results never depend on the order of the environment.
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
            // Variables such as MYXTTS_GOLDENS are not settings; a setting with an underscore too
            // few is, and would be ignored without a word.
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
            let problem = Problem::Contradiction(format!(
                "sets {} as {} does; unset one of the two",
                key.path, other.origin
            ));
            layer.mistakes.push(Mistake { origin, problem });
            continue;
        }
        layer.take(origin, key, text);
    }
    layer
}
