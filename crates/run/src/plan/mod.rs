//! The resolved plan: what the configuration means on this machine. It is printed on request and
//! stored with the run.

mod changed;
mod checks;
mod recipe;
mod sections;
mod stored;
mod tuning;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::config::{Assignment, ConfigError, Key, Machine, Origin, Section, Sources, Value};

pub use changed::Changed;
pub use recipe::{Recipe, Stage};
pub use sections::{
    DataPlan, Masks, ModelPlan, OptimizationLevel, PreprocessingMode, Preset, ScheduleKind, TrainingPlan,
};
pub use tuning::{Change, TUNABLE, Tuning};

/// Every setting with its final value, typed, and how each of them came about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Corpus, features, cache, batches, loading.
    pub data: DataPlan,
    /// Which network.
    pub model: ModelPlan,
    /// How it is trained.
    pub training: TrainingPlan,
    /// What the run was begun on, and why, once that is known: `mirrored on GPUs 0 and 1: ...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// What was chosen for the machine a run was begun on, and what still may be; none where nothing may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Every value with its origin, in the order of the table; empty in a plan read from a run's folder.
    #[serde(skip)]
    pub values: Vec<Resolved>,
    /// What the user should know about how the settings go together: whole sentences, to be shown.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// The final value of one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// The setting.
    #[serde(serialize_with = "path_of")]
    pub key: &'static Key,
    /// What holds.
    pub value: Value,
    /// Where it was said.
    pub origin: Origin,
    /// Where what was said cannot be had here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capped: Option<Capped>,
}

/// A value that this machine does not give.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capped {
    /// What was asked for.
    pub asked: Value,
    /// Why it is less.
    pub reason: String,
}

fn path_of<S: serde::Serializer>(key: &&'static Key, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(key.path)
}

impl Plan {
    /// Settles all sources, fits them to the machine and checks them against each other.
    pub fn resolve(sources: &Sources) -> Result<Plan, ConfigError> {
        let settled = sources.settle()?;
        let values: Vec<Resolved> =
            settled.values.into_iter().map(|said| fit(said, &sources.machine)).collect();
        let mut plan = Plan {
            data: section(Section::Data, &values),
            model: section(Section::Model, &values),
            training: section(Section::Training, &values),
            strategy: None,
            tuning: None,
            values,
            notes: Vec::new(),
        };
        let contradictions = checks::contradictions(&plan);
        if !contradictions.is_empty() {
            return Err(ConfigError::Mistakes(contradictions));
        }
        plan.notes = settled.notes;
        plan.notes.extend(checks::notes(&plan));
        Ok(plan)
    }

    /// The value of a setting with its origin; `None` where there is no such setting.
    pub fn value(&self, path: &str) -> Option<&Resolved> {
        let key = Key::find(path)?;
        self.values.iter().find(|resolved| resolved.key == key)
    }

    /// Whether a person set it, in whichever source; never in a plan that was read from a run's folder.
    pub fn is_written(&self, path: &str) -> bool {
        self.value(path).is_some_and(|resolved| resolved.origin.is_written())
    }
}

/// What this machine gives of what was asked for.
fn fit(said: Assignment, machine: &Machine) -> Resolved {
    let Assignment { key, value, origin } = said;
    let cores = machine.cores.max(1) as u64;
    match value {
        Value::Int(asked) if key.path == "data.num_workers" && asked > cores => Resolved {
            key,
            value: Value::Int(cores),
            origin,
            capped: Some(Capped {
                asked: Value::Int(asked),
                reason: format!("this machine has {cores} core{}", if cores == 1 { "" } else { "s" }),
            }),
        },
        value => Resolved { key, value, origin, capped: None },
    }
}

/// The typed form of a section. Fields are found by name, so that a new setting needs no code here.
fn section<T: DeserializeOwned>(section: Section, values: &[Resolved]) -> T {
    let fields: Map<String, Json> = values
        .iter()
        .filter(|resolved| resolved.key.section() == section)
        .map(|resolved| {
            let value =
                serde_json::to_value(&resolved.value).expect("values are finite numbers, words and lists");
            (resolved.key.name().to_owned(), value)
        })
        .collect();
    serde_json::from_value(Json::Object(fields))
        .expect("the table and the typed sections agree; a test tries every choice and limit")
}
