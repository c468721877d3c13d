//! Validation and the best weights: the best weights of a stage are kept in memory and in every checkpoint, and become part
//! of the model.
//!
//! Validation measures the weights that would be kept: their averages if the stage keeps averages, else the weights
//! themselves. A new best is copied to host memory and not written to a file. Every checkpoint contains them, so that a
//! run that is killed resumes with the same best, or finds it again.

use super::{RunPosition, Session};
use crate::error::TrainError;
use crate::stages::{self, Stage, Validation};
use myxtts_run::checkpoint::{CheckpointWriter, OpenCheckpoint};
use myxtts_run::guard::{EarlyStop, StopVerdict, TrainingAdvisor};
use myxtts_tensor::engine::Arena;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The blob of a checkpoint with the best weights, if these are not the checkpoint's own.
const BLOB: &str = "best";
/// Minimum and maximum number of steps between validations, unless the user sets the number.
const INTERVAL_STEPS: (u64, u64) = (100, 500);
/// Between those limits, the interval is this number of epochs.
const INTERVAL_EPOCHS: u64 = 4;
/// A GPT that makes this many passes over its clips is likely to overfit.
const OVERFIT_EPOCHS: u64 = 20;
/// It then ends after this many validations without improvement, or this share of its steps, whichever is more: a loss that
/// has stopped falling may fall again when the learning rate does.
const PATIENCE: (u64, f64) = (10, 0.25);

/// The best validation of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestValidation {
    /// Completed steps of the stage.
    pub step: u64,
    /// Its score; lower is better.
    pub score: f64,
    /// The objective at that step; see [`Stage::objective`].
    #[serde(default)]
    pub objective: u64,
}

/// The best validation of a stage, with the weights that were measured.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    pub chosen: BestValidation,
    weights: Vec<f32>,
}

/// Steps between validations: the user's value, else a few epochs.
pub(crate) fn validate_every(said: Option<u64>, epoch_steps: u64) -> u64 {
    said.unwrap_or_else(|| (INTERVAL_EPOCHS * epoch_steps).clamp(INTERVAL_STEPS.0, INTERVAL_STEPS.1))
}

/// Patience of early stopping, and the reason if it is not set by the user.
pub(crate) fn early_stop(
    said: Option<u32>,
    stage: &dyn Stage,
    steps: u64,
    every: u64,
) -> (Option<u32>, Option<String>) {
    let epochs = steps / stage.epoch_steps().max(1);
    // The other stages train on windows of audio, and there are always more windows than clips.
    if said.is_some() || every == 0 || stage.kind() != stages::StageKind::Gpt || epochs < OVERFIT_EPOCHS {
        return (said, None);
    }
    let patience = PATIENCE.0.max((PATIENCE.1 * steps as f64 / every as f64).ceil() as u64);
    let patience = u32::try_from(patience).unwrap_or(u32::MAX);
    if steps / every <= u64::from(patience) {
        return (None, None);
    }
    let why = format!(
        "early stopping is on, because {epochs} passes over the same clips are likely to overfit: the stage ends after \
         {patience} validations ({} steps) without improvement; training.early_stop_patience sets another number",
        u64::from(patience) * every
    );
    (Some(patience), Some(why))
}

/// The weights that the model would take: averages if these are kept.
fn measured_weights(stage: &dyn Stage, average: bool) -> Result<Vec<f32>, TrainError> {
    let engine = stage.engine();
    let mut weights = engine.read_arena(Arena::Weights)?;
    if average {
        let averages = engine.read_arena(Arena::Average)?;
        for (id, parameter) in engine.layout().parameters() {
            let range = parameter.range();
            if range.end <= averages.len() && stage.is_averaged(id) {
                weights[range.clone()].copy_from_slice(&averages[range]);
            }
        }
    }
    Ok(weights)
}

/// Validates the weights that would be kept. The stage's own weights are unchanged when this returns.
fn validate(stage: &mut dyn Stage, average: bool) -> Result<Option<Validation>, TrainError> {
    if !average {
        return stage.validate();
    }
    let own = stage.engine().read_arena(Arena::Weights)?;
    let measured = measured_weights(stage, average)?;
    stage.engine_mut().write_arena(Arena::Weights, &measured)?;
    let found = stage.validate();
    stage.engine_mut().write_arena(Arena::Weights, &own)?;
    found
}

/// Results of the validations of a stage so far.
#[derive(Debug)]
pub(crate) struct ValidationState {
    pub best: Option<Best>,
    pub early: EarlyStop,
    pub advice: TrainingAdvisor,
    /// Whether the model takes averages of the weights.
    pub average: bool,
    /// The validation set is empty; known after the first attempt.
    is_empty: bool,
}

impl ValidationState {
    pub fn new(patience: Option<u32>, average: bool) -> ValidationState {
        let (early, advice) = (EarlyStop::new(patience, 0.0), TrainingAdvisor::default());
        ValidationState { best: None, early, advice, average, is_empty: false }
    }

