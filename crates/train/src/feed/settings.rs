//! How a feed is set up: threads, slots, and when batches are copied.

use super::{BatchMaker, Feed, Finisher, Maker, Meter, Mode};
use crate::error::TrainError;
use crate::fault::Fault;
use myxtts_data::loader::{FailureBudget, Options};
use myxtts_tensor::Engine;
use myxtts_tensor::engine::Upload;

/// Maximum bytes of batches that wait on a device: a small share of its memory.
const MAX_WAITING_BYTES: usize = 1 << 30;

/// The default of `data.prefetch_buffer_size`.
const DEFAULT_SLOTS: usize = 12;

/// How far ahead batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Initial number of slots.
    pub min: usize,
    /// Maximum number of slots.
    pub max: usize,
    /// Maximum bytes of all slots.
    pub bytes: usize,
}

impl Depth {
    /// At most `max` slots, and a few of them initially.
    pub fn of(max: usize) -> Depth {
        Depth { min: max.min(4), max: max.max(2), bytes: MAX_WAITING_BYTES }
    }

    /// Maximum number of slots of `bytes` bytes each, at least 2: one is in use while another is filled.
    pub fn slots(&self, bytes: usize) -> usize {
        self.max.min(self.bytes / bytes.max(1)).max(2)
    }
}

/// How batches get to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedSettings {
    /// Number of threads that read records.
    pub workers: usize,
    /// When batches are copied to the device.
    pub upload: Upload,
    /// How far ahead batches are made; `None` makes each when it is requested.
    pub depth: Option<Depth>,
    /// Number of batches in preparation at once, from the plan to the step; those beyond the slots wait in RAM. There are
    /// always two per thread, so that no thread idles.
    pub under_way: usize,
    /// Number of bad records that are tolerated.
    pub failures: FailureBudget,
    /// A fault injected by `diagnose`; `None` in training.
    pub fault: Option<&'static Fault>,
}

impl Default for FeedSettings {
    fn default() -> Self {
        FeedSettings {
            workers: 1,
            upload: Upload::Ahead,
            depth: Some(Depth::of(DEFAULT_SLOTS)),
            under_way: 0,
            failures: FailureBudget::default(),
            fault: None,
        }
    }
}

impl FeedSettings {
    /// Loader options. If batches are made on request, loader threads must not work ahead either.
    pub fn loading(&self) -> Options {
        let workers = self.workers.max(1);
        let depth = self.depth.map_or(0, |depth| self.under_way.saturating_sub(depth.max).max(2 * workers));
        Options { workers, depth, budget: self.failures, ..Options::default() }
    }

    /// Starts a feed for an engine.
    pub fn start<T: Send + 'static>(
        &self,
        name: &str,
        engine: &Engine,
        slot_bytes: usize,
        first: u64,
        maker: Maker<T>,
    ) -> Result<Feed<T>, TrainError> {
        self.start_with(name, engine, slot_bytes, first, maker, None)
    }

    /// As [`start`](Self::start), with batches that are finished on another device.
    pub fn start_with<T: Send + 'static>(
        &self,
        name: &str,
        engine: &Engine,
        slot_bytes: usize,
        first: u64,
        maker: Maker<T>,
        finisher: Option<Finisher<T>>,
    ) -> Result<Feed<T>, TrainError> {
        let fault = self.fault.map(|fault| fault.feed_fault(engine));
        let (uploader, batch_maker) = (engine.uploader(self.upload)?, BatchMaker { maker, finisher, fault });
        match self.depth {
            Some(depth) => Feed::ahead(name, uploader, slot_bytes, depth, first, batch_maker),
            None => {
                let slot = Some(uploader.slot(slot_bytes)?);
                let mode = Mode::Blocking { batch_maker, uploader, slot };
                Ok(Feed { mode, next: first, meter: Meter::new() })
            }
        }
    }
}
