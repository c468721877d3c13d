//! What tuning changed in a plan, kept with the run: which settings, from what to what, and why.

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::config::{Origin, Tuned, Value};

/// Settings that are chosen for a machine where nobody made them.
pub const TUNABLE: [&str; 5] = [
    "data.batch_size",
    "training.gradient_accumulation_steps",
    "data.num_workers",
    "data.prefetch_buffer_size",
    "data.buffer_size",
];

/// What tuning has done to the plan of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Settings that nobody made and that are still to be chosen. A run that was stopped while its corpus was prepared has
    /// them when it goes on; none are left once it has been tuned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
    /// What was changed.
    #[serde(default)]
    pub changed: Vec<Change>,
}

/// A setting that was chosen for the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub setting: String,
    /// What it would be otherwise.
    pub instead_of: u64,
    /// What it is.
    pub value: u64,
    /// Why.
    pub reason: String,
}

impl Plan {
    /// Notes which settings may still be chosen for the machine: those that nobody made, in a plan that was just resolved.
    /// What was chosen while it was resolved is noted as changed.
    pub fn begin_tuning(&mut self) {
        if !self.data.auto_tune_performance {
            return;
        }
        let mut tuning = Tuning::default();
        for resolved in &self.values {
            let setting = resolved.key.path;
            if TUNABLE.contains(&setting) && !resolved.origin.is_written() {
                tuning.open.push(setting.to_owned());
            }
            if let Origin::Tuned { reason } = &resolved.origin
                && let (Value::Int(instead_of), Value::Int(value)) =
                    (resolved.key.default_value(), &resolved.value)
            {
                let (setting, value, reason) = (setting.to_owned(), *value, reason.clone());
                tuning.changed.push(Change { setting, instead_of, value, reason });
            }
        }
        // A budget of frames says how large batches are, in its own way.
        if self.data.frame_budget.is_some() {
            tuning.open.retain(|setting| setting != "data.batch_size");
        }
        self.tuning = Some(tuning);
    }

    /// Whether a setting may still be chosen for the machine.
    pub fn is_open(&self, setting: &str) -> bool {
        self.tuning.as_ref().is_some_and(|tuning| tuning.open.iter().any(|open| open == setting))
    }

    /// Takes over what was chosen for the machine, of the settings that are open, and leaves none open: a run is tuned once.
    pub fn finish_tuning(&mut self, chosen: &[Tuned]) {
        let Some(mut tuning) = self.tuning.take() else { return };
        let open = std::mem::take(&mut tuning.open);
        for Tuned { path, value, reason } in
            chosen.iter().filter(|tuned| open.iter().any(|o| o == tuned.path))
        {
            let (Some(place), Ok(value)) = (self.tunable(path), value.parse::<u64>()) else { continue };
            let was = std::mem::replace(place, value as usize) as u64;
            if was == value {
                continue;
            }
            if let Some(resolved) = self.values.iter_mut().find(|resolved| resolved.key.path == *path) {
                resolved.value = Value::Int(value);
                resolved.origin = Origin::Tuned { reason: reason.clone() };
            }
            let before = tuning.changed.iter().position(|change| change.setting == *path);
            let instead_of = before.map_or(was, |at| tuning.changed.remove(at).instead_of);
            // A second thought may come back to what holds without any.
            if instead_of != value {
                let (setting, reason) = ((*path).to_owned(), reason.clone());
                tuning.changed.push(Change { setting, instead_of, value, reason });
            }
        }
        self.tuning = Some(tuning);
    }

    /// Where a setting of [`TUNABLE`] stands.
    fn tunable(&mut self, setting: &str) -> Option<&mut usize> {
        match setting {
            "data.batch_size" => Some(&mut self.data.batch_size),
            "training.gradient_accumulation_steps" => Some(&mut self.training.gradient_accumulation_steps),
            "data.num_workers" => Some(&mut self.data.num_workers),
            "data.prefetch_buffer_size" => Some(&mut self.data.prefetch_buffer_size),
            "data.buffer_size" => Some(&mut self.data.buffer_size),
            _ => None,
        }
    }
}
