//! The two ends of the loader and everything they wait for, behind one lock.
//!
//! A worker claims a step number and a slab in the same breath. So the lowest step that is not done is
//! always either being made or free to be claimed, and no choice of workers, depth and slabs can lock
//! up: later steps never hold the slab that an earlier one needs.
//!
//! A worker that stands still at a record is given up: its step is made again by a thread that takes its number, and what
//! it does if it ever moves again counts for nothing. The order of steps is the reorder buffer's, whoever makes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::batch::BatchInfo;
use crate::batch::beacon::Beacon;
use crate::loader::reorder::Reorder;
use crate::loader::slab::Slab;
use crate::loader::stats::{Meters, Stats};
use crate::loader::{LoaderError, Notes};
use crate::record::RecordSource;

pub(super) struct Queue<S> {
    inner: Mutex<Inner<S>>,
    /// A slab came back, or the window moved on.
    room: Condvar,
    /// The step whose turn it is was made, or all is over.
    ready: Condvar,
    /// A worker ended.
    gone: Condvar,
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
    seats: Vec<Seat>,
    running: usize,
    closed: bool,
    /// Who was given up last, in words.
    given_up: Option<String>,
    meters: Meters,
}

/// A worker's place, which another thread takes when it is given up.
struct Seat {
    /// The step it is making, and since when.
    making: Option<(u64, Instant)>,
    beacon: Arc<Beacon>,
    /// Threads that had the place before.
    generation: u64,
}

/// Who a worker is: its number, and which of the threads that have had it.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) number: usize,
    generation: u64,
    /// Where it says which record it is at.
    pub(super) beacon: Arc<Beacon>,
}

/// What a consumer is given.
pub(super) enum Taken<S> {
    Batch(S, BatchInfo),
    /// There is no more.
    End,
    /// A worker was given up: a thread has to take its place.
    GaveUp(usize),
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
        // No more places than batches there can be.
        let depth = depth.min(slabs.len());
        let seat = |_| Seat { making: None, beacon: Arc::default(), generation: 0 };
        let inner = Inner {
            slabs: slabs.len(),
            free: slabs,
            done: Reorder::new(first, depth),
            claim: first,
            again: BTreeSet::new(),
            end,
            seats: (0..workers).map(seat).collect(),
            running: workers,
            closed: false,
            given_up: None,
            meters: Meters::start(),
        };
        let (room, ready, gone) = (Condvar::new(), Condvar::new(), Condvar::new());
        Queue { inner: Mutex::new(inner), room, ready, gone, source, notes }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        // Nothing below leaves the state half changed, so a panic elsewhere does not spoil it.
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Who a new thread of that number is.
    pub(super) fn worker(&self, number: usize) -> Worker {
        let inner = self.lock();
        let Seat { generation, beacon, .. } = &inner.seats[number];
        Worker { number, generation: *generation, beacon: beacon.clone() }
    }

    /// For a worker: the next step to make and the slab to make it in. Waits; `None` when all is over, or when the worker
    /// was given up.
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
                // Before it is at a record, or it would seem to have been at its last one all the while.
                worker.beacon.begin();
                inner.seats[worker.number].making = Some((step, now));
                inner.meters.put_wait(now - began);
                return Some((step, slab));
            }
            inner = self.room.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// For a worker: what became of its step, and its slab where that made no batch.
    pub(super) fn finish(&self, worker: &Worker, step: u64, result: Result<BatchInfo, LoaderError>, slab: S) {
        let mut inner = self.lock();
        if !inner.is_current(worker) {
            // Another has made the step, or is about to: all that is left of this one is its slab.
            inner.free.push(slab);
            drop(inner);
            return self.room.notify_one();
        }
        inner.seats[worker.number].making = None;
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

    /// For a worker: it ends. One that was given up has been counted out.
    pub(super) fn leave(&self, worker: &Worker) {
        let mut inner = self.lock();
        if inner.is_current(worker) {
            inner.running -= 1;
            self.gone.notify_all();
        }
    }

    /// For the consumer, who has waited since `began`: the batch whose turn it is. Waits, until `stall` is over; a worker
    /// that has been at one record for `hang` meanwhile is given up.
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
            let mut patience = stall - waited;
            if let Some(number) = inner.maker() {
                let (_, here) = inner.seats[number].beacon.seen();
                if here >= hang {
                    let words = inner.give_up(number, &*self.source);
                    self.notes.tell(format!("{words}; another thread makes the batch again"));
                    // A worker that waits for room may take the step up as well as the new one.
                    self.room.notify_all();
                    return Ok(Taken::GaveUp(number));
                }
                patience = patience.min(hang - here);
            } else {
                // Whoever takes it up next may stand still as well.
                patience = patience.min(hang);
            }
            let patience = patience.max(Duration::from_millis(1));
            let (guard, _) =
                self.ready.wait_timeout(inner, patience).unwrap_or_else(|poisoned| poisoned.into_inner());
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

    /// The clip that a worker is at, in words.
    pub(super) fn clip(&self, worker: &Worker) -> String {
        clip(worker.beacon.seen().0, &*self.source)
    }

    pub(super) fn stats(&self) -> Stats {
        self.lock().meters.stats()
    }
}

