//! Settings that auto-tuning chose, stored with the run: old value, new value and reason.

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::config::{Origin, Tuned, Value};

/// Settings that auto-tuning may choose when they are left unset.
pub const TUNABLE: [&str; 5] = [
    "data.batch_size",
    "training.gradient_accumulation_steps",
    "data.num_workers",
    "data.prefetch_buffer_size",
    "data.buffer_size",
];

/// State of auto-tuning for a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Unset settings that are still to be chosen. A run that was stopped while its corpus was being prepared still has
    /// them when it is resumed; once it has been tuned there are none.
    #[serde(rename = "open", default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// Settings that were chosen.
    #[serde(default)]
    pub changed: Vec<TuningChange>,
}

/// A setting chosen for the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningChange {
    /// Path of the setting.
    pub setting: String,
    /// Value without tuning.
    pub instead_of: u64,
    /// Chosen value.
    pub value: u64,
    /// Why it was chosen, for display.
    pub reason: String,
}

impl Plan {
    /// Marks the settings of a freshly resolved plan that are left unset as pending, and records those that were chosen
    /// while it was resolved.
    pub fn begin_tuning(&mut self) {
        if !self.data.auto_tune_performance {
            return;
        }
        let mut tuning = Tuning::default();
        for resolved in &self.values {
            let setting = resolved.key.path;
            if TUNABLE.contains(&setting) && !resolved.origin.is_explicit() {
                tuning.pending.push(setting.to_owned());
            }
            if let Origin::Tuned { reason } = &resolved.origin
                && let (Value::Int(instead_of), Value::Int(value)) =
                    (resolved.key.default_value(), &resolved.value)
            {
                let (setting, value, reason) = (setting.to_owned(), *value, reason.clone());
                tuning.changed.push(TuningChange { setting, instead_of, value, reason });
            }
        }
        // A frame budget determines the batch size.
        if self.data.frame_budget.is_some() {
            tuning.pending.retain(|setting| setting != "data.batch_size");
        }
        self.tuning = Some(tuning);
    }

    /// Whether a setting is still to be chosen for the machine.
    pub fn is_pending(&self, setting: &str) -> bool {
        self.tuning.as_ref().is_some_and(|tuning| tuning.pending.iter().any(|pending| pending == setting))
    }

    /// Applies the chosen values of the pending settings. Afterwards none is pending: a run is tuned once.
    pub fn finish_tuning(&mut self, chosen: &[Tuned]) {
        let Some(mut tuning) = self.tuning.take() else { return };
        let pending = std::mem::take(&mut tuning.pending);
        for Tuned { path, value, reason } in
            chosen.iter().filter(|tuned| pending.iter().any(|path| path == tuned.path))
        {
            let (Some(field), Ok(value)) = (self.tunable(path), value.parse::<u64>()) else { continue };
            let was = std::mem::replace(field, value as usize) as u64;
            if was == value {
                continue;
            }
            if let Some(resolved) = self.values.iter_mut().find(|resolved| resolved.key.path == *path) {
                resolved.value = Value::Int(value);
                resolved.origin = Origin::Tuned { reason: reason.clone() };
            }
            let before = tuning.changed.iter().position(|change| change.setting == *path);
            let instead_of = before.map_or(was, |at| tuning.changed.remove(at).instead_of);
            // The second choice may return to the value without tuning.
            if instead_of != value {
                let (setting, reason) = ((*path).to_owned(), reason.clone());
                tuning.changed.push(TuningChange { setting, instead_of, value, reason });
            }
        }
        self.tuning = Some(tuning);
    }

    /// The field of a setting in [`TUNABLE`].
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
