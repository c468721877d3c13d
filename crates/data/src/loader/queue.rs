//! The two ends of the loader and everything they wait for, behind one lock.
//!
//! A worker claims a step number and a slab in the same breath. So the lowest step that is not done is
//! always either being made or free to be claimed, and no choice of workers, depth and slabs can lock
//! up: later steps never hold the slab that an earlier one needs.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::batch::BatchInfo;
use crate::loader::LoaderError;
use crate::loader::reorder::Reorder;
use crate::loader::slab::Slab;
use crate::loader::stats::{Meters, Stats};

pub(super) struct Queue<S> {
    inner: Mutex<Inner<S>>,
    /// A slab came back, or the window moved on.
    room: Condvar,
    /// The step whose turn it is was made, or all is over.
    ready: Condvar,
    /// A worker ended.
    gone: Condvar,
}

struct Inner<S> {
    free: Vec<S>,
    slabs: usize,
    done: Reorder<Result<(S, BatchInfo), LoaderError>>,
    claim: u64,
    end: u64,
    /// By worker: the step it is making, and since when.
    making: Vec<Option<(u64, Instant)>>,
    running: usize,
    closed: bool,
    meters: Meters,
}

impl<S: Slab> Queue<S> {
    pub(super) fn new(slabs: Vec<S>, first: u64, end: u64, depth: usize, workers: usize) -> Self {
        // No more places than batches there can be.
        let depth = depth.min(slabs.len());
        let inner = Inner {
            slabs: slabs.len(),
            free: slabs,
            done: Reorder::new(first, depth),
            claim: first,
            end,
            making: vec![None; workers],
            running: workers,
            closed: false,
            meters: Meters::start(),
        };
        Queue { inner: Mutex::new(inner), room: Condvar::new(), ready: Condvar::new(), gone: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        // Nothing below leaves the state half changed, so a panic elsewhere does not spoil it.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// For a worker: the next step to make and the slab to make it in. Waits; `None` when all is over.
    pub(super) fn claim(&self, worker: usize) -> Option<(u64, S)> {
        let began = Instant::now();
        let mut inner = self.lock();
        loop {
            if inner.closed || inner.claim >= inner.end {
                return None;
            }
            if inner.done.has_place(inner.claim)
                && let Some(slab) = inner.free.pop()
            {
                let (step, now) = (inner.claim, Instant::now());
                inner.claim += 1;
                inner.making[worker] = Some((step, now));
                inner.meters.put_wait(now - began);
                return Some((step, slab));
            }
            inner = self.room.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// For a worker: what became of its step, and its slab where that made no batch.
    pub(super) fn finish(&self, worker: usize, step: u64, result: Result<BatchInfo, LoaderError>, slab: S) {
        let mut inner = self.lock();
        inner.making[worker] = None;
        if inner.closed {
            inner.free.push(slab);
            return;
        }
        let result = match result {
            Ok(info) => {
                inner.meters.made(&info);
                Ok((slab, info))
            }
            Err(error) => {
                // Nothing after it will be asked for.
                inner.end = inner.end.min(step + 1);
                inner.free.push(slab);
                Err(error)
            }
        };
        inner.done.insert(step, result);
        if inner.done.next() == step {
            inner.meters.filled();
            self.ready.notify_one();
        }
    }

    /// For a worker: it ends.
    pub(super) fn leave(&self) {
        self.lock().running -= 1;
        self.gone.notify_all();
    }

    /// For the consumer: the batch whose turn it is. Waits, at most `stall`; `None` at the end.
    pub(super) fn take(&self, stall: Duration) -> Result<Option<(S, BatchInfo)>, LoaderError> {
        let began = Instant::now();
        let mut inner = self.lock();
        loop {
            if let Some(result) = inner.done.pop() {
                inner.meters.get_wait(began.elapsed());
                if !inner.done.is_ready() && inner.done.next() < inner.end {
                    inner.meters.emptied();
                }
                drop(inner);
                self.room.notify_one();
                return result.map(Some);
            }
            if inner.closed || inner.done.next() >= inner.end {
                return Ok(None);
            }
            let waited = began.elapsed();
            if waited >= stall {
                return Err(inner.stalled(waited));
            }
            let (guard, _) = self
                .ready
                .wait_timeout(inner, stall - waited)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            inner = guard;
        }
    }

    /// For the consumer: it is done with a slab.
    pub(super) fn recycle(&self, slab: S) {
        self.lock().free.push(slab);
        self.room.notify_one();
    }

    /// No more claims; workers end after the batch in hand.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
        self.ready.notify_all();
    }

    /// Waits until all workers have ended; false if some have not within `patience`.
    pub(super) fn wait_until_left(&self, patience: Duration) -> bool {
        let inner = self.lock();
        let (inner, _) = self
            .gone
            .wait_timeout_while(inner, patience, |inner| inner.running > 0)
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        inner.running == 0
    }

    /// All slabs that nobody holds.
    pub(super) fn drain(&self) -> Vec<S> {
        let mut inner = self.lock();
        let waiting: Vec<S> = inner.done.drain().filter_map(|result| Some(result.ok()?.0)).collect();
        let mut slabs = std::mem::take(&mut inner.free);
        slabs.extend(waiting);
        slabs
    }

    pub(super) fn stats(&self) -> Stats {
        self.lock().meters.stats()
    }
}

impl<S> Inner<S> {
    /// Names who the consumer waits for.
    fn stalled(&self, waited: Duration) -> LoaderError {
        let step = self.done.next();
        let maker = self.making.iter().enumerate().find_map(|(worker, making)| match making {
            Some((making, since)) if *making == step => Some((worker, since.elapsed())),
            _ => None,
        });
        let who = match maker {
            Some((worker, since)) => format!(
                "{} has been making it for {} s; is the storage reachable?",
                super::workers::name(worker),
                since.as_secs()
            ),
            None if self.free.is_empty() => {
                format!(
                    "the consumer holds all {} slabs; drop a batch before asking for the next",
                    self.slabs
                )
            }
            None => format!("no thread took it up ({} running)", self.running),
        };
        LoaderError::Stalled { step, waited, who }
    }
}
