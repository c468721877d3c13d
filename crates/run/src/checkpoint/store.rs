//! The one writer of a folder of checkpoints.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::error::CheckpointError;
use super::manifest::{self, Checkpoint};
use super::reader::{Checkpoints, Latest, Listing, Loaded, PINNED};
use super::retain::{Keep, Kept, retain};
use super::saving::Saving;
use crate::durable::{self, Disk, DurableError};
use crate::lock::FolderLock;

/// A folder of checkpoints, to be written and read.
pub struct CheckpointStore {
    checkpoints: Checkpoints,
    pub(super) disk: Arc<dyn Disk>,
    /// Found to be damaged while this store was open: they count for nothing in [`Self::tidy`], or
    /// they would push out the good one that was fallen back to.
    damaged: BTreeSet<String>,
    lock: FolderLock,
}

impl CheckpointStore {
    /// Opens a folder, made if need be, on the disk of the environment, and removes what a dead process
    /// left unfinished there.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        Self::open_on(durable::fault::disk_of_environment(), dir)
    }

    /// [`Self::open`] on a disk of the caller's choice.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, CheckpointError> {
        durable::create_folder(&*disk, dir)?;
        let lock = FolderLock::acquire(dir)?;
        durable::sweep(&*disk, dir)?;
        Ok(CheckpointStore { checkpoints: Checkpoints::at(dir), disk, damaged: BTreeSet::new(), lock })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.checkpoints.dir()
    }

    /// The same for reading only.
    pub fn reader(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Begins a checkpoint whose parts are written one after the other.
    pub fn begin(&mut self, step: u64) -> Result<Saving<'_>, CheckpointError> {
        self.lock.check()?;
        // A save that failed for want of space may have left gigabytes, which is why the next would fail.
        let _ = durable::sweep(&*self.disk, self.dir());
        let last = self.checkpoints.names()?.last().and_then(|name| manifest::parse_name(name));
        Saving::begin(self, last.map_or(1, |(number, _)| number.saturating_add(1)), step)
    }

    /// Saves parts that are in memory. When this returns, the checkpoint survives whatever happens.
    pub fn save(
        &mut self,
        step: u64,
        blobs: &[(&str, &[u8])],
        meta: Value,
        score: Option<f64>,
    ) -> Result<Checkpoint, CheckpointError> {
        let mut saving = self.begin(step)?;
        for (name, bytes) in blobs {
            saving.blob(name, bytes)?;
        }
        saving.commit(score, meta)
    }

    /// All checkpoints by their manifests, oldest first.
    pub fn list(&self) -> Result<Listing, CheckpointError> {
        self.checkpoints.list()
    }

    /// The newest checkpoint that is whole to the last byte, and which newer ones are not.
    pub fn latest_valid(&mut self) -> Result<Latest, CheckpointError> {
        let latest = self.checkpoints.latest_valid()?;
        self.damaged.extend(latest.damaged.iter().map(|damaged| damaged.name.clone()));
        Ok(latest)
    }

    /// Opens a checkpoint by its name.
    pub fn load(&self, name: &str) -> Result<Loaded, CheckpointError> {
        self.checkpoints.load(name)
    }

    /// Keeps a checkpoint until it is unpinned.
    pub fn pin(&mut self, name: &str) -> Result<(), CheckpointError> {
        self.checkpoints.pin_on(&*self.disk, name)
    }

    /// Leaves a checkpoint to retention again.
    pub fn unpin(&mut self, name: &str) -> Result<(), CheckpointError> {
        self.checkpoints.unpin_on(&*self.disk, name)
    }

    /// Deletes what need not be kept, and says what that was. To be called after a save.
    ///
    /// What is damaged is neither counted nor deleted: a person may want to see it.
    pub fn tidy(&mut self, keep: Keep) -> Result<Vec<String>, CheckpointError> {
        let mut checkpoints = self.list()?.checkpoints;
        checkpoints.retain(|checkpoint| !self.damaged.contains(&checkpoint.name()));
        let history = checkpoints.iter().map(|checkpoint| Kept {
            number: checkpoint.number,
            stage: checkpoint.meta["stage"].as_str().unwrap_or_default(),
            score: checkpoint.score,
            pinned: self.checkpoints.is_pinned(&checkpoint.name()),
        });
        let gone = retain(&history.collect::<Vec<_>>(), keep);
        checkpoints.retain(|checkpoint| gone.contains(&checkpoint.number));
        let mut names = Vec::new();
        for name in checkpoints.iter().map(Checkpoint::name) {
            if self.take_away(&name, true)? {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Deletes one checkpoint, whatever it is.
    pub fn remove(&mut self, name: &str) -> Result<(), CheckpointError> {
        self.take_away(name, false).map(|_| ())
    }

    fn take_away(&mut self, name: &str, unless_pinned: bool) -> Result<bool, CheckpointError> {
        let folder = self.checkpoints.known(name)?;
        // The name goes first and at once: what is half deleted must not look damaged.
        let leaving = durable::unfinished_name(&folder);
        let renamed = self.disk.rename(&folder, &leaving);
        renamed.map_err(DurableError::at("rename to", &leaving))?;
        if unless_pinned && leaving.join(PINNED).exists() {
            // Pinned by another process since it was looked at; whoever pins looks afterwards, too.
            let back = self.disk.rename(&leaving, &folder);
            back.map_err(DurableError::at("rename to", &folder))?;
            return Ok(false);
        }
        durable::sync_folder(&*self.disk, self.dir())?;
        durable::remove_folder(&*self.disk, &leaving)?;
        Ok(true)
    }
}
