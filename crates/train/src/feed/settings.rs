//! How a feed is set up: threads, slots, and when batches are copied.

use super::{Feed, Finisher, Maker, Making, Meter, Way};
use crate::error::TrainError;
use crate::fault::Fault;
use myxtts_data::loader::{FailureBudget, Options};
use myxtts_tensor::Engine;
use myxtts_tensor::engine::Upload;

/// Maximum bytes of batches that wait on a device: a small share of its memory.
const WAITING: usize = 1 << 30;

/// The default of `data.prefetch_buffer_size`.
const DEFAULT_SLOTS: usize = 12;

/// How far ahead batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Initial number of slots.
    pub least: usize,
    /// Maximum number of slots.
    pub most: usize,
    /// Maximum bytes of all slots.
    pub bytes: usize,
}

impl Depth {
    /// At most `most` slots, and a few of them initially.
    pub fn of(most: usize) -> Depth {
        Depth { least: most.min(4), most: most.max(2), bytes: WAITING }
    }

    /// Maximum number of slots of `bytes` bytes each, at least 2: one is in use while another is filled.
    pub fn slots(&self, bytes: usize) -> usize {
        self.most.min(self.bytes / bytes.max(1)).max(2)
    }
}

/// How batches get to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feeding {
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
    pub planted: Option<&'static Fault>,
}

impl Default for Feeding {
    fn default() -> Self {
        Feeding {
            workers: 1,
            upload: Upload::Ahead,
            depth: Some(Depth::of(DEFAULT_SLOTS)),
            under_way: 0,
            failures: FailureBudget::default(),
            planted: None,
        }
    }
}

impl Feeding {
    /// Loader options. If batches are made on request, loader threads must not work ahead either.
    pub fn loading(&self) -> Options {
        let workers = self.workers.max(1);
        let depth = self.depth.map_or(0, |depth| self.under_way.saturating_sub(depth.most).max(2 * workers));
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
        let planted = self.planted.map(|fault| fault.feed_fault(engine));
        let (uploader, making) = (engine.uploader(self.upload)?, Making { maker, finisher, planted });
        match self.depth {
            Some(depth) => Feed::ahead(name, uploader, slot_bytes, depth, first, making),
            None => {
                let slot = Some(uploader.slot(slot_bytes)?);
                let way = Way::Blocking { making, uploader, slot };
                Ok(Feed { way, next: first, meter: Meter::new() })
            }
        }
    }
}
