//! The plan as JSON: stored in the run folder, and read when the run is resumed.

use serde_json::{Map, Value as Json};

use super::Plan;
use crate::config::{KEYS, Section};

impl Plan {
    /// Contents of `plan.json`.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("values are finite numbers, strings and lists") + "\n"
    }

    /// Reads the output of [`Self::to_json`], including that of older versions: a setting that did not exist yet gets
    /// its default, a removed one is dropped, and both are mentioned in the notes.
    pub fn from_json(text: &str) -> Result<Plan, serde_json::Error> {
        let mut stored: Map<String, Json> = serde_json::from_str(text)?;
        let mut notes = Vec::new();
        for section in Section::ALL {
            let fields = stored.entry(section.name()).or_insert_with(|| Json::Object(Map::new()));
            let Json::Object(fields) = fields else { continue };
            for key in section.keys().filter(|key| !fields.contains_key(key.name())).collect::<Vec<_>>() {
                let default = serde_json::to_value(key.default_value())?;
                notes.push(format!("{} did not exist when this run was created: it is {default}", key.path));
                fields.insert(key.name().to_owned(), default);
            }
            fields.retain(|name, value| {
                let known = section.keys().any(|key| key.name() == name);
                if !known {
                    notes.push(format!("{}.{name} = {value} no longer has any effect", section.name()));
                }
                known
            });
        }
        let mut plan: Plan = serde_json::from_value(Json::Object(stored))?;
        plan.notes = notes;
        Ok(plan)
    }

    /// Settings in which this plan and another differ: `data.batch_size: 4 -> 8`.
    pub fn differences(&self, other: &Plan) -> Vec<String> {
        let (here, there) = (self.sections(), other.sections());
        let mut differences = Vec::new();
        for key in KEYS {
            let value = |sections: &Json| sections[key.section().name()][key.name()].clone();
            let (was, is) = (value(&here), value(&there));
            if was != is {
                differences.push(format!("{}: {was} -> {is}", key.path));
            }
        }
        differences
    }

    fn sections(&self) -> Json {
        serde_json::to_value(self).expect("values are finite numbers, strings and lists")
    }
}