impl<S> Inner<S> {
    fn is_current(&self, worker: &Worker) -> bool {
        self.seats[worker.number].generation == worker.generation
    }

    /// The lowest step that nobody makes, and a slab for it; none where there is no room.
    fn next_to_make(&mut self) -> Option<(u64, S)> {
        let Some(&step) = self.again.first() else {
            if self.claim >= self.end || !self.done.has_place(self.claim) {
                return None;
            }
            let slab = self.free.pop()?;
            self.claim += 1;
            return Some((self.claim - 1, slab));
        };
        // The slab it had is with the worker that was given up. Where no other is free, one is taken from the step that
        // has the longest time to be made once more.
        let slab = match self.free.pop() {
            Some(slab) => slab,
            None => {
                let (later, made) = self.done.take_back(step, Result::is_ok)?;
                self.again.insert(later);
                made.ok()?.0
            }
        };
        self.again.remove(&step);
        Some((step, slab))
    }

    /// The worker that makes the step whose turn it is.
    fn maker(&self) -> Option<usize> {
        let step = self.done.next();
        self.seats.iter().position(|seat| seat.making.is_some_and(|(making, _)| making == step))
    }

    /// Takes a worker's place and step away, and says who it was.
    fn give_up(&mut self, number: usize, source: &dyn RecordSource) -> String {
        let seat = &mut self.seats[number];
        let (record, here) = seat.beacon.seen();
        let step = seat.making.take().map(|(step, _)| step);
        seat.generation += 1;
        seat.beacon = Arc::default();
        self.again.extend(step);
        let words = format!(
            "{} has been at {} for {} s, making the batch of step {}",
            super::workers::name(number),
            clip(record, source),
            here.as_secs(),
            step.unwrap_or(self.done.next())
        );
        self.given_up = Some(words.clone());
        words
    }

    /// Names who the consumer waits for.
    fn stalled(&self, waited: Duration, source: &dyn RecordSource) -> LoaderError {
        let step = self.done.next();
        let who = match self.maker() {
            Some(number) => {
                let (record, here) = self.seats[number].beacon.seen();
                let since = self.seats[number].making.map_or(here, |(_, since)| since.elapsed());
                format!(
                    "{} has been making it for {} s, and at {} for {} s; is the storage reachable?",
                    super::workers::name(number),
                    since.as_secs(),
                    clip(record, source),
                    here.as_secs()
                )
            }
            None if self.free.is_empty() && self.given_up.is_none() => {
                format!(
                    "the consumer holds all {} slabs; drop a batch before asking for the next",
                    self.slabs
                )
            }
            None => format!("no thread took it up ({} running)", self.running),
        };
        let before = self.given_up.as_ref().map(|words| format!("; before that {words}")).unwrap_or_default();
        LoaderError::Stalled { step, waited, who: who + &before }
    }
}

fn clip(record: Option<u32>, source: &dyn RecordSource) -> String {
    match record {
        Some(record) => format!("the clip {}", source.id(record as usize)),
        None => "no clip yet".to_owned(),
    }
}
