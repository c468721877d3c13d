//! Makes batches from a plan's records, on loader threads or on request, and measures the time that takes.

use super::sync_maker::sync_maker;
use crate::error::TrainError;
use myxtts_data::batch::{BatchInfo, Plan};
use myxtts_data::loader::{HostSlab, Loader, Options};
use myxtts_data::record::RecordSource;
use myxtts_tensor::engine::{Slot, Uploader};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum bytes of batches that wait in RAM before they are copied.
const MAX_RAM_BYTES: usize = 2 << 30;

/// Time and bytes that a batch took. Used only to find bottlenecks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCost {
    /// Index of the loader thread that assembled it.
    pub worker: usize,
    /// Time to read its records, on the loader thread.
    pub reading: Duration,
    /// Time to decode audio and compute features, if records are computed on demand, on the loader thread.
    pub computing: Duration,
    /// Remaining time to assemble it, on the loader thread.
    pub collating: Duration,
    /// Time the feed's thread waited for the loader, or did its work.
    pub awaited: Duration,
    /// Remaining time until the copy starts, on the feed's thread: converting it to a program's inputs. Measured by the
    /// feed.
    pub filling: Duration,
    /// Time the feed's thread was blocked by a copy still in progress.
    pub blocked: Duration,
    /// Time to start the copy: queueing it from page-locked memory, or the whole copy from pageable memory.
    pub sending: Duration,
    /// Whether the copy started in pageable memory.
    pub pageable: bool,
    /// Bytes of the batch.
    pub bytes: usize,
}

/// Makes batch `number` into a buffer; returns the number of bytes and the description that the loop needs. Fills in the
/// times it knows.
pub type Maker<T> = Box<dyn FnMut(u64, &mut [u8], &mut BatchCost) -> Result<(usize, T), TrainError> + Send>;

/// Adds to a batch what another device computes from it, and starts the copy of its bytes.
pub type Finisher<T> = Box<dyn FnMut(&Uploader, &mut Slot, usize, &mut T) -> Result<(), TrainError> + Send>;

/// Makes the batches of a plan in their order, from batch `first` on. `fill` converts each from its bytes and description,
/// and records the time it was blocked. Batches are made ahead of time on threads, or on request if `options` have a
/// depth of 0.
pub(crate) fn maker_of<T: 'static>(
    source: Arc<dyn RecordSource>,
    batches: &Arc<Plan>,
    first: u64,
    options: Options,
    mut fill: impl FnMut(&[u8], &BatchInfo, &mut [u8], &mut BatchCost) -> Result<(usize, T), TrainError>
    + Send
    + 'static,
) -> Result<Maker<T>, TrainError> {
    if options.depth == 0 {
        return sync_maker(source, batches, &options, fill);
    }
    let bytes = batches.slab_bytes(options.ranks)?;
    let options = Options {
        depth: options.depth.min(MAX_RAM_BYTES / bytes.max(1)).max(2 * options.workers),
        ..options
    };
    let slabs = HostSlab::pool(options.depth + 2, bytes);
    let mut loader = Loader::start(source, batches.clone(), &batches.state(first), options, slabs)?;
    Ok(Box::new(move |_, into, made| {
        let start = Instant::now();
        let mut batch = match loader.next() {
            Some(batch) => batch?,
            None => return Err(TrainError::Internal("the batches ended before the steps did".into())),
        };
        let info = batch.info().clone();
        made.awaited = start.elapsed();
        let filled = fill(batch.bytes(), &info, into, made);
        made.worker = info.worker;
        made.reading = info.reading.saturating_sub(info.computing);
        made.computing = info.computing;
        made.collating = info.took.saturating_sub(info.reading);
        filled
    }))
}

/// The bytes of a field of a batch. Panics if the stage's settings did not declare the field.
pub fn field<'a>(bytes: &'a [u8], info: &BatchInfo, name: &str) -> &'a [u8] {
    let field = info.layout.field(name).unwrap_or_else(|| panic!("a batch has no field {name}"));
    &bytes[field.offset..field.offset + field.bytes]
}
