//! Worker threads that make batches ahead of time, in an order that does not depend on timing.
//!
//! ```text
//! free slabs ──> workers (collate) ──> reorder ──> Loader::next ──> Batch ──drop──> free slabs
//! ```
//!
//! `slab` is the memory, `queue` connects workers and consumer, `reorder` restores the order of steps, `workers` are the
//! threads, `budget` limits bad records, and `stats` holds the measurements.

mod budget;
mod notes;
mod queue;
mod reorder;
mod slab;
mod stats;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use budget::{FailureBudget, Quarantine, summary};
pub use notes::Notes;
pub use slab::{HostSlab, Slab};
pub use stats::{Quantiles, Stats};

use crate::batch::{BatchError, BatchInfo, Collator, Plan, PlanError, State, StateError};
use crate::problem::Problem;
use crate::record::RecordSource;
use queue::{Queue, Taken};
use workers::Workers;

/// Options of a loader. None of them changes the batches, except rank and range.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of worker threads.
    pub workers: usize,
    /// Maximum number of batches made ahead; the number of slabs may limit it further.
    pub depth: usize,
    /// Zero-based number of this rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// End of the range of steps (exclusive); `None` never ends.
    pub until: Option<u64>,
    /// How long to wait for one batch before failing with [`LoaderError::Stalled`].
    pub stall: Duration,
    /// How long a thread may be at one record before another thread makes its batch again; twice that should be less
    /// than `stall`.
    pub hang: Duration,
    /// How many bad records are tolerated.
    pub budget: FailureBudget,
    /// Receives messages about problems the loader recovered from.
    pub notes: Notes,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 2,
            depth: 4,
            rank: 0,
            ranks: 1,
            until: None,
            stall: Duration::from_secs(60),
            // No clip takes this long unless its storage does not respond.
            hang: Duration::from_secs(25),
            budget: FailureBudget::default(),
            notes: Notes::default(),
        }
    }
}

/// Why the loader could not start or return the next batch.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The plan does not fit the source or the ranks.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The saved position belongs to another plan.
    #[error(transparent)]
    State(#[from] StateError),
    /// An option is out of range.
    #[error("{0}")]
    Options(String),
    /// A thread could not be started.
    #[error("starting a loader thread: {0}")]
    Thread(std::io::Error),
    /// A batch could not be made.
    #[error("{thread}: {source}")]
    Batch {
        /// Name of the thread that tried.
        thread: String,
        /// Error of the collator.
        source: Box<BatchError>,
    },
    /// A worker panicked: a bug in this program.
    #[error("{thread} panicked at step {step}, at {clip}: {message}")]
    Panicked {
        /// Name of the thread.
        thread: String,
        /// Step it was making.
        step: u64,
        /// Clip it was reading.
        clip: String,
        /// Message of the panic.
        message: String,
    },
    /// No batch was ready in time.
    #[error("no batch for step {step} within {} s: {cause}", waited.as_secs())]
    Stalled {
        /// Step that was waited for.
        step: u64,
        /// Time waited.
        waited: Duration,
        /// What holds it up.
        cause: String,
    },
    /// Too many bad records.
    #[error(
        "{bad} of {read} records were bad by step {step}, more than the budget of {:.1} %: {}; run `myxtts verify --fix`",
        rate * 100.0, budget::summary(.quarantined)
    )]
    BudgetSpent {
        /// Step at which the budget was exceeded.
        step: u64,
        /// Number of bad records.
        bad: u64,
        /// Number of records read.
        read: u64,
        /// Fraction that is allowed.
        rate: f64,
        /// The bad records, each once.
        quarantined: Vec<Problem>,
    },
}

/// Returns the batches of one rank, step by step.
///
/// Ends for good after `until` or after an error. Dropping it stops its threads.
pub struct Loader<S: Slab> {
    queue: Arc<Queue<S>>,
    plan: Arc<Plan>,
    workers: Workers<S>,
    quarantine: Quarantine,
    stall: Duration,
    hang: Duration,
    next: u64,
    over: bool,
}

