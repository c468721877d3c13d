//! The single writer of a checkpoint folder.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::error::CheckpointError;
use super::manifest::{self, Checkpoint};
use super::reader::{Checkpoints, Latest, Listing, OpenCheckpoint, PINNED};
use super::retention::{RetentionCandidate, RetentionPolicy, expired};
use super::writer::CheckpointWriter;
use crate::durable::{self, Disk, DurableError};
use crate::lock::FolderLock;

/// A checkpoint folder, open for writing and reading.
pub struct CheckpointStore {
    checkpoints: Checkpoints,
    pub(super) disk: Arc<dyn Disk>,
    /// Names of checkpoints found to be damaged while this store was open. [`Self::prune`] ignores them; otherwise they
    /// would displace the valid one that was used instead.
    damaged: BTreeSet<String>,
    lock: FolderLock,
}

impl CheckpointStore {
    /// Opens a folder on the default disk, creating it if needed, and removes unfinished checkpoints of dead processes.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        Self::open_on(durable::fault::disk_from_env(), dir)
    }

    /// [`Self::open`] on the given disk.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, CheckpointError> {
        durable::create_folder(&*disk, dir)?;
        let lock = FolderLock::acquire(dir)?;
        durable::remove_unfinished(&*disk, dir)?;
        Ok(CheckpointStore { checkpoints: Checkpoints::at(dir), disk, damaged: BTreeSet::new(), lock })
    }

    /// Path of the folder.
    pub fn dir(&self) -> &Path {
        self.checkpoints.dir()
    }

    /// The same folder, for reading.
    pub fn reader(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Starts a checkpoint whose blobs are written one after the other.
    pub fn begin(&mut self, step: u64) -> Result<CheckpointWriter<'_>, CheckpointError> {
        self.lock.check()?;
        // A save that failed on a full disk may have left gigabytes, and the next one would fail as well.
        let _ = durable::remove_unfinished(&*self.disk, self.dir());
        let last = self.checkpoints.names()?.last().and_then(|name| manifest::parse_name(name));
        CheckpointWriter::begin(self, last.map_or(1, |(number, _)| number.saturating_add(1)), step)
    }

    /// Saves blobs from memory. When this returns, the checkpoint survives a power failure.
    pub fn save(
        &mut self,
        step: u64,
        blobs: &[(&str, &[u8])],
        meta: Value,
        score: Option<f64>,
    ) -> Result<Checkpoint, CheckpointError> {
        let mut writer = self.begin(step)?;
        for (name, bytes) in blobs {
            writer.blob(name, bytes)?;
        }
        writer.commit(score, meta)
    }

    /// All checkpoints by their manifests, oldest first.
    pub fn list(&self) -> Result<Listing, CheckpointError> {
        self.checkpoints.list()
    }

    /// Finds the newest checkpoint in which every byte is valid, and lists newer, damaged ones.
    pub fn latest_valid(&mut self) -> Result<Latest, CheckpointError> {
        let latest = self.checkpoints.latest_valid()?;
        self.damaged.extend(latest.damaged.iter().map(|damaged| damaged.name.clone()));
        Ok(latest)
    }

    /// Opens a checkpoint by its name.
    pub fn load(&self, name: &str) -> Result<OpenCheckpoint, CheckpointError> {
        self.checkpoints.load(name)
    }

    /// Deletes expired checkpoints and returns their names. To be called after a save.
    ///
    /// Damaged checkpoints are neither counted nor deleted: the user may want to inspect them.
    pub fn prune(&mut self, keep: RetentionPolicy) -> Result<Vec<String>, CheckpointError> {
        let mut checkpoints = self.list()?.checkpoints;
        checkpoints.retain(|checkpoint| !self.damaged.contains(&checkpoint.name()));
        let history = checkpoints.iter().map(|checkpoint| RetentionCandidate {
            number: checkpoint.number,
            stage: checkpoint.meta["stage"].as_str().unwrap_or_default(),
            score: checkpoint.score,
            pinned: self.checkpoints.is_pinned(&checkpoint.name()),
        });
        let expired = expired(&history.collect::<Vec<_>>(), keep);
        checkpoints.retain(|checkpoint| expired.contains(&checkpoint.number));
        let mut names = Vec::new();
        for name in checkpoints.iter().map(Checkpoint::name) {
            if self.delete(&name, true)? {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Deletes one checkpoint, even if it is pinned.
    pub fn remove(&mut self, name: &str) -> Result<(), CheckpointError> {
        self.delete(name, false).map(|_| ())
    }

    fn delete(&mut self, name: &str, unless_pinned: bool) -> Result<bool, CheckpointError> {
        let folder = self.checkpoints.existing(name)?;
        // Renamed first, so that a half-deleted checkpoint does not look damaged.
        let doomed = durable::unfinished_name(&folder);
        let renamed = self.disk.rename(&folder, &doomed);
        renamed.map_err(DurableError::at("rename to", &doomed))?;
        if unless_pinned && doomed.join(PINNED).exists() {
            // Pinned by someone else in the meantime.
            let back = self.disk.rename(&doomed, &folder);
            back.map_err(DurableError::at("rename to", &folder))?;
            return Ok(false);
        }
        durable::sync_folder(&*self.disk, self.dir())?;
        durable::remove_folder(&*self.disk, &doomed)?;
        Ok(true)
    }
}
