//! How a feed is set up: threads, slots, and when batches are copied.

use super::{Feed, Finisher, Maker, Making, Meter, Way};
use crate::error::TrainError;
use crate::fault::Fault;
use myxtts_data::loader::{FailureBudget, Options};
use myxtts_tensor::Engine;
use myxtts_tensor::engine::Upload;

/// Bytes of batches that may wait on a device: a share nobody misses.
const WAITING: usize = 1 << 30;

/// As many as `data.prefetch_buffer_size` has by default.
const DEFAULT_SLOTS: usize = 12;

/// How far ahead batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Slots to begin with.
    pub least: usize,
    /// Slots at most.
    pub most: usize,
    /// Bytes of all slots at most.
    pub bytes: usize,
}

impl Depth {
    /// At most so many slots, and a few of them to begin with.
    pub fn of(most: usize) -> Depth {
        Depth { least: most.min(4), most: most.max(2), bytes: WAITING }
    }

    /// Slots at most, of so many bytes each. One is in use while another is filled: fewer than two would take turns.
    pub fn slots(&self, bytes: usize) -> usize {
        self.most.min(self.bytes / bytes.max(1)).max(2)
    }
}

/// How batches come to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feeding {
    /// Threads that read records.
    pub workers: usize,
    /// When batches are copied.
    pub upload: Upload,
    /// How far ahead they are made; none makes each when it is asked for.
    pub depth: Option<Depth>,
    /// Batches under way at once, from the plan to the step: those beyond the slots wait in RAM. There are always two for
    /// each thread, or it would stand still.
    pub under_way: usize,
    /// How many bad records are borne while they are read.
    pub failures: FailureBudget,
    /// What is wrong with it, where something shall be.
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
    /// How records are read. Where batches are made when they are asked for, no thread may be ahead with them either.
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

    /// As `start`, with batches that are finished on another device.
    pub fn start_with<T: Send + 'static>(
        &self,
        name: &str,
        engine: &Engine,
        slot_bytes: usize,
        first: u64,
        maker: Maker<T>,
        finisher: Option<Finisher<T>>,
    ) -> Result<Feed<T>, TrainError> {
        let planted = self.planted.map(|fault| fault.on_the_way(engine));
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
