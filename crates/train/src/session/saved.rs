//! Saves a stage to a checkpoint and restores it.

use super::best::BestValidation;
use super::{Guards, Session};
use crate::error::TrainError;
use crate::stages::{self, Stage};
use myxtts_run::checkpoint::{OpenCheckpoint, RetentionPolicy};
use myxtts_run::guard::{BadStepGuard, EarlyStop, SpikeDetector, TrainingAdvisor};
use myxtts_run::loss_trend::LossTrend;
use myxtts_tensor::engine::{Arena, EngineState};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Metadata of a checkpoint, in addition to the arenas.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Saved {
    stage: String,
    step: u64,
    engine_steps: u64,
    layout: String,
    position: serde_json::Value,
    bad: BadStepGuard,
    spikes: SpikeDetector,
    early: EarlyStop,
    trend: LossTrend,
    #[serde(default)]
    advice: TrainingAdvisor,
    /// The best validation so far. Its weights are a separate blob, unless it is of this very step.
    #[serde(default)]
    best: Option<BestValidation>,
}

impl Session<'_> {
    /// Saves a stage after `step` of its steps.
    pub(super) fn save(
        &mut self,
        stage: &dyn Stage,
        step: u64,
        before: u64,
        guards: &Guards,
        score: Option<f64>,
    ) -> Result<(), TrainError> {
        let engine = stage.engine();
        let name = stages::name(stage.kind());
        let saved = Saved {
            stage: name.to_owned(),
            step,
            engine_steps: engine.state()?.steps,
            layout: layout_hash(stage),
            position: stage.position(step),
            bad: guards.bad.clone(),
            spikes: guards.spikes.clone(),
            early: guards.held_out.early.clone(),
            trend: guards.trend.clone(),
            advice: guards.held_out.advice.clone(),
            best: guards.held_out.best.as_ref().map(|best| best.chosen),
        };
        let mut saving = self.store.begin(before + step)?;
        for (name, arena) in arenas(stage) {
            saving.blob(name, bytemuck::cast_slice(&engine.read_arena(arena)?))?;
        }
        guards.held_out.save(&mut saving, step)?;
        let meta = serde_json::to_value(&saved).map_err(|error| TrainError::Internal(error.to_string()))?;
        if let Some((name, table)) = engine.cuda().and_then(|cuda| cuda.choices()) {
            // Without them, a run that is resumed elsewhere would round differently.
            self.folder.keep_algorithms(&name, &table)?;
        }
        let checkpoint = saving.commit(score, meta)?;
        let training = &self.plan.training;
        self.store.prune(RetentionPolicy { newest: training.keep_checkpoints, best: training.keep_best })?;
        let event = json!({ "stage": name, "step": step, "checkpoint": checkpoint.name(), "score": score });
        Ok(self.events.append_durably("checkpoint", event)?)
    }
}

/// The arenas of an engine that a checkpoint contains.
fn arenas(stage: &dyn Stage) -> Vec<(&'static str, Arena)> {
    let mut arenas =
        vec![("weights", Arena::Weights), ("moment1", Arena::Moment1), ("moment2", Arena::Moment2)];
    if stage.engine().holds(Arena::Average) {
        arenas.push(("average", Arena::Average));
    }
    arenas
}

/// Hash of names, shapes and offsets of all parameters: an arena with another layout has other weights.
fn layout_hash(stage: &dyn Stage) -> String {
    let mut hasher = blake3::Hasher::new();
    for (_, parameter) in stage.engine().layout().parameters() {
        hasher.update(format!("{} {} {}\n", parameter.name, parameter.shape, parameter.offset).as_bytes());
    }
    hasher.finalize().to_string()
}

/// Restores a stage from a checkpoint, and returns the number of completed steps.
pub(super) fn restore(
    stage: &mut dyn Stage,
    last: &OpenCheckpoint,
    guards: &mut Guards,
) -> Result<u64, TrainError> {
    let name = last.checkpoint.name();
    let foreign = |why: String| TrainError::Foreign { name: name.clone(), why };
    let saved: Saved = serde_json::from_value(last.checkpoint.meta.clone())
        .map_err(|error| foreign(format!("its metadata cannot be read: {error}")))?;
    if saved.layout != layout_hash(stage) {
        return Err(foreign(
            "its network has other sizes; resume with the settings that the run began with".into(),
        ));
    }
    if saved.position != stage.position(saved.step) {
        return Err(foreign("the corpus or the batches differ from those that the run began with".into()));
    }
    for (blob, arena) in arenas(stage) {
        let len = stage.engine().read_arena(arena)?.len();
        let mut data = vec![0f32; len];
        last.read_into(blob, bytemuck::cast_slice_mut(&mut data))?;
        stage.engine_mut().write_arena(arena, &data)?;
    }
    stage.engine_mut().set_state(EngineState { steps: saved.engine_steps })?;
    stage.restored()?;
    guards.held_out.restore(stage, last, saved.step, saved.best)?;
    (guards.held_out.early, guards.held_out.advice) = (saved.early, saved.advice);
    (guards.bad, guards.spikes, guards.trend) = (saved.bad, saved.spikes, saved.trend);
    Ok(saved.step)
}
