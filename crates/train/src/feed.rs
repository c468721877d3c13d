//! The path of a batch to its step: a thread makes batches in the device's format and copies them ahead of time; the
//! training loop takes one for every step it queues.
//!
//! ```text
//! maker (a thread) ──bytes──> Slot ──own copy stream──> ready ──Feed::next_batch──> Engine::take ──Feed::give_back──> free
//! ```
//!
//! Batches arrive in order, independent of timing. The number of slots follows the measured waits, within the plan's limits on
//! number and bytes.

mod maker;
mod settings;
mod sync_maker;

pub(crate) use maker::maker_of;
pub use maker::{BatchCost, Finisher, Maker, field};
pub use settings::{Depth, FeedSettings};

use crate::error::TrainError;
use crate::fault::FeedFault;
use myxtts_tensor::engine::{Slot, Uploader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A wait longer than this share of the time between two batches means that too few batches were ready.
const LONG_WAIT_SHARE: f64 = 0.01;
/// Shorter waits are the hand-over itself, however soon the next batch is requested: several steps are queued at once.
const HAND_OVER_TIME: Duration = Duration::from_micros(100);
/// After this many batches with most slots unused, one slot is retired.
const RETIRE_AFTER: u64 = 500;
/// Time without a batch after which the maker counts as stuck. The loader behind it reports its own stuck threads sooner.
const STALL_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a feed that ends waits for its thread. A thread that is stuck in storage or in a driver cannot be ended; it is abandoned,
/// and must not keep the program from exiting. Longer than the loader waits for its own threads.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How a batch is made: its bytes on the host, then optionally a finisher on another device.
struct BatchMaker<T> {
    maker: Maker<T>,
    finisher: Option<Finisher<T>>,
    /// A fault injected by `diagnose`; `None` in training. It gets no access to the measurements.
    fault: Option<FeedFault>,
}

/// A batch that is ready for a step.
pub struct ReadyBatch<T> {
    /// The slot that holds it.
    pub slot: Slot,
    /// Description of the batch, from the maker.
    pub what: T,
    /// Time and bytes it took to make.
    pub made: BatchCost,
}

impl<T> ReadyBatch<T> {
    /// Makes a batch in a slot and starts its copy.
    fn make(
        batch_maker: &mut BatchMaker<T>,
        uploader: &Uploader,
        mut slot: Slot,
        number: u64,
    ) -> Result<ReadyBatch<T>, TrainError> {
        let mut made = BatchCost::default();
        let start = Instant::now();
        let bytes = slot.bytes()?;
        if let Some(fault) = &mut batch_maker.fault {
            fault.lock();
        }
        let until_free = start.elapsed();
        made.blocked = until_free;
        let began = Instant::now();
        let (length, mut what) = (batch_maker.maker)(number, bytes, &mut made)?;
        if let Some(fault) = &mut batch_maker.fault {
            fault.stall();
        }
        made.filling = began.elapsed().saturating_sub(made.awaited + (made.blocked - until_free));
        let began = Instant::now();
        if let Some(fault) = &mut batch_maker.fault {
            fault.copy(length)?;
        }
        match &mut batch_maker.finisher {
            None => uploader.send(&mut slot, length)?,
            Some(finish) => finish(uploader, &mut slot, length, &mut what)?,
        }
        made.sending = began.elapsed();
        made.pageable = uploader.is_pageable();
        made.bytes = length;
        Ok(ReadyBatch { slot, what, made })
    }
}

/// Batches, made ahead of time.
pub struct Feed<T> {
    mode: Mode<T>,
    next: u64,
    meter: Meter,
}

enum Mode<T> {
    Ahead(Prefetch<T>),
    Blocking { batch_maker: BatchMaker<T>, uploader: Uploader, slot: Option<Slot> },
}

struct Prefetch<T> {
    /// Name of the thread.
    name: String,
    /// How long to wait for one batch.
    stall: Duration,
    /// No batch came in time: the thread is stuck.
    is_stuck: bool,
    ready: Option<Receiver<Result<ReadyBatch<T>, TrainError>>>,
    free: Option<Sender<Slot>>,
    thread: Option<JoinHandle<()>>,
    /// Number of the batch that is made next.
    made_until: Arc<AtomicU64>,
    /// Slots not in use. All slots are allocated at the start, so that no memory is allocated while steps run.
    spare: Vec<Slot>,
    slot_bytes: usize,
    slots: usize,
    wanted: usize,
    least: usize,
    most: usize,
    /// Number of the batch at which a wait last occurred or a slot was last retired.
    settled_since: u64,
}

/// Measurements of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Number of batches handed out.
    pub batches: u64,
    /// Total time the loop waited for them.
    pub waited: Duration,
    /// Wait for the last batch.
    pub last_wait: Duration,
    /// Time and bytes of the last batch.
    pub last_made: BatchCost,
    /// Number of slots in use.
    pub slots: usize,
    /// Bytes of all slots, spare ones included; used once on the host and once on the device.
    pub bytes: usize,
}

