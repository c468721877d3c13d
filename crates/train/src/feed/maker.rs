//! Who makes batches: of a plan's records, on the loader's threads or when they are asked for, noting what it took.

use super::sync_maker::sync_maker;
use crate::error::TrainError;
use myxtts_data::batch::{BatchInfo, Plan};
use myxtts_data::loader::{HostSlab, Loader, Options};
use myxtts_data::record::RecordSource;
use myxtts_tensor::engine::{Slot, Uploader};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of batches that may wait in RAM before they are copied.
const IN_RAM: usize = 2 << 30;

/// What went into a batch, for whoever looks for a bottleneck. Nobody else reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The loader's thread that put it together.
    pub worker: usize,
    /// Reading its records, on that thread.
    pub reading: Duration,
    /// Decoding and features, where records are computed as they are read, on that thread.
    pub computing: Duration,
    /// The rest of putting it together, on that thread.
    pub collating: Duration,
    /// The feed's thread waited for the loader's, or did their work.
    pub awaited: Duration,
    /// All else until it is sent, on the feed's thread: making it a program's inputs. The feed itself measures it.
    pub filling: Duration,
    /// The feed's thread stood still for a copy that was still under way.
    pub blocked: Duration,
    /// Sending it on its way: queueing the copy where that is page-locked, all of the copy where it is not.
    pub sending: Duration,
    /// Whether that started in memory that is not page-locked.
    pub pageable: bool,
    /// Its bytes.
    pub bytes: usize,
}

/// Makes batch `number` into bytes: how many, and what the loop has to know of it. It notes what it took where it knows.
pub type Maker<T> = Box<dyn FnMut(u64, &mut [u8], &mut Made) -> Result<(usize, T), TrainError> + Send>;

/// Adds to a batch what another device makes of it, and sends it on its way, of so many bytes.
pub type Finisher<T> = Box<dyn FnMut(&Uploader, &mut Slot, usize, &mut T) -> Result<(), TrainError> + Send>;

/// Makes the batches of a plan in their order, from batch `first` on, each by `fill` of its bytes and what it is: ahead of
/// time on threads, or each when it is asked for where `options` have a depth of 0. `fill` notes where it stood still.
pub fn maker_of<T: 'static>(
    source: Arc<dyn RecordSource>,
    batches: &Arc<Plan>,
    first: u64,
    options: Options,
    mut fill: impl FnMut(&[u8], &BatchInfo, &mut [u8], &mut Made) -> Result<(usize, T), TrainError>
    + Send
    + 'static,
) -> Result<Maker<T>, TrainError> {
    if options.depth == 0 {
        return sync_maker(source, batches, &options, fill);
    }
    let bytes = batches.slab_bytes(options.ranks)?;
    let options =
        Options { depth: options.depth.min(IN_RAM / bytes.max(1)).max(2 * options.workers), ..options };
    let slabs = HostSlab::pool(options.depth + 2, bytes);
    let mut loader = Loader::start(source, batches.clone(), &batches.state(first), options, slabs)?;
    Ok(Box::new(move |_, into, made| {
        let asked = Instant::now();
        let mut batch = match loader.next() {
            Some(batch) => batch?,
            None => return Err(TrainError::Internal("the batches ended before the steps did".into())),
        };
        let info = batch.info().clone();
        made.awaited = asked.elapsed();
        let filled = fill(batch.bytes(), &info, into, made);
        made.worker = info.worker;
        made.reading = info.reading.saturating_sub(info.computing);
        made.computing = info.computing;
        made.collating = info.took.saturating_sub(info.reading);
        filled
    }))
}

/// The bytes of a field of a batch; a stage asks for none that its own settings did not make.
pub fn field<'a>(bytes: &'a [u8], info: &BatchInfo, name: &str) -> &'a [u8] {
    let field = info.layout.field(name).unwrap_or_else(|| panic!("a batch has no field {name}"));
    &bytes[field.offset..field.offset + field.bytes]
}
