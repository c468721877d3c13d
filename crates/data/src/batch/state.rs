//! What a run saves to resume at the same batch: a step number, and what identifies its meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::batch::plan::Plan;

/// Must change whenever the same settings give other batches than before.
const ORDER_VERSION: &str = "1";

/// A position in the stream of batches. Small, and the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Next step.
    pub step: u64,
    /// Fingerprint of the records' content, in hexadecimal.
    pub dataset: String,
    /// Hash of the selected record numbers, in hexadecimal.
    pub records: String,
    /// The plan's settings as text, by name.
    pub settings: BTreeMap<String, String>,
}

/// Why a saved state cannot be resumed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StateError {
    /// The data differ.
    #[error(
        "the saved position belongs to other data (saved {saved}, here {here}): records were added, removed or changed; restore them, or start a new order at step 0"
    )]
    Dataset {
        /// Start of the saved fingerprint.
        saved: String,
        /// Start of the current fingerprint.
        here: String,
    },
    /// Another selection of the same data.
    #[error(
        "the saved position belongs to another selection of these records (saved {saved}, here {here}): the split differs; restore it, or start a new order at step 0"
    )]
    Records {
        /// Start of the saved hash.
        saved: String,
        /// Start of the current hash.
        here: String,
    },
    /// The settings differ.
    #[error(
        "the saved position belongs to other settings: {}; restore them, or start a new order at step 0",
        .differences.join("; ")
    )]
    Settings {
        /// One message per setting that differs.
        differences: Vec<String>,
    },
}

impl State {
    pub(super) fn from_plan(plan: &Plan, step: u64) -> State {
        let hex = |bytes: &[u8; 32]| blake3::Hash::from_bytes(*bytes).to_hex().to_string();
        let mut settings = plan.settings().described();
        // Whether fitted or given, the shapes define the order, so a better fit would be another order.
        let shapes: Vec<String> =
            plan.ladder().rungs().iter().map(|rung| format!("{}/{}", rung.frames, rung.tokens)).collect();
        settings.insert("shapes".into(), shapes.join(" "));
        settings.insert("order version".into(), ORDER_VERSION.into());
        State { step, dataset: hex(plan.dataset()), records: hex(plan.members_hash()), settings }
    }

    pub(super) fn check(&self, plan: &Plan) -> Result<u64, StateError> {
        let here = State::from_plan(plan, self.step);
        if self.dataset != here.dataset {
            return Err(StateError::Dataset { saved: short(&self.dataset), here: short(&here.dataset) });
        }
        // Compared before the records: a changed limit changes both, and the limit is what the user changed.
        let mut differences = Vec::new();
        let names: std::collections::BTreeSet<&String> =
            self.settings.keys().chain(here.settings.keys()).collect();
        for name in names {
            let [saved, now] =
                [self, &here].map(|state| state.settings.get(name).map_or("unset", String::as_str));
            if saved != now {
                differences.push(format!("{name} was {saved}, is {now}"));
            }
        }
        if !differences.is_empty() {
            return Err(StateError::Settings { differences });
        }
        if self.records != here.records {
            return Err(StateError::Records { saved: short(&self.records), here: short(&here.records) });
        }
        Ok(self.step)
    }
}

/// Shortens a fingerprint for a message.
fn short(hex: &str) -> String {
    hex.chars().take(12).collect()
}