struct Meter {
    measured: Measured,
    last: Option<Instant>,
}

impl<T: Send + 'static> Feed<T> {
    /// Starts to make batches, from number `first` on, into slots of `slot_bytes`.
    pub fn start(
        name: &str,
        uploader: Uploader,
        slot_bytes: usize,
        depth: Depth,
        first: u64,
        maker: Maker<T>,
    ) -> Result<Feed<T>, TrainError> {
        Feed::ahead(
            name,
            uploader,
            slot_bytes,
            depth,
            first,
            BatchMaker { maker, finisher: None, fault: None },
        )
    }

    fn ahead(
        name: &str,
        uploader: Uploader,
        slot_bytes: usize,
        depth: Depth,
        first: u64,
        mut batch_maker: BatchMaker<T>,
    ) -> Result<Feed<T>, TrainError> {
        let (to_loop, ready) = channel();
        let (free, to_maker) = channel::<Slot>();
        let most = depth.slots(slot_bytes);
        let least = depth.min.clamp(2, most);
        let mut spare = (0..most).map(|_| uploader.slot(slot_bytes)).collect::<Result<Vec<_>, _>>()?;
        for slot in spare.drain(..least) {
            // Cannot fail: the receiver is still owned here.
            let _ = free.send(slot);
        }
        let named = name.to_owned();
        let made_until = Arc::new(AtomicU64::new(first));
        let counted = Arc::clone(&made_until);
        let make = move || {
            let mut number = first;
            while let Ok(slot) = to_maker.recv() {
                let made = catch_unwind(AssertUnwindSafe(|| {
                    ReadyBatch::make(&mut batch_maker, &uploader, slot, number)
                }));
                let made = made.unwrap_or_else(|panic| {
                    let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                    Err(TrainError::Feed(format!("the thread {named} panicked at batch {number}: {said}")))
                });
                let over = made.is_err();
                if to_loop.send(made).is_err() || over {
                    return;
                }
                number += 1;
                counted.store(number, Ordering::Release);
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(make)
            .map_err(|error| TrainError::Feed(format!("the thread {name} could not be started: {error}")))?;
        let mode = Mode::Ahead(Prefetch {
            name: name.to_owned(),
            stall: STALL_TIMEOUT,
            is_stuck: false,
            ready: Some(ready),
            free: Some(free),
            thread: Some(thread),
            made_until,
            spare,
            slot_bytes,
            slots: least,
            wanted: least,
            least,
            most,
            settled_since: 0,
        });
        Ok(Feed { mode, next: first, meter: Meter::new() })
    }

    /// Makes each batch when it is requested: to measure what making them ahead gains.
    pub fn blocking(
        uploader: Uploader,
        slot_bytes: usize,
        first: u64,
        maker: Maker<T>,
    ) -> Result<Feed<T>, TrainError> {
        let slot = Some(uploader.slot(slot_bytes)?);
        let batch_maker = BatchMaker { maker, finisher: None, fault: None };
        Ok(Feed { mode: Mode::Blocking { batch_maker, uploader, slot }, next: first, meter: Meter::new() })
    }

    /// Sets how long to wait for one batch before failing; the default is 90 s.
    pub fn with_stall_timeout(mut self, limit: Duration) -> Feed<T> {
        if let Mode::Ahead(ahead) = &mut self.mode {
            ahead.stall = limit;
        }
        self
    }

    /// Waits until every slot holds a batch, and until `not_before`; returns the number of ready batches. Does not wait for
    /// a maker that has failed: the next batch returns its error.
    pub(crate) fn wait_until_full(&self, not_before: Instant) -> usize {
        let Mode::Ahead(ahead) = &self.mode else { return 0 };
        let late = Instant::now() + ahead.stall;
        loop {
            let ready = (ahead.made_until.load(Ordering::Acquire) - self.next) as usize;
            let over = ahead.thread.as_ref().is_none_or(JoinHandle::is_finished);
            let now = Instant::now();
            if (ready >= ahead.slots && now >= not_before) || over || now > late {
                return ready;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Number of the next batch.
    pub fn upcoming(&self) -> u64 {
        self.next
    }

    /// Returns the next batch. Its slot must be given back after a program has taken it.
    pub fn next_batch(&mut self) -> Result<ReadyBatch<T>, TrainError> {
        let start = Instant::now();
        let fed = match &mut self.mode {
            Mode::Blocking { batch_maker, uploader, slot } => {
                let slot = slot.take().ok_or_else(|| TrainError::Feed("a slot was not given back".into()))?;
                ReadyBatch::make(batch_maker, uploader, slot, self.next)?
            }
            Mode::Ahead(ahead) => ahead.receive(self.next)?,
        };
        let between = self.meter.took(start);
        self.next += 1;
        self.meter.measured.last_made = fed.made;
        if let Mode::Ahead(ahead) = &mut self.mode {
            ahead.resize(&self.meter.measured, between);
        }
        Ok(fed)
    }

    /// Returns a slot, to be filled again.
    pub fn give_back(&mut self, slot: Slot) {
        match &mut self.mode {
            Mode::Blocking { slot: place, .. } => *place = Some(slot),
            Mode::Ahead(ahead) => ahead.give_back(slot),
        }
    }

    /// Measurements so far.
    pub fn measured(&self) -> Measured {
        let (slots, bytes) = match &self.mode {
            Mode::Blocking { .. } => (1, 0),
            Mode::Ahead(ahead) => (ahead.slots, (ahead.slots + ahead.spare.len()) * ahead.slot_bytes),
        };
        Measured { slots, bytes, ..self.meter.measured }
    }
}

impl<T> Prefetch<T> {
    fn receive(&mut self, number: u64) -> Result<ReadyBatch<T>, TrainError> {
        let ready = self.ready.as_ref().ok_or_else(|| TrainError::Feed("the feed has ended".into()))?;
        match ready.recv_timeout(self.stall) {
            Ok(fed) => fed,
            Err(RecvTimeoutError::Timeout) => {
                self.is_stuck = true;
                Err(TrainError::Feed(format!(
                    "the thread {} has not made batch {number} within {:.0} s: its storage or its device does not respond",
                    self.name,
                    self.stall.as_secs_f64()
                )))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(TrainError::Feed(format!("the thread {} ended before batch {number}", self.name)))
            }
        }
    }

    fn give_back(&mut self, slot: Slot) {
        if self.slots > self.wanted {
            self.slots -= 1;
            self.spare.push(slot);
            return;
        }
        if let Some(free) = &self.free {
            // A maker that has ended has sent its error, or is about to.
            let _ = free.send(slot);
        }
    }

    /// Adds a slot after a wait that was too long; retires one after a long time without such a wait.
    fn resize(&mut self, measured: &Measured, between: Duration) {
        let long = measured.last_wait > between.mul_f64(LONG_WAIT_SHARE).max(HAND_OVER_TIME);
        // The first batch is always waited for.
        if long && measured.batches > 1 {
            self.settled_since = measured.batches;
            self.wanted = (self.wanted + 1).min(self.most);
            if self.slots < self.wanted
                && let (Some(free), Some(slot)) = (&self.free, self.spare.pop())
            {
                let _ = free.send(slot);
                self.slots += 1;
            }
        } else if measured.batches - self.settled_since >= RETIRE_AFTER {
            self.settled_since = measured.batches;
            self.wanted = (self.wanted - 1).max(self.least);
        }
    }
}

impl Meter {
    fn new() -> Meter {
        Meter { measured: Measured::default(), last: None }
    }

    /// Adds a wait to the measurements, and returns the time since the batch before.
    fn took(&mut self, start: Instant) -> Duration {
        let now = Instant::now();
        self.measured.last_wait = now - start;
        self.measured.waited += now - start;
        self.measured.batches += 1;
        self.last.replace(now).map_or(Duration::from_secs(3600), |last| now - last)
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        // With both channels closed, the thread ends after its current batch.
        self.free = None;
        self.ready = None;
        let Some(thread) = self.thread.take() else { return };
        let late = Instant::now() + STOP_TIMEOUT;
        while !thread.is_finished() {
            if self.is_stuck || Instant::now() > late {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}
