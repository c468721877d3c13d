//! The memory that a DVAE stage would need, before there is a stage: no device is opened.

use super::step::build;
use super::{DvaeSettings, network, options};
use crate::error::TrainError;
use crate::replica_slice::Replicas;
use crate::stages::forecast::{replicas_of, with_programs};
use myxtts_run::plan::Recipe;
use myxtts_tensor::Tape;
use myxtts_tensor::engine::Forecast;

/// Bytes of all replicas of the stage, including waiting batches. Of `settings.token_targets` only the classifier counts,
/// not the alignments.
pub fn planned(settings: &DvaeSettings, recipe: &Recipe, replicas: Replicas) -> Result<u64, TrainError> {
    let machine = replicas.machine;
    let (slice, count) = replicas_of(settings.rows as usize, replicas.count);
    let (dvae, layout, _) = network(settings, recipe);
    let forecast = Forecast::new(machine.device, &layout, machine.precision, &options(settings, recipe));
    let program = |train| {
        let empty = Tape::new(layout.clone(), machine.precision);
        build(empty, &dvae, settings, recipe, train)
    };
    let (step, measure) = (program(Some(&slice))?, program(None)?);
    let batch = step.image.bytes() as u64;
    let loading = settings.feeding.loading();
    let waiting = settings.feeding.depth.map_or(1, |depth| depth.slots(batch as usize)) + loading.depth;
    let programs = with_programs(&forecast, &[step.tape, measure.tape]);
    Ok(programs.saturating_add(batch.saturating_mul(waiting as u64)).saturating_mul(count as u64))
}