    /// Writes the best weights to a checkpoint after `step` steps, unless they are the checkpoint's own.
    pub fn save(&self, saving: &mut CheckpointWriter<'_>, step: u64) -> Result<(), TrainError> {
        match &self.best {
            Some(best) if best.chosen.step != step => {
                Ok(saving.blob(BLOB, bytemuck::cast_slice(&best.weights))?)
            }
            _ => Ok(()),
        }
    }

    /// Reads the best weights from a checkpoint whose arenas the stage already holds.
    pub fn restore(
        &mut self,
        stage: &dyn Stage,
        last: &OpenCheckpoint,
        step: u64,
        chosen: Option<BestValidation>,
    ) -> Result<(), TrainError> {
        let Some(chosen) = chosen else { return Ok(()) };
        let mut weights = measured_weights(stage, self.average)?;
        if chosen.step != step {
            last.read_into(BLOB, bytemuck::cast_slice_mut(&mut weights))?;
        }
        self.best = Some(Best { chosen, weights });
        Ok(())
    }

    /// Puts the weights for the model into the stage: the best if there was a validation, else the last.
    pub fn choose(&self, stage: &mut dyn Stage) -> Result<Option<BestValidation>, TrainError> {
        match &self.best {
            Some(best) => stage.engine_mut().write_arena(Arena::Weights, &best.weights)?,
            None if self.average => {
                let weights = measured_weights(stage, true)?;
                stage.engine_mut().write_arena(Arena::Weights, &weights)?;
            }
            None => {}
        }
        Ok(self.best.as_ref().map(|best| best.chosen))
    }

    /// Compares a validation with those before it; returns whether it is the best, and whether the stage should end.
    fn observe(
        &mut self,
        stage: &dyn Stage,
        step: u64,
        found: &Validation,
    ) -> Result<(bool, StopVerdict), TrainError> {
        let objective = stage.objective(step);
        if self.best.as_ref().is_some_and(|best| best.chosen.objective != objective) {
            self.early.restart();
            self.advice.restart();
        }
        let verdict = self.early.observe(found.score);
        let is_better = found.score.is_finite()
            && self
                .best
                .as_ref()
                .is_none_or(|best| best.chosen.objective != objective || found.score < best.chosen.score);
        if is_better {
            let chosen = BestValidation { step, score: found.score, objective };
            self.best = Some(Best { chosen, weights: measured_weights(stage, self.average)? });
        }
        Ok((is_better, verdict))
    }
}

impl Session<'_> {
    /// Validates after `step` steps of the stage and reports the result. Returns the score, if there is one, and whether
    /// the stage should end. `training` is the mean of the last training losses.
    pub(super) fn validate(
        &mut self,
        stage: &mut dyn Stage,
        held_out: &mut ValidationState,
        at: RunPosition,
        training: Option<f64>,
    ) -> Result<(Option<f64>, bool), TrainError> {
        let step = at.step;
        if held_out.is_empty {
            return Ok((None, false));
        }
        let Some(found) = validate(stage, held_out.average)? else {
            held_out.is_empty = true;
            return Ok((None, false));
        };
        let (is_best, verdict) = held_out.observe(stage, step, &found)?;
        let name = stages::name(stage.kind());
        self.validated(name, at, &found, is_best)?;
        let gain = found.numbers.iter().find(|(what, _)| *what == stages::TEXT_GAIN).map(|(_, gain)| *gain);
        let kept_step = held_out.best.as_ref().map_or(step, |best| best.chosen.step);
        for advised in held_out.advice.observe((step, kept_step), found.loss, training, gain) {
            let words = advised.to_string();
            self.progress.say(&format!("`{name}`: {words}"));
            self.events.append("advice", json!({ "stage": name, "step": step, "advice": words }))?;
        }
        let score = Some(found.score).filter(|score| score.is_finite());
        Ok((score, verdict == StopVerdict::Stop))
    }

    fn validated(
        &mut self,
        name: &str,
        at: RunPosition,
        found: &Validation,
        is_best: bool,
    ) -> Result<(), TrainError> {
        let step = at.step;
        let mut words: Vec<String> = found.numbers.iter().map(|(what, x)| format!("{what} {x:.4}")).collect();
        if found.numbers.iter().all(|(_, x)| *x != found.score) {
            // What the best weights are chosen by, if it is none of these.
            words.push(format!("score {:.4}", found.score));
        }
        let best = if is_best { " (best so far)" } else { "" };
        self.progress.say(&format!("validation after step {step} of `{name}`: {}{best}", words.join(", ")));
        if !found.score.is_finite() {
            self.progress.say(
                "the score is NaN or Inf, so it is not used to choose a checkpoint: check the validation clips with `myxtts check`",
            );
        }
        for (what, x) in &found.numbers {
            self.board.scalar(&format!("{name}/held_out/{what}"), at.total(), *x as f32)?;
        }
        let numbers: serde_json::Map<_, _> =
            found.numbers.iter().map(|(what, x)| ((*what).to_owned(), json!(x))).collect();
        let event =
            json!({ "stage": name, "step": step, "score": found.score, "best": is_best, "numbers": numbers });
        Ok(self.events.append_durably("validation", event)?)
    }
}
