//! The batches of a stage without building the stage: to inspect them, and to test that both agree.

use crate::error::TrainError;
use crate::overlay::WithCodes;
use crate::replica_slice::Replicas;
use crate::sizes::Sizes;
use crate::stage_settings::{dvae_settings, gpt_rows, gpt_settings};
use crate::stages::gpt::GptSettings;
use crate::stages::gpt::{ConditioningKind, step_builder};
use crate::stages::{RecordSplit, StageKind, dvae};
use myxtts_data::batch::Plan as Batches;
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_run::plan::Plan;
use std::sync::Arc;

/// The batches of a stage, and their records.
pub struct Preview {
    /// The records. For the GPT they have the right number of codes, all of them 0.
    pub source: Arc<dyn RecordSource>,
    /// Training batches.
    pub train: Batches,
    /// Validation batches; `None` if the validation set is empty.
    pub validation: Option<Batches>,
    /// Batches per optimiser step.
    pub of_step: u64,
}

impl Preview {
    /// The batches of a stage under a plan, on one device or split over several.
    ///
    /// # Errors
    ///
    /// If no batch can be planned, and for the decoder stage, which samples windows and has no planned batches.
    pub fn new(
        kind: StageKind,
        plan: &Plan,
        Replicas { machine, count: replicas }: Replicas,
        source: Arc<dyn RecordSource>,
        split: RecordSplit<'_>,
    ) -> Result<Preview, TrainError> {
        let sizes = Sizes::without_vocabulary(plan, machine);
        match kind {
            StageKind::Dvae => {
                let (train, validation) = dvae::batches(&dvae_settings(plan, &sizes), &*source, split)?;
                Ok(Preview { source, train, validation, of_step: 1 })
            }
            StageKind::Gpt => {
                let mel = crate::overlay::position(&*source, DVAE_MEL);
                let codes = |record| vec![0; sizes.dvae.codes_of(source.rows(record, mel) as usize)];
                let codes = (0..source.len()).map(codes).collect();
                let source: Arc<dyn RecordSource> = Arc::new(WithCodes::new(source, codes));
                let settings = GptSettings { rows: gpt_rows(plan, replicas), ..gpt_settings(plan, &sizes) };
                let (train, validation) =
                    step_builder::batches(&settings, &*source, (&*source, ConditioningKind::Mels), split)?;
                Ok(Preview { source, train, validation, of_step: settings.accumulate.max(1) })
            }
            StageKind::Decoder => Err(TrainError::NoPreview),
        }
    }
}
