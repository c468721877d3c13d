//! Messages of a running loader: a bad record that was replaced, a batch that was made again.

use std::sync::{Arc, Mutex};

/// Maximum number of unread messages; more are dropped, since then nothing reads them.
const MAX_UNREAD: usize = 256;

/// Messages for the user of the loader. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(super) fn push(&self, note: String) {
        let mut notes = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if notes.len() < MAX_UNREAD {
            notes.push(note);
        }
    }

    /// Returns the messages since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}
