//! Batches made on the caller's thread, one at a time, without loader threads.

use crate::error::TrainError;
use crate::feed::{BatchCost, Maker};
use myxtts_data::batch::{BatchInfo, Collator, Plan};
use myxtts_data::loader::{HostSlab, LoaderError, Options, Slab};
use myxtts_data::record::RecordSource;
use std::sync::Arc;

/// Makes each batch of a plan when it is requested; `fill` converts it from its bytes and description. A batch that cannot
/// be made ends it. Bad records are replaced as usual, but not counted: this is for measuring, not for training.
pub fn sync_maker<T: 'static>(
    source: Arc<dyn RecordSource>,
    batches: &Arc<Plan>,
    options: &Options,
    mut fill: impl FnMut(&[u8], &BatchInfo, &mut [u8], &mut BatchCost) -> Result<(usize, T), TrainError>
    + Send
    + 'static,
) -> Result<Maker<T>, TrainError> {
    let collator = Collator::new(source, batches.clone(), options.rank, options.ranks)?;
    let mut slab = HostSlab::new(collator.slab_bytes());
    Ok(Box::new(move |number, into, made| {
        let info = collator.collate(number, slab.bytes()).map_err(|error| LoaderError::Batch {
            thread: "the caller's thread".to_owned(),
            source: Box::new(error),
        })?;
        made.awaited = info.took;
        let filled = fill(&slab.bytes()[..info.layout.bytes()], &info, into, made);
        made.reading = info.reading.saturating_sub(info.computing);
        made.computing = info.computing;
        made.collating = info.took.saturating_sub(info.reading);
        filled
    }))
}
