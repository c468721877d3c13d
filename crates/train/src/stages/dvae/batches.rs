//! The batches of windows that the DVAE trains and validates on.

use super::DvaeSettings;
use super::token_targets::MEL_WITH_TOKEN;
use crate::error::TrainError;
use crate::stages::RecordSplit;
use myxtts_data::batch::{Order, Part, Plan as Batches, Rows, Settings, Tail};
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_run::seed::Seed;

/// Batch settings of the training windows.
pub(super) fn learning(settings: &DvaeSettings) -> Settings {
    Settings {
        seed: Seed::new(settings.seed).derive("dvae"),
        rows: Rows::Fixed(settings.rows),
        order: settings.order.order(),
        buckets: 1,
        length: DVAE_MEL,
        balance: settings.balance,
        parts: vec![Part::window(DVAE_MEL, settings.frames)],
        ..Settings::default()
    }
}

/// Training batches and validation batches.
pub(crate) fn batches(
    settings: &DvaeSettings,
    source: &dyn RecordSource,
    RecordSplit { train, validation }: RecordSplit<'_>,
) -> Result<(Batches, Option<Batches>), TrainError> {
    let batches = learning(settings);
    let mut learnt = batches.clone();
    if source.columns().contains(&MEL_WITH_TOKEN) {
        let silence = learnt.parts[0].pad;
        learnt.parts = vec![Part { pad: silence, ..Part::window(MEL_WITH_TOKEN, settings.frames) }];
    }
    let plan = Batches::new(source, train.iter().copied(), learnt)?;
    if validation.is_empty() {
        return Ok((plan, None));
    }
    let settings = Settings { tail: Tail::Short, order: Order::Fixed, balance: 1.0, ..batches };
    Ok((plan, Some(Batches::new(source, validation.iter().copied(), settings)?)))
}
