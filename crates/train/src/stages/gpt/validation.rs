//! Validation of the GPT: losses, accuracy, and how much the text helps.

use super::{GptStage, Phase};
use crate::error::TrainError;
use crate::feed::Feed;
use crate::stages::{TEXT_GAIN, Validation};
use myxtts_data::batch::Plan as Batches;
use myxtts_data::loader::Options as LoaderOptions;
use myxtts_tensor::Control;
use myxtts_tensor::engine::Upload;
use std::sync::Arc;

/// The score by which the best GPT is chosen; lower is better. With little speech the loss rises early, because the GPT
/// becomes overconfident, while it still learns to read: its top-1 accuracy increases, which determines what is spoken.
fn score(loss: f64, accuracy: f64) -> f64 {
    (1.0 - accuracy) + 0.01 * loss
}

/// The result of a pass over validation batches: means over the targets, and the numbers of right codes and of all codes.
#[derive(Default)]
struct Pass {
    text: f64,
    codes: f64,
    correct: f64,
    count: f64,
    acoustic: f64,
    is_shuffled: bool,
}

impl GptStage {
    /// Measures the validation batches; `None` if there are none.
    pub(super) fn measure_validation(&mut self) -> Result<Option<Validation>, TrainError> {
        let Some(batches) = self.held_out.clone() else { return Ok(None) };
        let right = self.run_batches(&batches, false)?;
        let sum = |passes: &[Pass], of: fn(&Pass) -> f64| passes.iter().map(of).sum::<f64>();
        let counted = sum(&right, |pass| pass.count);
        if counted == 0.0 {
            return Ok(None);
        }
        let codes = sum(&right, |pass| pass.codes * pass.count) / counted;
        let text = sum(&right, |pass| pass.text * pass.count) / counted;
        let accuracy = sum(&right, |pass| pass.correct) / counted;
        let mut numbers = vec![("codes", codes), ("text", text), ("accuracy", accuracy)];
        if self.settings.regularization.acoustic_weight > 0.0 {
            numbers.push(("acoustic", sum(&right, |pass| pass.acoustic * pass.count) / counted));
        }
        // The same batches with exchanged texts; batches where that is not possible are left out of the difference.
        let wrong = self.run_batches(&batches, true)?;
        let pairs = || right.iter().zip(&wrong).filter(|(_, wrong)| wrong.is_shuffled);
        let compared: f64 = pairs().map(|(right, _)| right.count).sum();
        if compared > 0.0 {
            let lost = pairs().map(|(right, wrong)| (wrong.codes - right.codes) * right.count);
            numbers.push((TEXT_GAIN, lost.sum::<f64>() / compared));
        }
        Ok(Some(Validation { score: score(codes, accuracy), loss: codes, numbers }))
    }

    /// Passes validation batches through the network, each row with its own text or with another row's.
    fn run_batches(&mut self, batches: &Arc<Batches>, shuffle_texts: bool) -> Result<Vec<Pass>, TrainError> {
        let count = batches.batches_per_epoch();
        let budget = self.settings.feeding.failures;
        let options = LoaderOptions { until: Some(count), budget, ..LoaderOptions::default() };
        let mut filler = self.filler.clone();
        filler.shuffle_texts = shuffle_texts;
        let maker = filler.maker(self.source.clone(), batches, 0, options)?;
        let (uploader, bytes) =
            (self.engine.uploader(Upload::WithStep)?, self.filler.slot_bytes(batches, 1)?);
        let mut feed = Feed::blocking(uploader, bytes, 0, maker)?;
        let mut passes = Vec::new();
        for _ in 0..count {
            let mut fed = feed.next_batch()?;
            let is_shuffled = fed.what.is_shuffled;
            if is_shuffled == shuffle_texts {
                let queued = self.run(&mut fed, Phase::Validate, &Control::default())?;
                let report = self.engine.wait(queued.ticket)?;
                let [text, codes, correct, count, acoustic] =
                    [0, 1, 2, 3, 6].map(|i| f64::from(report.notes[i]));
                passes.push(Pass { text, codes, correct, count, acoustic, is_shuffled });
            } else {
                passes.push(Pass { is_shuffled, ..Pass::default() });
            }
            feed.give_back(fed.slot);
        }
        Ok(passes)
    }
}
