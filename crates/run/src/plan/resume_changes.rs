//! Settings given again when a run is resumed: those that may change are applied, the others are refused by name.

use serde_json::{Value as Json, json};

use super::Plan;
use crate::config::{CHANGEABLE_ON_RESUME, Key, Section};

/// Result of applying settings to a resumed run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumeChanges {
    /// Changes that now apply: `training.gpt_steps: 700 -> 900`.
    pub applied: Vec<String>,
    /// Changes that are not possible, with the reason.
    pub refused: Vec<String>,
}

/// The setting that locates the run itself, which is never a change.
const RUNS_DIR: &str = "training.runs_dir";

impl Plan {
    /// Applies the explicit settings of `now` that differ from the stored plan. If any of them is refused, none is
    /// applied. `fixed` returns the reason why a setting can no longer change in this run.
    pub fn apply_changes(&mut self, now: &Plan, fixed: &dyn Fn(&str) -> Option<String>) -> ResumeChanges {
        let mut changes = ResumeChanges::default();
        let mut sections = json!(self);
        let mut no_longer_pending = Vec::new();
        for given in
            now.values.iter().filter(|given| given.origin.is_explicit() && given.key.path != RUNS_DIR)
        {
            let key = given.key;
            let stored = &mut sections[key.section().name()][key.name()];
            let new = serde_json::to_value(&given.value).unwrap_or_default();
            if *stored == new {
                continue;
            }
            let line = format!("{}: {stored} -> {new}", key.path);
            let pending = self.is_pending(key.path);
            let may_change = pending || CHANGEABLE_ON_RESUME.contains(&key.path);
            match fixed(key.path).or_else(|| (!may_change).then(|| reason(key).to_owned())) {
                Some(why) => changes.refused.push(format!("{line} ({}): {why}", given.origin)),
                None => {
                    changes.applied.push(line);
                    *stored = new;
                    no_longer_pending.extend(pending.then_some(key.path));
                }
            }
        }
        if changes.refused.is_empty() {
            self.set_sections(&sections);
            if let Some(tuning) = &mut self.tuning {
                tuning.pending.retain(|setting| !no_longer_pending.contains(&setting.as_str()));
            }
        }
        changes
    }

    fn set_sections(&mut self, sections: &Json) {
        let valid = "the values come from a plan with the same table";
        let json = |section: Section| sections[section.name()].clone();
        self.data = serde_json::from_value(json(Section::Data)).expect(valid);
        self.model = serde_json::from_value(json(Section::Model)).expect(valid);
        self.training = serde_json::from_value(json(Section::Training)).expect(valid);
    }
}

/// Why a setting cannot change, by section.
fn reason(key: &Key) -> &'static str {
    match key.section() {
        Section::Data => "records and batches are fixed when a run is created",
        Section::Model => "the trained weights belong to the network the run was created with",
        Section::Training => "the steps so far were trained with it",
    }
}
