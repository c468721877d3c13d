//! The rows of training batches after augmentation, without building the stage.

use super::GptSettings;
use super::acoustic_targets::Segment;
use super::augment::{Augmenter, whole_rows};
use crate::error::TrainError;
use crate::feed::field;
use crate::overlay::WithCodes;
use crate::stages::prompts::prompts;
use myxtts_data::batch::{Collator, Plan as Batches};
use myxtts_data::loader::LoaderError;
use myxtts_model::Rows;
use std::ops::Range;
use std::sync::Arc;

/// A row of a training batch as the GPT gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AugmentedRow {
    /// The clip that was sampled.
    pub record: u32,
    /// Where its codes are from, in order: a clip, and a range of that clip's codes.
    pub segments: Vec<(u32, Range<usize>)>,
    /// Whether it is joined from segments, and not the whole clip.
    pub is_joined: bool,
    /// Token ids of its text, without padding.
    pub tokens: Vec<i32>,
    /// Whether its text was removed, except for the language.
    pub lost_text: bool,
    /// Number of its codes that are hidden from the model.
    pub hidden: usize,
}

/// Augments the batches of a plan as the stage does.
pub(crate) struct AugmentedRows {
    augmenter: Augmenter,
    collator: Collator,
    mask_id: i32,
}

impl AugmentedRows {
    /// For the training batches `batches` of a stage of `in_all` batches; `None` where nothing is augmented.
    pub fn new(
        settings: &GptSettings,
        source: &Arc<WithCodes>,
        batches: &Batches,
        train: &[u32],
        in_all: u64,
    ) -> Result<Option<AugmentedRows>, TrainError> {
        let Some(augmenter) = Augmenter::new(settings, source, train, (in_all, 0)) else { return Ok(None) };
        let collator = Collator::new(source.clone(), Arc::new(batches.clone()), 0, 1)?;
        Ok(Some(AugmentedRows { augmenter, collator, mask_id: settings.sizes.start_audio }))
    }

    /// The rows of batch `number` that hold a clip.
    pub fn of(&self, number: u64) -> Result<Vec<AugmentedRow>, TrainError> {
        let mut slab = vec![0; self.collator.slab_bytes()];
        let failed = |error| LoaderError::Batch { thread: "the preview".to_owned(), source: Box::new(error) };
        let info = self.collator.collate(number, &mut slab).map_err(failed)?;
        let ints = |name: &str| -> &[i32] { bytemuck::cast_slice(field(&slab, &info, name)) };
        let (records, prompts) = (ints("record"), prompts(&info));
        let rows = Rows {
            text: ints("tokens"),
            text_lengths: ints("tokens_rows"),
            codes: ints("codes"),
            code_lengths: ints("codes_rows"),
            prompts: &prompts,
        };
        let whole = whole_rows(records, rows.code_lengths);
        let augmented = self.augmenter.rows(number, records, &rows, &[]);
        let made = augmented.rows(&prompts);
        let width = made.text.len() / records.len().max(1);
        let hidden = self.hidden(number, records, made.code_lengths);
        let row = |row: usize| {
            let place = |Segment { record, codes }: &Segment| (*record, codes.clone());
            let tokens = &made.text[row * width..][..made.text_lengths[row].max(0) as usize];
            AugmentedRow {
                record: records[row] as u32,
                segments: augmented.segments()[row].iter().map(place).collect(),
                is_joined: augmented.segments()[row] != whole[row],
                tokens: tokens.to_vec(),
                lost_text: augmented.lost_text(row),
                hidden: hidden[row],
            }
        };
        Ok((0..info.rows_valid as usize).map(row).collect())
    }

    /// Number of hidden codes of each row, whatever the codes are.
    fn hidden(&self, number: u64, records: &[i32], code_lengths: &[i32]) -> Vec<usize> {
        let longest = code_lengths.iter().copied().max().unwrap_or(0).max(0) as usize;
        // START, then codes; what is hidden reads as START.
        let mut codes = vec![self.mask_id; records.len() * (1 + longest)];
        for (row, &length) in codes.chunks_exact_mut(1 + longest).zip(code_lengths) {
            row[1..=length.max(0) as usize].fill(0);
        }
        self.augmenter.mask(number, records, &mut codes);
        let rows = codes.chunks_exact(1 + longest).zip(code_lengths);
        rows.map(|(row, &length)| {
            row[1..=length.max(0) as usize].iter().filter(|&&code| code == self.mask_id).count()
        })
        .collect()
    }
}
