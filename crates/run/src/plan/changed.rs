//! Settings that are said again when a run goes on: those that may change do, the others are refused by name.

use serde_json::{Value as Json, json};

use super::Plan;
use crate::config::{CHANGEABLE, Key, Section};

/// What came of settings that were said when a run goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// What holds from now on: `training.gpt_steps: 700 -> 900`.
    pub taken: Vec<String>,
    /// What cannot, with its reason.
    pub refused: Vec<String>,
}

/// The setting that says where the run is: it found it.
const WHERE: &str = "training.runs_dir";

impl Plan {
    /// Takes over what a person says `now` and differs from how the run was begun, as far as it may change; nothing where
    /// anything is refused. `settled` gives the reason why a setting can no longer change in this run.
    pub fn change(&mut self, now: &Plan, settled: &dyn Fn(&str) -> Option<String>) -> Changed {
        let mut changed = Changed::default();
        let mut sections = json!(self);
        let mut closed = Vec::new();
        for said in now.values.iter().filter(|said| said.origin.is_written() && said.key.path != WHERE) {
            let key = said.key;
            let place = &mut sections[key.section().name()][key.name()];
            let is = serde_json::to_value(&said.value).unwrap_or_default();
            if *place == is {
                continue;
            }
            let line = format!("{}: {place} -> {is}", key.path);
            let open = self.is_open(key.path);
            let may = open || CHANGEABLE.contains(&key.path);
            match settled(key.path).or_else(|| (!may).then(|| reason(key).to_owned())) {
                Some(why) => changed.refused.push(format!("{line} ({}): {why}", said.origin)),
                None => {
                    changed.taken.push(line);
                    *place = is;
                    closed.extend(open.then_some(key.path));
                }
            }
        }
        if changed.refused.is_empty() {
            self.take_sections(&sections);
            if let Some(tuning) = &mut self.tuning {
                tuning.open.retain(|setting| !closed.contains(&setting.as_str()));
            }
        }
        changed
    }

    fn take_sections(&mut self, sections: &Json) {
        let read = "the values come from a plan of the same table";
        let of = |section: Section| sections[section.name()].clone();
        self.data = serde_json::from_value(of(Section::Data)).expect(read);
        self.model = serde_json::from_value(of(Section::Model)).expect(read);
        self.training = serde_json::from_value(of(Section::Training)).expect(read);
    }
}

/// Why a setting of a section cannot change.
fn reason(key: &Key) -> &'static str {
    match key.section() {
        Section::Data => "records and batches are those the run was begun with",
        Section::Model => "the weights so far are those of the network the run was begun with",
        Section::Training => "the steps so far were taken with it",
    }
}