impl<S: Slab> Loader<S> {
    /// Starts making the batches from `start` on in `slabs`, each of at least [`Plan::slab_bytes`] bytes. There are never
    /// more batches than slabs, including those the caller holds.
    pub fn start(
        source: Arc<dyn RecordSource>,
        plan: Arc<Plan>,
        start: &State,
        options: Options,
        slabs: impl IntoIterator<Item = S>,
    ) -> Result<Self, LoaderError> {
        let first = plan.resume(start)?;
        let collator = Collator::new(source, plan.clone(), options.rank, options.ranks)?;
        if options.workers == 0 || options.depth == 0 {
            return Err(LoaderError::Options(format!(
                "{} workers, {} batches ahead: give at least 1 of each",
                options.workers, options.depth
            )));
        }
        let mut slabs: Vec<S> = slabs.into_iter().collect();
        let needed = collator.slab_bytes();
        let smallest = slabs.iter_mut().map(|slab| slab.bytes().len()).min();
        match smallest {
            None => return Err(LoaderError::Options("no slab was given; give at least 1".into())),
            Some(given) if given < needed => {
                return Err(LoaderError::Options(format!(
                    "a slab has {given} bytes, the largest batch {needed}; size slabs by `Plan::slab_bytes`"
                )));
            }
            Some(_) => {}
        }
        let end = options.until.unwrap_or(u64::MAX);
        let (source, notes) = (collator.source().clone(), options.notes);
        let queue = Arc::new(Queue::new(slabs, (first, end), options.depth, options.workers, source, notes));
        let workers = Workers::start(&queue, &collator, options.workers)?;
        let quarantine = Quarantine::new(options.budget);
        let (stall, hang) = (options.stall, options.hang);
        Ok(Loader { queue, plan, workers, quarantine, stall, hang, next: first, over: false })
    }

    /// Returns the state to save for resuming at the batch that [`next`](Iterator::next) returns next.
    pub fn state(&self) -> State {
        self.plan.state(self.next)
    }

    /// Returns the plan it follows.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the measurements so far.
    pub fn stats(&self) -> Stats {
        self.queue.stats()
    }

    /// Stops, and returns the slabs that are not in use.
    pub fn close(mut self) -> Vec<S> {
        self.workers.stop();
        self.queue.drain()
    }
}

impl<S: Slab> Iterator for Loader<S> {
    type Item = Result<Batch<S>, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let began = Instant::now();
        let taken = loop {
            match self.queue.take(began, self.stall, self.hang) {
                Ok(Taken::Abandoned(number)) => match self.workers.replace(number) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                taken => break taken,
            }
        };
        let made = match taken {
            Ok(Taken::Batch(slab, info)) => {
                // Owned before it is counted, so that the slab is returned in any case.
                let batch = Batch { slab: Some(slab), info, queue: self.queue.clone() };
                // Counted in the order of steps: when the budget is exceeded does not depend on timing.
                self.quarantine.count_batch(&batch.info, &self.queue.notes).map(|()| batch)
            }
            Ok(Taken::End | Taken::Abandoned(_)) => {
                self.over = true;
                return None;
            }
            Err(error) => Err(error),
        };
        match &made {
            Ok(_) => self.next += 1,
            Err(_) => {
                self.over = true;
                self.queue.close();
            }
        }
        Some(made)
    }
}

/// A batch in its slab. Dropping it returns the slab to the loader.
pub struct Batch<S: Slab> {
    slab: Option<S>,
    info: BatchInfo,
    queue: Arc<Queue<S>>,
}

impl<S: Slab> Batch<S> {
    /// Returns the description of the batch.
    pub fn info(&self) -> &BatchInfo {
        &self.info
    }

    /// Returns the bytes of the batch, as described by its layout.
    pub fn bytes(&mut self) -> &[u8] {
        let bytes = self.info.layout.bytes();
        &self.slab().bytes()[..bytes]
    }

    /// Returns the slab that holds it.
    pub fn slab(&mut self) -> &mut S {
        self.slab.as_mut().expect("only `drop` takes it")
    }
}

impl<S: Slab> Drop for Batch<S> {
    fn drop(&mut self) {
        if let Some(slab) = self.slab.take() {
            self.queue.recycle(slab);
        }
    }
}
