//! The batches of a stage without building the stage: to inspect them, and to test that both agree.

use crate::align::Alignments;
use crate::bad_records::BadRecords;
use crate::error::TrainError;
use crate::job_control::JobControl;
use crate::low_data::{self, Begin, Facts};
use crate::overlay::WithCodes;
use crate::replica_slice::Replicas;
use crate::sizes::Sizes;
use crate::stage_settings::{dvae_settings, gpt_rows, gpt_settings};
use crate::stages::gpt::{AugmentedRow, AugmentedRows, ConditioningKind, GptSettings, step_builder};
use crate::stages::{RecordSplit, StageKind, dvae};
use myxtts_data::batch::Plan as Batches;
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::plan::{Plan, Recipe};
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
    /// Settings and records of the GPT; `None` for the DVAE.
    gpt: Option<(GptSettings, Arc<WithCodes>)>,
    augmented: Option<AugmentedRows>,
}

impl Preview {
    /// The batches of a stage under a plan, on one device or split over several, before augmentation.
    ///
    /// # Errors
    ///
    /// If no batch can be planned, and for the decoder stage, whose batches depend on the states of a trained GPT.
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
                Ok(Preview { source, train, validation, of_step: 1, gpt: None, augmented: None })
            }
            StageKind::Gpt => {
                let mel = crate::overlay::position(&*source, DVAE_MEL);
                let codes = |record| vec![0; sizes.dvae.codes_of(source.rows(record, mel) as usize)];
                let codes = (0..source.len()).map(codes).collect();
                let coded = Arc::new(WithCodes::new(source, codes));
                let settings = GptSettings { rows: gpt_rows(plan, replicas), ..gpt_settings(plan, &sizes) };
                let (train, validation) =
                    step_builder::batches(&settings, &*coded, (&*coded, ConditioningKind::Mels), split)?;
                Ok(Preview {
                    source: coded.clone(),
                    train,
                    validation,
                    of_step: settings.accumulate.max(1),
                    gpt: Some((settings, coded)),
                    augmented: None,
                })
            }
            StageKind::Decoder => Err(TrainError::NoPreview),
        }
    }

    /// Augments the GPT's training batches as a stage of this recipe does. `train` are the training records, and `tokenizer`
    /// is the vocabulary they were prepared with. Returns a note on what cannot be shown without a vocabulary.
    ///
    /// # Errors
    ///
    /// If more records than `data.failure_budget` allows cannot be read, or the work was stopped.
    pub fn augment(
        &mut self,
        recipe: &Recipe,
        tokenizer: Option<&Tokenizer>,
        train: &[u32],
        JobControl { progress, stop }: JobControl<'_>,
    ) -> Result<Option<String>, TrainError> {
        let Some((settings, source)) = &mut self.gpt else { return Ok(None) };
        let (own, rate) = (&mut settings.regularization, settings.feeding.failures.rate);
        let mut not_shown = None;
        match tokenizer {
            Some(tokenizer) => {
                own.space = tokenizer.space_id();
                if own.needs_alignments() {
                    progress.start("alignment of text and codes", 1);
                    let mut bad = BadRecords::new("alignment", rate, train.len());
                    let codes_of = |record| source.codes(record as usize).len();
                    let aligned = Alignments::of(&**source, train, tokenizer, &codes_of, &mut bad, stop);
                    progress.finish();
                    own.alignments = Some(Arc::new(aligned?));
                }
            }
            None if own.recombination > 0.0 => {
                not_shown = Some(format!(
                    "training joins segments of several clips in {:.0} % of the rows (training.recombination): that is not \
                     shown, because the vocabulary of this corpus is not known",
                    100.0 * own.recombination
                ));
            }
            None => {}
        }
        let batches = recipe.steps * self.of_step;
        self.augmented = AugmentedRows::new(settings, source, &self.train, train, batches)?;
        Ok(not_shown)
    }

    /// The rows of a training batch after [`Preview::augment`], in the order of the batch; `None` where nothing is augmented.
    ///
    /// # Errors
    ///
    /// If the batch cannot be made from these records.
    pub fn augmented(&self, number: u64) -> Result<Option<Vec<AugmentedRow>>, TrainError> {
        self.augmented.as_ref().map(|rows| rows.of(number)).transpose()
    }
}

/// Chooses settings left unset as a run on these training records does, where there is little speech; `from_model` says
/// whether it begins with a model. A note on that; `None` where nothing was chosen.
pub fn choose_settings(
    plan: &mut Plan,
    source: &dyn RecordSource,
    train: &[u32],
    from_model: bool,
) -> Option<String> {
    let facts = Facts::of_records(source, train);
    let begin = if from_model { Begin::WithGpt } else { Begin::FromNothing };
    let chosen = low_data::choose(plan, &facts, begin);
    (!chosen.is_empty()).then(|| {
        format!(
            "{:.1} hours of training clips: settings left unset are those that training chooses below {} hours",
            facts.hours,
            low_data::LITTLE_SPEECH_HOURS
        )
    })
}
