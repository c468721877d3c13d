//! What a loader has to say while it goes on: a bad record that was replaced, a batch that was made again.

use std::sync::{Arc, Mutex};

/// Kept until somebody asks; more are dropped, since then nobody does.
const MOST: usize = 256;

/// Sentences for whoever runs the loader. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(super) fn tell(&self, note: String) {
        let mut notes = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if notes.len() < MOST {
            notes.push(note);
        }
    }

    /// What was said since this was last asked.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}
