//! The memory that a decoder stage would need, before there is a stage: no device is opened.

use super::step::{ProgramKind, build};
use super::{DecoderSettings, Networks, options};
use crate::error::TrainError;
use crate::replica_slice::Replicas;
use crate::stages::forecast::{replicas_of, with_programs};
use myxtts_run::plan::Recipe;
use myxtts_tensor::Tape;
use myxtts_tensor::engine::Forecast;

/// The speakers that a decoder stage would train on.
#[derive(Clone, Copy, Debug)]
pub struct Speakers {
    /// Whether the model has a speaker encoder, which is then not trained.
    pub known: bool,
    /// Number of speakers in the corpus.
    pub count: usize,
}

/// Bytes of all replicas of the stage, including waiting batches.
pub fn planned(
    settings: &DecoderSettings,
    recipe: &Recipe,
    replicas: Replicas,
    speakers: Speakers,
) -> Result<u64, TrainError> {
    let machine = replicas.machine;
    let (slice, count) = replicas_of(settings.rows, replicas.count);
    let (networks, layout, _) = Networks::declare(settings, recipe, speakers.known, speakers.count);
    let forecast = Forecast::new(machine.device, &layout, machine.precision, &options(settings, recipe));
    let (mut tapes, mut batch) = (Vec::new(), 0);
    for what in [ProgramKind::Adversarial, ProgramKind::Plain, ProgramKind::Measured] {
        let empty = Tape::new(layout.clone(), machine.precision);
        let built = build(empty, settings, recipe, networks.parts(), what, &slice)?;
        if what == ProgramKind::Plain {
            batch = built.inputs.image.bytes();
        }
        tapes.push(built.tape);
    }
    let waiting = settings.feeding.depth.map_or(1, |depth| depth.slots(batch));
    let need = with_programs(&forecast, &tapes).saturating_add(batch.saturating_mul(waiting) as u64);
    Ok(need.saturating_mul(count as u64))
}
