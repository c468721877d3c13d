//! Fault injection: a disk that is full, makes short writes, fails to sync, or kills the process.
//!
//! Tests pass a [`FaultyDisk`] to code that writes. Debug builds of the program also read `MYXTTS_FAIL_WRITE_EVERY=K`
//! (every K-th disk operation fails with a full disk); release builds ignore it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Disk, DiskFile, OsDisk};

/// Operations of a [`Disk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOperation {
    /// Create a folder.
    CreateFolder,
    /// Create a file.
    Create,
    /// Open a file for appending.
    Extend,
    /// Write bytes.
    Write,
    /// Seek, to rewrite a header.
    Seek,
    /// Sync a file.
    Sync,
    /// Rename a file or folder.
    Rename,
    /// Create a hard link.
    Link,
    /// Sync a folder.
    SyncFolder,
    /// Remove a file or folder.
    Remove,
}

/// Effect of an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `ENOSPC`; a write leaves half of its bytes behind, as on a real disk.
    NoSpace,
    /// `EIO`.
    Broken,
    /// A write accepts half of its bytes and reports success, which is allowed; other operations succeed.
    Short,
    /// The process aborts without any clean-up, as by `kill -9`.
    Abort,
}

/// Which operations fail, and how.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// Count only this operation; `None` counts all.
    pub only: Option<DiskOperation>,
    /// First operation that fails, counted from 1; 0 for none.
    pub first: u64,
    /// Interval of further failures after the first; 0 for none.
    pub repeat_every: u64,
    /// Effect of the fault.
    pub effect: Effect,
}

impl FaultPlan {
    /// No operation fails; they are only counted.
    pub fn none() -> Self {
        FaultPlan { only: None, first: 0, repeat_every: 0, effect: Effect::Broken }
    }

    /// The `n`-th operation fails, counted from 1.
    pub fn at(n: u64, effect: Effect) -> Self {
        FaultPlan { only: None, first: n, repeat_every: 0, effect }
    }

    /// Every `k`-th operation fails.
    pub fn every(k: u64, effect: Effect) -> Self {
        FaultPlan { only: None, first: k, repeat_every: k, effect }
    }

    fn fails_at(&self, count: u64) -> bool {
        self.first != 0
            && (count == self.first
                || count > self.first
                    && self.repeat_every != 0
                    && (count - self.first).is_multiple_of(self.repeat_every))
    }
}

/// The real file system with injected faults. It does not sync to the device, since it simulates the death of a process,
/// not of a machine.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    plan: FaultPlan,
    counter: Arc<AtomicU64>,
}

impl FaultyDisk {
    /// Creates a disk that follows the plan.
    pub fn new(plan: FaultPlan) -> Self {
        FaultyDisk { plan, counter: Arc::new(AtomicU64::new(0)) }
    }

    /// Number of operations counted so far, as selected by the plan.
    pub fn operations(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Counts the operation; `Some` if a fault is due that is not a plain error.
    fn count(&self, operation: DiskOperation) -> io::Result<Option<Effect>> {
        if self.plan.only.is_some_and(|only| only != operation) {
            return Ok(None);
        }
        let count = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.plan.fails_at(count) {
            return Ok(None);
        }
        match self.plan.effect {
            Effect::Abort => std::process::abort(),
            Effect::Broken => Err(io::Error::from_raw_os_error(5)),
            Effect::NoSpace if operation != DiskOperation::Write => Err(io::Error::from_raw_os_error(28)),
            effect => Ok(Some(effect)),
        }
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.count(DiskOperation::Create)?;
        Ok(Box::new(FaultyFile { file: OsDisk.create(path)?, disk: self.clone() }))
    }

    fn extend(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        self.count(DiskOperation::Extend)?;
        Ok(Box::new(FaultyFile { file: OsDisk.extend(path, length)?, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.count(DiskOperation::Rename)?;
        OsDisk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.count(DiskOperation::Link)?;
        OsDisk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.count(DiskOperation::Remove)?;
        OsDisk.remove(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.count(DiskOperation::Remove)?;
        OsDisk.remove_folder(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.count(DiskOperation::CreateFolder)?;
        OsDisk.create_folder(path)
    }

    fn sync_folder(&self, _path: &Path) -> io::Result<()> {
        self.count(DiskOperation::SyncFolder).map(|_| ())
    }
}

struct FaultyFile {
    file: Box<dyn DiskFile>,
    disk: FaultyDisk,
}

impl DiskFile for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.disk.count(DiskOperation::Write)? {
            None => self.file.write(bytes),
            Some(Effect::Short) => self.file.write(&bytes[..bytes.len().div_ceil(2)]),
            Some(_) => {
                self.file.write(&bytes[..bytes.len() / 2])?;
                Err(io::Error::from_raw_os_error(28))
            }
        }
    }

    fn seek(&mut self, position: u64) -> io::Result<()> {
        self.disk.count(DiskOperation::Seek)?;
        self.file.seek(position)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.count(DiskOperation::Sync).map(|_| ())
    }
}

/// The disk that commands of the program use: the real one, or in a debug build the faulty one that
/// `MYXTTS_FAIL_WRITE_EVERY` requests.
pub fn disk_from_env() -> Arc<dyn Disk> {
    if cfg!(debug_assertions)
        && let Some(every) = std::env::var("MYXTTS_FAIL_WRITE_EVERY").ok().and_then(|k| k.parse().ok())
    {
        return Arc::new(FaultyDisk::new(FaultPlan::every(every, Effect::NoSpace)));
    }
    Arc::new(OsDisk)
}
