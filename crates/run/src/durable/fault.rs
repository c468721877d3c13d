//! A disk that fails on purpose: full, short writes, failing syncs, or the power gone.
//!
//! Tests give a [`Faulty`] to whatever writes. Debug builds of the program also obey
//! `MYXTTS_FAIL_WRITE_EVERY=K` (every K-th step on the disk finds it full); release builds do not
//! look at it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Disk, DiskFile, Os};

/// The kinds of step a [`Disk`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making a folder.
    CreateFolder,
    /// Making a file.
    Create,
    /// Opening a file to add to it.
    Extend,
    /// Writing bytes.
    Write,
    /// Going back to put a header right.
    Seek,
    /// Waiting for the content to be on the device.
    Sync,
    /// Giving a file its name.
    Rename,
    /// Giving a file a second name.
    Link,
    /// Waiting for the names to be on the device.
    SyncFolder,
    /// Removing a file or a folder.
    Remove,
}

/// What happens at the chosen step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `ENOSPC`; a write leaves half of its bytes behind, as a real one does.
    NoSpace,
    /// `EIO`.
    Broken,
    /// A write takes half of its bytes and reports success, which is its right; other steps work.
    Short,
    /// The process ends there and then, without any clean-up, as by `kill -9`.
    Abort,
}

/// At which step something happens, and what.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// Only steps of this kind are counted; `None`: all.
    pub only: Option<Step>,
    /// The first step concerned, counted from 1; 0: none.
    pub first: u64,
    /// And every so many after it; 0: no other.
    pub then_every: u64,
    /// What happens.
    pub effect: Effect,
}

impl FaultPlan {
    /// Nothing fails; steps are counted.
    pub fn none() -> Self {
        FaultPlan { only: None, first: 0, then_every: 0, effect: Effect::Broken }
    }

    /// The `n`-th step of any kind, from 1.
    pub fn at(n: u64, effect: Effect) -> Self {
        FaultPlan { only: None, first: n, then_every: 0, effect }
    }

    /// Every `k`-th step of any kind.
    pub fn every(k: u64, effect: Effect) -> Self {
        FaultPlan { only: None, first: k, then_every: k, effect }
    }

    fn strikes(&self, count: u64) -> bool {
        self.first != 0
            && (count == self.first
                || count > self.first
                    && self.then_every != 0
                    && (count - self.first).is_multiple_of(self.then_every))
    }
}

/// The file system of this machine with a [`FaultPlan`] in front of it. It does not wait for the
/// device: what it stands in for is a process that dies, not a machine.
#[derive(Clone, Debug)]
pub struct Faulty {
    plan: FaultPlan,
    count: Arc<AtomicU64>,
}

impl Faulty {
    /// A disk that follows the plan.
    pub fn new(plan: FaultPlan) -> Self {
        Faulty { plan, count: Arc::new(AtomicU64::new(0)) }
    }

    /// Steps counted so far, those of the kind the plan speaks of.
    pub fn steps(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts the step; `Some` where the plan strikes and the effect is not an error.
    fn meet(&self, step: Step) -> io::Result<Option<Effect>> {
        if self.plan.only.is_some_and(|only| only != step) {
            return Ok(None);
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.plan.strikes(count) {
            return Ok(None);
        }
        match self.plan.effect {
            Effect::Abort => std::process::abort(),
            Effect::Broken => Err(io::Error::from_raw_os_error(5)),
            Effect::NoSpace if step != Step::Write => Err(io::Error::from_raw_os_error(28)),
            effect => Ok(Some(effect)),
        }
    }
}

impl Disk for Faulty {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.meet(Step::Create)?;
        Ok(Box::new(FaultyFile { file: Os.create(path)?, disk: self.clone() }))
    }

    fn extend(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        self.meet(Step::Extend)?;
        Ok(Box::new(FaultyFile { file: Os.extend(path, length)?, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.meet(Step::Rename)?;
        Os.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.meet(Step::Link)?;
        Os.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.meet(Step::Remove)?;
        Os.remove(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.meet(Step::Remove)?;
        Os.remove_folder(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.meet(Step::CreateFolder)?;
        Os.create_folder(path)
    }

    fn sync_folder(&self, _path: &Path) -> io::Result<()> {
        self.meet(Step::SyncFolder).map(|_| ())
    }
}

struct FaultyFile {
    file: Box<dyn DiskFile>,
    disk: Faulty,
}

impl DiskFile for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.disk.meet(Step::Write)? {
            None => self.file.write(bytes),
            Some(Effect::Short) => self.file.write(&bytes[..bytes.len().div_ceil(2)]),
            Some(_) => {
                self.file.write(&bytes[..bytes.len() / 2])?;
                Err(io::Error::from_raw_os_error(28))
            }
        }
    }

    fn seek(&mut self, position: u64) -> io::Result<()> {
        self.disk.meet(Step::Seek)?;
        self.file.seek(position)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.meet(Step::Sync).map(|_| ())
    }
}

/// The disk a command of the program writes on: this machine's, or in a debug build the failing one
/// that `MYXTTS_FAIL_WRITE_EVERY` asks for.
pub fn disk_of_environment() -> Arc<dyn Disk> {
    if cfg!(debug_assertions)
        && let Some(every) = std::env::var("MYXTTS_FAIL_WRITE_EVERY").ok().and_then(|k| k.parse().ok())
    {
        return Arc::new(Faulty::new(FaultPlan::every(every, Effect::NoSpace)));
    }
    Arc::new(Os)
}
