//! The plan as it is kept with a run, and read again when the run goes on.

use serde_json::{Map, Value as Json};

use super::Plan;
use crate::config::{KEYS, Section};

impl Plan {
    /// The file `plan.json`.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("values are finite numbers, words and lists") + "\n"
    }

    /// Reads what [`Self::to_json`] wrote, also an older version's: a setting that it did not have yet
    /// gets its default, one that is no more is left out, and both are said in the notes.
    pub fn from_json(text: &str) -> Result<Plan, serde_json::Error> {
        let mut stored: Map<String, Json> = serde_json::from_str(text)?;
        let mut notes = Vec::new();
        for section in Section::ALL {
            let fields = stored.entry(section.name()).or_insert_with(|| Json::Object(Map::new()));
            let Json::Object(fields) = fields else { continue };
            for key in section.keys().filter(|key| !fields.contains_key(key.name())).collect::<Vec<_>>() {
                let default = serde_json::to_value(key.default_value())?;
                notes.push(format!("{} is new since this run began: it is {default}", key.path));
                fields.insert(key.name().to_owned(), default);
            }
            fields.retain(|name, value| {
                let known = section.keys().any(|key| key.name() == name);
                if !known {
                    notes.push(format!("{}.{name} = {value} has no effect any more", section.name()));
                }
                known
            });
        }
        let mut plan: Plan = serde_json::from_value(Json::Object(stored))?;
        plan.notes = notes;
        Ok(plan)
    }

    /// Settings in which two plans differ: what a run was begun with and what is asked for now.
    pub fn differences(&self, other: &Plan) -> Vec<String> {
        let (here, there) = (self.sections(), other.sections());
        let mut differences = Vec::new();
        for key in KEYS {
            let of = |sections: &Json| sections[key.section().name()][key.name()].clone();
            let (was, is) = (of(&here), of(&there));
            if was != is {
                differences.push(format!("{}: {was} -> {is}", key.path));
            }
        }
        differences
    }

    fn sections(&self) -> Json {
        serde_json::to_value(self).expect("values are finite numbers, words and lists")
    }
}
