//! The queue between workers and consumer, behind one lock.
//!
//! A worker claims a step number and a slab in one operation. So the lowest unfinished step is always either in progress or
//! free to be claimed, and no combination of workers, depth and slabs can deadlock: later steps never hold the slab that an
//! earlier one needs.
//!
//! A worker that hangs at a record is abandoned: its step is made again by a new thread with its number, and the results of
//! the old thread are discarded if it ever continues. The reorder buffer defines the order of steps, whichever thread makes
//! them.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::batch::BatchInfo;
use crate::batch::worker_position::WorkerPosition;
use crate::loader::reorder::Reorder;
use crate::loader::slab::Slab;
use crate::loader::stats::{Meters, Stats};
use crate::loader::{LoaderError, Notes};
use crate::record::RecordSource;

pub(super) struct Queue<S> {
    inner: Mutex<Inner<S>>,
    /// A slab came back, or the window moved on.
    room: Condvar,
    /// The next step in order is ready, or the queue was closed.
    ready: Condvar,
    /// A worker ended.
    ended: Condvar,
    source: Arc<dyn RecordSource>,
    pub(super) notes: Notes,
}

struct Inner<S> {
    free: Vec<S>,
    slabs: usize,
    done: Reorder<Result<(S, BatchInfo), LoaderError>>,
    claim: u64,
    /// Steps before `claim` that have to be made again.
    again: BTreeSet<u64>,
    end: u64,
    slots: Vec<WorkerSlot>,
    running: usize,
    closed: bool,
    /// Message about the worker that was abandoned last.
    abandoned: Option<String>,
    meters: Meters,
}

/// State of a worker number; a new thread takes it over when a worker is abandoned.
struct WorkerSlot {
    /// Step in progress, and when it began.
    making: Option<(u64, Instant)>,
    position: Arc<WorkerPosition>,
    /// Number of threads that had this number before.
    generation: u64,
}

/// Identity of a worker: its number, and the generation of its thread.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) number: usize,
    generation: u64,
    /// Publishes the record it is working on.
    pub(super) position: Arc<WorkerPosition>,
}

/// Result of [`Queue::take`].
pub(super) enum Taken<S> {
    Batch(S, BatchInfo),
    /// There are no more batches.
    End,
    /// The worker with this number was abandoned: the caller must start a thread that replaces it.
    Abandoned(usize),
}

