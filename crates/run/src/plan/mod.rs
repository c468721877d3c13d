//! The resolved plan: every setting with its final value on this machine. It is printed on request and stored with the
//! run.

mod checks;
mod json;
mod recipe;
mod resume_changes;
mod sections;
mod tuning;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::config::{Assignment, ConfigError, HostResources, Key, Origin, Section, Sources, Value};

pub use recipe::{Recipe, StageKind};
pub use resume_changes::ResumeChanges;
pub use sections::{
    DataPlan, Masks, ModelPlan, OptimizationLevel, PreprocessingMode, Preset, ScheduleKind, TrainingPlan,
};
pub use tuning::{TUNABLE, Tuning, TuningChange};

/// Every setting with its final, typed value and its origin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Corpus, features, cache, batches, loading.
    pub data: DataPlan,
    /// The network.
    pub model: ModelPlan,
    /// Training and devices.
    pub training: TrainingPlan,
    /// Devices of the run and the reason, once known: `mirrored on GPUs 0 and 1: ...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Settings chosen, or still to be chosen, for the machine the run was created on; `None` where auto-tuning is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Every value with its origin, in table order; empty in a plan read from a run folder.
    #[serde(skip)]
    pub values: Vec<Resolved>,
    /// Full sentences about settings without effect, for display.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// The final value of one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// The setting.
    #[serde(serialize_with = "path_of")]
    pub key: &'static Key,
    /// The effective value.
    pub value: Value,
    /// Where it was set.
    pub origin: Origin,
    /// Set where this machine cannot provide the requested value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capped: Option<Capped>,
}

/// A value that was reduced to what this machine provides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capped {
    /// The requested value.
    #[serde(rename = "asked")]
    pub requested: Value,
    /// Why it was reduced, for display.
    pub reason: String,
}

fn path_of<S: serde::Serializer>(key: &&'static Key, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(key.path)
}

impl Plan {
    /// Merges all sources, limits values to what the machine provides, and checks settings against each other.
    pub fn resolve(sources: &Sources) -> Result<Plan, ConfigError> {
        let merged = sources.merge()?;
        let values: Vec<Resolved> =
            merged.values.into_iter().map(|assignment| limit(assignment, &sources.host)).collect();
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
        plan.notes = merged.notes;
        plan.notes.extend(checks::notes(&plan));
        Ok(plan)
    }

    /// The value of a setting with its origin; `None` if there is no such setting.
    pub fn value(&self, path: &str) -> Option<&Resolved> {
        let key = Key::find(path)?;
        self.values.iter().find(|resolved| resolved.key == key)
    }

    /// Whether the user set it, in any source; always `false` in a plan read from a run folder.
    pub fn is_explicit(&self, path: &str) -> bool {
        self.value(path).is_some_and(|resolved| resolved.origin.is_explicit())
    }
}

/// Limits a value to what this machine provides.
fn limit(assignment: Assignment, host: &HostResources) -> Resolved {
    let Assignment { key, value, origin } = assignment;
    let cores = host.cores.max(1) as u64;
    match value {
        Value::Int(requested) if key.path == "data.num_workers" && requested > cores => Resolved {
            key,
            value: Value::Int(cores),
            origin,
            capped: Some(Capped {
                requested: Value::Int(requested),
                reason: format!("this machine has {cores} core{}", if cores == 1 { "" } else { "s" }),
            }),
        },
        value => Resolved { key, value, origin, capped: None },
    }
}

/// Converts a section to its typed form. Fields are matched by name, so that a new setting needs no code here.
fn section<T: DeserializeOwned>(section: Section, values: &[Resolved]) -> T {
    let fields: Map<String, Json> = values
        .iter()
        .filter(|resolved| resolved.key.section() == section)
        .map(|resolved| {
            let value =
                serde_json::to_value(&resolved.value).expect("values are finite numbers, strings and lists");
            (resolved.key.name().to_owned(), value)
        })
        .collect();
    serde_json::from_value(Json::Object(fields))
        .expect("the table and the typed sections agree; a test checks every choice and limit")
}
