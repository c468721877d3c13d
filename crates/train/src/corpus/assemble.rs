//! Everything a run trains on, from its settings: corpora, vocabulary, records and split in one call.

use super::set::{IfLocked, OpenedSet};
use super::validation_set::{describe, split};
use super::{CorpusError, CorpusSet, RecordMode, SavedSplit, ValidationSet};
use crate::samples::{self, Sentence};
use crate::training_data::{Corpus, DataGpu, DataSide};
use myxtts_data::cache::AudioOverlay;
use myxtts_data::dataset::split::Split;
use myxtts_data::features::Extractor;
use myxtts_data::record::RecordSource;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_data::utterance::Utterance;
use myxtts_run::plan::Plan;
use myxtts_run::progress::Progress;
use myxtts_text::Cleaner;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options for [`assemble`](Assembly::assemble) beyond the settings.
#[derive(Default)]
pub struct Assembly<'a> {
    /// The vocabulary of the model that is fine-tuned.
    pub base: Option<&'a Tokenizer>,
    /// Where records come from; `None` follows the settings.
    pub records: Option<RecordMode>,
    /// The split of a resumed run; `None` chooses a new one.
    pub saved_split: Option<&'a SavedSplit>,
    /// A GPU that prepares batches. If set, the source also provides the waveform of every record.
    pub data_gpu: Option<DataGpu>,
}

/// A corpus that is ready to train on.
pub struct Assembled {
    /// Records, split and vocabulary.
    pub corpus: Corpus,
    /// The validation set, to be saved with the run.
    pub validation: ValidationSet,
    /// Description of the validation set, one line per entry.
    pub validation_lines: Vec<String>,
    /// The cleaner applied to the texts.
    pub cleaner: Cleaner,
    /// The folder for files that belong to all corpora, as [`CorpusSet::home`] names it.
    pub home: PathBuf,
}

impl Assembly<'_> {
    /// Reads the corpora of a plan, saves their vocabulary, opens their records and splits them.
    pub fn assemble(
        self,
        plan: &Plan,
        stop: &Arc<AtomicBool>,
        progress: &dyn Progress,
    ) -> Result<Assembled, CorpusError> {
        RecordMode::check_columns(&plan.data)?;
        let corpora = CorpusSet::read(&plan.data, progress)?;
        let setup = corpora.lock_vocabulary(&plan.data, self.base, IfLocked::Wait, stop, progress)?;
        progress.say(&setup.description());
        let cleaner = setup.cleaner();
        let data_side = match self.data_gpu {
            Some(gpu) => Some((gpu, AudioOverlay::audio_extractor(&setup.extractor)?)),
            None => None,
        };
        let mode = self.records.unwrap_or_else(|| RecordMode::from_plan(&plan.data));
        let OpenedSet { source, tokenizer, utterances, training } =
            corpora.open(mode, setup, &plan.data, stop, progress)?;
        let found = split(&utterances, training, plan, self.saved_split)?;
        let validation_lines = describe(&found, &utterances, plan);
        let validation = ValidationSet::from_split(&found, &utterances, plan);
        let sentences = sentences(&utterances, &found.split);
        let data_side = data_side
            .map(|(gpu, extractor)| with_waveforms(gpu, &source, utterances, extractor))
            .transpose()?;
        let numbers = |side: Vec<usize>| side.into_iter().map(|record| record as u32).collect();
        let corpus = Corpus {
            train: numbers(found.split.train),
            validation: numbers(found.split.validation),
            source,
            tokenizer,
            sentences,
            data_side,
        };
        Ok(Assembled { corpus, validation, validation_lines, cleaner, home: corpora.home(&plan.data) })
    }
}

/// Opens the corpora of a plan for a command that does not start a run.
pub fn open(plan: &Plan, stop: &Arc<AtomicBool>, progress: &dyn Progress) -> Result<Assembled, CorpusError> {
    Assembly::default().assemble(plan, stop, progress)
}

/// Adds the waveform of every record, for a GPU that prepares batches.
fn with_waveforms(
    gpu: DataGpu,
    source: &Arc<dyn RecordSource>,
    utterances: Vec<Utterance>,
    extractor: Extractor,
) -> Result<DataSide, CorpusError> {
    let waveforms = AudioOverlay::new(source.clone(), utterances, extractor).ok_or(CorpusError::Mismatch)?;
    let DataGpu { device, buffer_size, model_start_delay } = gpu;
    Ok(DataSide { device, waveforms: Arc::new(waveforms), buffer_size, model_start_delay })
}

/// Sentences of the validation set that are spoken during training and at its end.
fn sentences(utterances: &[Utterance], split: &Split) -> Vec<Sentence> {
    let validation: Vec<(u32, &Utterance)> =
        split.validation.iter().map(|&record| (record as u32, &utterances[record])).collect();
    let trained: Vec<&Utterance> = split.train.iter().map(|&record| &utterances[record]).collect();
    samples::choose(&validation, &trained, samples::SPOKEN)
}
