//! Worker threads that make batches ahead of time, in an order that never depends on timing.
//!
//! ```text
//! free slabs ──> workers (collate) ──> reorder ──> Loader::next ──> Batch ──drop──> free slabs
//! ```
//!
//! `slab` is the memory, `queue` the two ends and the waiting, `reorder` what puts steps back in
//! order, `workers` the threads, `budget` how many bad records are borne, `stats` what was measured.

mod budget;
mod notes;
mod queue;
mod reorder;
mod slab;
mod stats;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use budget::{FailureBudget, Quarantine};
pub use notes::Notes;
pub use slab::{HostSlab, Slab};
pub use stats::{Quantiles, Stats};

use crate::batch::{BatchError, BatchInfo, Collator, Plan, PlanError, State, StateError};
use crate::problem::Problem;
use crate::record::RecordSource;
use queue::{Queue, Taken};
use workers::Workers;

/// How a loader works. None of it changes what batches it gives.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads.
    pub workers: usize,
    /// Batches made ahead at most; slabs may bound it further.
    pub depth: usize,
    /// This rank.
    pub rank: u32,
    /// All ranks.
    pub ranks: u32,
    /// The step before which to end; `None` goes on for ever.
    pub until: Option<u64>,
    /// How long to wait for one batch before giving up and saying who is stuck.
    pub stall: Duration,
    /// How long a thread may be at one record before its batch is made again by another; twice that should be less than
    /// `stall`.
    pub hang: Duration,
    /// How many bad records are borne.
    pub budget: FailureBudget,
    /// Where it says what it met and went on from.
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
            // No clip takes so long, unless its storage does not answer.
            hang: Duration::from_secs(25),
            budget: FailureBudget::default(),
            notes: Notes::default(),
        }
    }
}

/// Why there is no next batch.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The plan cannot be followed here.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The saved position is of something else.
    #[error(transparent)]
    State(#[from] StateError),
    /// An option that makes no sense.
    #[error("{0}")]
    Options(String),
    /// A thread could not be started.
    #[error("starting a loader thread: {0}")]
    Thread(std::io::Error),
    /// A batch could not be made.
    #[error("{thread}: {source}")]
    Batch {
        /// The thread that tried.
        thread: String,
        /// What happened.
        source: Box<BatchError>,
    },
    /// A worker panicked: a defect of ours.
    #[error("{thread} panicked at step {step}, at {clip}: {message}")]
    Panicked {
        /// The thread.
        thread: String,
        /// What it was making.
        step: u64,
        /// The clip it was at.
        clip: String,
        /// What it said.
        message: String,
    },
    /// Nothing came.
    #[error("no batch for step {step} within {} s: {who}", waited.as_secs())]
    Stalled {
        /// The step that was waited for.
        step: u64,
        /// How long.
        waited: Duration,
        /// Who holds it up.
        who: String,
    },
    /// Too many bad records.
    #[error(
        "{bad} of {read} records were bad by step {step}, more than the budget of {:.1} %: {}; run `verify --fix`",
        rate * 100.0, budget::named(.quarantined)
    )]
    BudgetSpent {
        /// The step at which it was spent.
        step: u64,
        /// Bad records met.
        bad: u64,
        /// Records read.
        read: u64,
        /// The budget.
        rate: f64,
        /// The bad records, each once.
        quarantined: Vec<Problem>,
    },
}

/// Hands out the batches of one rank, step by step.
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
    /// Starts making the batches from `start` on into `slabs`, each of which holds
    /// [`Plan::slab_bytes`] or more. There are never more batches than slabs, the caller's included.
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

    /// What to save now to come back to the batch that [`next`](Iterator::next) gives.
    pub fn state(&self) -> State {
        self.plan.state(self.next)
    }

    /// The plan it follows.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What was measured so far.
    pub fn stats(&self) -> Stats {
        self.queue.stats()
    }

    /// The bad records met so far, each once, by record number.
    pub fn quarantined(&self) -> Vec<Problem> {
        self.quarantine.problems()
    }

    /// Stops, and gives back the slabs that nobody holds.
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
                Ok(Taken::GaveUp(number)) => match self.workers.replace(number) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                taken => break taken,
            }
        };
        let made = match taken {
            Ok(Taken::Batch(slab, info)) => {
                // Owned before it is judged, so that the slab goes back in any case.
                let batch = Batch { slab: Some(slab), info, queue: self.queue.clone() };
                // In the order of steps: when the budget is spent does not depend on timing.
                self.quarantine.judge(&batch.info, &self.queue.notes).map(|()| batch)
            }
            Ok(Taken::End | Taken::GaveUp(_)) => {
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

/// A batch in its slab. Dropping it gives the slab back to the loader.
pub struct Batch<S: Slab> {
    slab: Option<S>,
    info: BatchInfo,
    queue: Arc<Queue<S>>,
}

impl<S: Slab> Batch<S> {
    /// What it is.
    pub fn info(&self) -> &BatchInfo {
        &self.info
    }

    /// The batch, as its layout describes it.
    pub fn bytes(&mut self) -> &[u8] {
        let bytes = self.info.layout.bytes();
        &self.slab().bytes()[..bytes]
    }

    /// The slab it lies in.
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