impl<S: Slab> Queue<S> {
    pub(super) fn new(
        slabs: Vec<S>,
        (first, end): (u64, u64),
        depth: usize,
        workers: usize,
        source: Arc<dyn RecordSource>,
        notes: Notes,
    ) -> Self {
        // No more slots than batches that can exist.
        let depth = depth.min(slabs.len());
        let slot = |_| WorkerSlot { making: None, position: Arc::default(), generation: 0 };
        let inner = Inner {
            slabs: slabs.len(),
            free: slabs,
            done: Reorder::new(first, depth),
            claim: first,
            again: BTreeSet::new(),
            end,
            slots: (0..workers).map(slot).collect(),
            running: workers,
            closed: false,
            abandoned: None,
            meters: Meters::start(),
        };
        let (room, ready, ended) = (Condvar::new(), Condvar::new(), Condvar::new());
        Queue { inner: Mutex::new(inner), room, ready, ended, source, notes }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        // No method leaves the state half changed, so a panic elsewhere does not corrupt it.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the identity of a new thread of that number.
    pub(super) fn worker(&self, number: usize) -> Worker {
        let inner = self.lock();
        let WorkerSlot { generation, position, .. } = &inner.slots[number];
        Worker { number, generation: *generation, position: position.clone() }
    }

    /// Called by a worker: waits for the next step to make and a slab for it. `None` if the queue is closed or at its end,
    /// or if the worker was abandoned.
    pub(super) fn claim(&self, worker: &Worker) -> Option<(u64, S)> {
        let began = Instant::now();
        let mut inner = self.lock();
        loop {
            let over = inner.again.is_empty() && inner.claim >= inner.end;
            if inner.closed || over || !inner.is_current(worker) {
                return None;
            }
            if let Some((step, slab)) = inner.next_to_make() {
                let now = Instant::now();
                // Reset before the first record; otherwise the worker would seem to have been at its last one all the time.
                worker.position.begin();
                inner.slots[worker.number].making = Some((step, now));
                inner.meters.put_wait(now - began);
                return Some((step, slab));
            }
            inner = self.room.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Called by a worker: stores the result of its step; the slab is freed if there is no batch.
    pub(super) fn finish(&self, worker: &Worker, step: u64, result: Result<BatchInfo, LoaderError>, slab: S) {
        let mut inner = self.lock();
        if !inner.is_current(worker) {
            // Another thread has made the step or will make it: only the slab is of use.
            inner.free.push(slab);
            drop(inner);
            return self.room.notify_one();
        }
        inner.slots[worker.number].making = None;
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
                // No later step will be requested.
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

    /// Called by a worker when it ends. An abandoned worker has been subtracted already.
    pub(super) fn worker_ended(&self, worker: &Worker) {
        let mut inner = self.lock();
        if inner.is_current(worker) {
            inner.running -= 1;
            self.ended.notify_all();
        }
    }

    /// Called by the consumer, which has been waiting since `began`: waits for the next batch in order, for at most `stall`.
    /// A worker that has been at one record for `hang` is abandoned.
    pub(super) fn take(
        &self,
        began: Instant,
        stall: Duration,
        hang: Duration,
    ) -> Result<Taken<S>, LoaderError> {
        let mut inner = self.lock();
        loop {
            if let Some(result) = inner.done.pop() {
                inner.meters.get_wait(began.elapsed());
                if !inner.done.is_ready() && inner.done.next() < inner.end {
                    inner.meters.emptied();
                }
                drop(inner);
                self.room.notify_one();
                return result.map(|(slab, info)| Taken::Batch(slab, info));
            }
            if inner.closed || inner.done.next() >= inner.end {
                return Ok(Taken::End);
            }
            let waited = began.elapsed();
            if waited >= stall {
                return Err(inner.stalled(waited, &*self.source));
            }
            let mut timeout = stall - waited;
            if let Some(number) = inner.worker_of_next() {
                let (_, elapsed) = inner.slots[number].position.current();
                if elapsed >= hang {
                    let message = inner.abandon(number, &*self.source);
                    self.notes.push(format!("{message}; another thread makes the batch again"));
                    // A worker that waits for room may claim the step as well as the new thread.
                    self.room.notify_all();
                    return Ok(Taken::Abandoned(number));
                }
                timeout = timeout.min(hang - elapsed);
            } else {
                // The worker that claims it next may hang as well.
                timeout = timeout.min(hang);
            }
            let timeout = timeout.max(Duration::from_millis(1));
            let (guard, _) =
                self.ready.wait_timeout(inner, timeout).unwrap_or_else(|poisoned| poisoned.into_inner());
            inner = guard;
        }
    }

    /// Called by the consumer to return a slab.
    pub(super) fn recycle(&self, slab: S) {
        self.lock().free.push(slab);
        self.room.notify_one();
    }

    /// Stops further claims; workers end after their current batch.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
        self.ready.notify_all();
    }

    /// Waits until all workers have ended; returns false if some have not within `timeout`.
    pub(super) fn wait_until_ended(&self, timeout: Duration) -> bool {
        let inner = self.lock();
        let (inner, _) = self
            .ended
            .wait_timeout_while(inner, timeout, |inner| inner.running > 0)
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        inner.running == 0
    }

    /// Takes all slabs that are not in use.
    pub(super) fn drain(&self) -> Vec<S> {
        let mut inner = self.lock();
        let waiting: Vec<S> = inner.done.drain().filter_map(|result| Some(result.ok()?.0)).collect();
        let mut slabs = std::mem::take(&mut inner.free);
        slabs.extend(waiting);
        slabs
    }

    /// Describes the clip that a worker is at.
    pub(super) fn describe_clip(&self, worker: &Worker) -> String {
        clip(worker.position.current().0, &*self.source)
    }

    pub(super) fn stats(&self) -> Stats {
        self.lock().meters.stats()
    }
}

impl<S> Inner<S> {
    fn is_current(&self, worker: &Worker) -> bool {
        self.slots[worker.number].generation == worker.generation
    }

    /// Returns the lowest unclaimed step and a slab for it; `None` if there is no room.
    fn next_to_make(&mut self) -> Option<(u64, S)> {
        let Some(&step) = self.again.first() else {
            if self.claim >= self.end || !self.done.has_slot(self.claim) {
                return None;
            }
            let slab = self.free.pop()?;
            self.claim += 1;
            return Some((self.claim - 1, slab));
        };
        // Its slab is held by the abandoned worker. If no other is free, take one from the finished step furthest ahead,
        // which has the most time to be made again.
        let slab = match self.free.pop() {
            Some(slab) => slab,
            None => {
                let (later, made) = self.done.take_last_after(step, Result::is_ok)?;
                self.again.insert(later);
                made.ok()?.0
            }
        };
        self.again.remove(&step);
        Some((step, slab))
    }

    /// Returns the worker that makes the next step in order.
    fn worker_of_next(&self) -> Option<usize> {
        let step = self.done.next();
        self.slots.iter().position(|slot| slot.making.is_some_and(|(making, _)| making == step))
    }

    /// Takes a worker's number and step away, and describes where it hangs.
    fn abandon(&mut self, number: usize, source: &dyn RecordSource) -> String {
        let slot = &mut self.slots[number];
        let (record, elapsed) = slot.position.current();
        let step = slot.making.take().map(|(step, _)| step);
        slot.generation += 1;
        slot.position = Arc::default();
        self.again.extend(step);
        let message = format!(
            "{} has been at {} for {} s, making the batch of step {}",
            super::workers::name(number),
            clip(record, source),
            elapsed.as_secs(),
            step.unwrap_or(self.done.next())
        );
        self.abandoned = Some(message.clone());
        message
    }

    /// Builds the error that says what the consumer waits for.
    fn stalled(&self, waited: Duration, source: &dyn RecordSource) -> LoaderError {
        let step = self.done.next();
        let cause = match self.worker_of_next() {
            Some(number) => {
                let (record, elapsed) = self.slots[number].position.current();
                let since = self.slots[number].making.map_or(elapsed, |(_, since)| since.elapsed());
                format!(
                    "{} has been making it for {} s, and at {} for {} s; is the storage reachable?",
                    super::workers::name(number),
                    since.as_secs(),
                    clip(record, source),
                    elapsed.as_secs()
                )
            }
            None if self.free.is_empty() && self.abandoned.is_none() => {
                format!(
                    "the consumer holds all {} slabs; drop a batch before requesting the next",
                    self.slabs
                )
            }
            None => format!("no thread has claimed it ({} running)", self.running),
        };
        let before =
            self.abandoned.as_ref().map(|message| format!("; before that {message}")).unwrap_or_default();
        LoaderError::Stalled { step, waited, cause: cause + &before }
    }
}

fn clip(record: Option<u32>, source: &dyn RecordSource) -> String {
    match record {
        Some(record) => format!("the clip {}", source.id(record as usize)),
        None => "no clip yet".to_owned(),
    }
}
