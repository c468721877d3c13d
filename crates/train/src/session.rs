//! The training loop of a stage: steps queued ahead of their reports, guards, validation, checkpoints, and rollback to the
//! last one.

mod bad_step;
mod best;
mod pace;
mod reports;
mod sampling;
mod saved;

use crate::error::TrainError;
use crate::evaluate::listener::Listener;
use crate::samples::Samples;
use crate::stages::{self, Stage};
use crate::step_queue::{Clocks, StepQueue, control};
pub use best::BestValidation;
use best::ValidationState;
use myxtts_run::checkpoint::{CheckpointStore, OpenCheckpoint};
use myxtts_run::events::EventLog;
use myxtts_run::folder::RunFolder;
use myxtts_run::guard::{BadStepGuard, SpikeDetector};
use myxtts_run::loss_trend::LossTrend;
use myxtts_run::plan::{Plan, Recipe};
use myxtts_run::progress::Progress;
use myxtts_run::seed::Seed;
use myxtts_run::tensorboard::TensorBoard;
use myxtts_tensor::Control;
use pace::Pace;
use saved::restore;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Steps that may be queued on a GPU before the report of the first is waited for.
pub const AHEAD: usize = 3;

/// The number of steps that a run queues before it waits for the report of the first: none on a CPU, which computes a step when
/// it is queued.
pub fn steps_ahead(plan: &Plan, on_gpu: bool) -> usize {
    // With eager debugging, a fault found in one step must not be attributed to another.
    let overlaps = plan.data.optimize_cpu_gpu_overlap && !plan.training.enable_eager_debug;
    if on_gpu && overlaps { AHEAD } else { 0 }
}

/// Number of losses that a spike is compared with, and number of consecutive spikes that count as a new level.
const SPIKE_WINDOW: usize = 100;
const SPIKE_PATIENCE: u32 = 20;
/// Number of steps that a trend is computed over.
const TREND_WINDOW: usize = 50;
/// Time limit of a checkpoint in a run of several processes: after that, the disk is considered hanging.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(3600);
/// Everything a run writes to.
pub struct Session<'a> {
    /// The run folder.
    pub folder: &'a RunFolder,
    /// Settings of the run.
    pub plan: &'a Plan,
    /// Checkpoints of the run.
    pub store: CheckpointStore,
    /// Event log of the run.
    pub events: EventLog,
    /// TensorBoard curves.
    pub board: TensorBoard,
    /// When true, the run stops after the current step.
    pub stop: Arc<AtomicBool>,
    /// Receives the progress of stages and steps.
    pub progress: &'a dyn Progress,
    /// The speech recogniser that checks spoken samples; `None` without one, and after it has failed.
    pub listener: Option<Listener>,
    /// Whether it was already reported that recordings of samples cannot be read.
    unread_reported: bool,
}

/// Position of a run: completed steps of the current stage, and all steps of the stages before it.
#[derive(Clone, Copy)]
struct RunPosition {
    step: u64,
    before: u64,
}

impl RunPosition {
    /// The step counted over all stages; the x axis of all curves.
    fn total(self) -> u64 {
        self.before + self.step
    }
}

struct InFlightStep {
    step: u64,
    rows: u64,
    records: Vec<u32>,
    shape: [usize; 3],
    rate: f64,
    control: Control,
}

/// The outcome of a stage. The stage now holds the weights that become part of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageOutcome {
    /// Why it ended.
    pub ended: StageEnd,
    /// Completed steps.
    pub steps: u64,
    /// The validation whose weights were kept; `None` if there was no validation and the last weights are kept.
    pub chosen: Option<BestValidation>,
}

/// Why a stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageEnd {
    /// All its steps are done.
    Done,
    /// Validation did not improve for too long.
    Early,
}

/// State of a running stage.
struct Running {
    guards: Guards,
    in_flight: StepQueue<InFlightStep>,
    pace: Pace,
    /// The next step.
    next: u64,
    /// The step of the last checkpoint.
    saved: u64,
}

struct Guards {
    bad: BadStepGuard,
    spikes: SpikeDetector,
    trend: LossTrend,
    held_out: ValidationState,
}

impl<'a> Session<'a> {
    /// Opens what a run writes to, in a folder that is open for writing; without a recogniser.
    pub fn open(
        folder: &'a RunFolder,
        plan: &'a Plan,
        stop: Arc<AtomicBool>,
        progress: &'a dyn Progress,
    ) -> Result<Session<'a>, TrainError> {
        let store = folder.checkpoint_store()?;
        let last = store.list()?.checkpoints.last().map(|checkpoint| checkpoint.step);
        let events = folder.event_log()?;
        // Steps up to the last checkpoint are not logged again.
        let board = folder.tensorboard(last.map(|step| step + 1))?;
        Ok(Session {
            folder,
            plan,
            store,
            events,
            board,
            stop,
            progress,
            listener: None,
            unread_reported: false,
        })
    }

    /// The newest intact checkpoint of a stage; `None` if the run has none. Damaged ones are reported and skipped.
    pub fn last_of(&mut self, stage: &'static str) -> Result<Option<OpenCheckpoint>, TrainError> {
        let latest = self.store.latest_valid()?;
        for damaged in &latest.damaged {
            self.progress.say(&format!("skipped a damaged checkpoint: {damaged}"));
        }
        let Some(checkpoint) = latest.checkpoint else { return Ok(None) };
        if checkpoint.meta["stage"] != stage {
            return Ok(None);
        }
        Ok(Some(self.store.load(&checkpoint.name())?))
    }

    /// Trains a stage to its end, from its beginning or from a checkpoint. `before` is the number of steps of the stages
    /// before it; `samples` are spoken during training.
    pub fn run(
        &mut self,
        stage: &mut dyn Stage,
        recipe: &Recipe,
        before: u64,
        last: Option<OpenCheckpoint>,
        samples: Option<&Samples<'_>>,
    ) -> Result<StageOutcome, TrainError> {
        let name = stages::name(stage.kind());
        let training = &self.plan.training;
        let validate_every = best::validate_every(training.validate_every, stage.epoch_steps());
        let (patience, stops_early) =
            best::early_stop(training.early_stop_patience, stage, recipe.steps, validate_every);
        let average = recipe.ema_decay.is_some();
        let mut guards = Guards {
            bad: BadStepGuard::new(training.bad_steps_in_a_row, training.bad_step_budget),
            spikes: SpikeDetector::new(SPIKE_WINDOW, training.spike_limit, SPIKE_PATIENCE),
            trend: LossTrend::new(TREND_WINDOW),
            held_out: ValidationState::new(patience, average),
        };
        let resumed_from = last.as_ref().map(|last| last.checkpoint.name());
        let from = match last {
            Some(last) => {
                let step = restore(stage, &last, &mut guards)?;
                // The user may have changed the limits since the checkpoint.
                guards.bad.set_limits(training.bad_steps_in_a_row, training.bad_step_budget);
                guards.spikes.set_limit(training.spike_limit);
                guards.held_out.early.set_patience(patience);
                step
            }
            None => 0,
        };
        let described = stage.description();
        self.progress.stage(name, from, recipe.steps, &described);
        if let Some(checkpoint) = resumed_from {
            self.progress.say(&format!("{name}: continues after step {from}, from checkpoint {checkpoint}"));
        }
        if let Some(why) = stops_early.filter(|_| from == 0) {
            self.progress.say(&format!("{name}: {why}"));
        }
        self.events.append_durably(
            "stage",
            json!({ "stage": name, "from": from, "steps": recipe.steps, "described": described }),
        )?;
        // The run ended between the last checkpoint of the stage and writing its model.
        let spent = guards.held_out.early.is_exhausted();
        let in_flight = StepQueue::start(stage);
        let began = in_flight.last_end();
        let mut state = Running { guards, in_flight, pace: Pace::new(began), next: from, saved: from };
        let mut ended = StageEnd::Early;
        if !spent {
            let mut returned_to = None;
            ended = loop {
                match self.steps(stage, recipe, before, samples, &mut state) {
                    Err(error @ TrainError::BadSteps { .. }) => {
                        match self.rollback(stage, error, returned_to, &mut state)? {
                            Some(step) => returned_to = Some(step),
                            None => break StageEnd::Early,
                        }
                    }
                    ended => break ended?,
                }
            };
        }
        let (reached, guards) = (state.next, state.guards);
        if let Some(same) = stage.verify()? {
            let now = Clocks::read(stage);
            let waited = now.summed.zip(began.summed).map(|(all, before)| all.saturating_sub(before));
            self.report_ranks(name, &same, waited, reached - from, now.at - began.at)?;
        }
        let chosen = guards.held_out.choose(stage)?;
        if let Some(BestValidation { step, score, .. }) = chosen {
            self.progress.say(&format!(
                "`{name}` keeps the weights of step {step} of {reached}: the best on the validation set (score {score:.4})"
            ));
        }
        if let Some(samples) = samples {
            // The stage holds the chosen weights now, averages included.
            self.sample(stage, false, samples, RunPosition { step: reached, before });
        }
        self.progress.stage_end();
        let end = json!({ "stage": name, "ended": format!("{ended:?}"), "steps": reached,
                          "chosen_step": chosen.map(|chosen| chosen.step), "score": chosen.map(|chosen| chosen.score) });
        self.events.append_durably("stage_end", end)?;
        self.board.sync()?;
        Ok(StageOutcome { ended, steps: reached, chosen })
    }

    /// Reports that all ranks agree, and the share of the stage's time that steps waited while gradients were summed.
    fn report_ranks(
        &mut self,
        name: &'static str,
        same: &str,
        waited: Option<Duration>,
        steps: u64,
        took: Duration,
    ) -> Result<(), TrainError> {
        let seconds = waited.map(|waited| waited.as_secs_f64());
        let share = seconds.map(|seconds| seconds / took.as_secs_f64().max(1e-9));
        let waits = match seconds.zip(share).filter(|_| steps > 0) {
            None => String::new(),
            Some((seconds, share)) => format!(
                "; each step waited {:.1} ms while gradients were summed, {:.1} % of the time",
                1e3 * seconds / steps as f64,
                100.0 * share
            ),
        };
        self.progress.say(&format!("{name}: {same}{waits}"));
        let event = json!({ "stage": name, "same": same, "steps": steps, "seconds": took.as_secs_f64(),
                            "communication_seconds": seconds, "communication": share });
        Ok(self.events.append_durably("ranks", event)?)
    }

    /// Runs the remaining steps. After an error, steps may still be in flight.
    fn steps(
        &mut self,
        stage: &mut dyn Stage,
        recipe: &Recipe,
        before: u64,
        samples: Option<&Samples<'_>>,
        state: &mut Running,
    ) -> Result<StageEnd, TrainError> {
        let name = stages::name(stage.kind());
        let training = &self.plan.training;
        let validate_every = best::validate_every(training.validate_every, stage.epoch_steps());
        let average = recipe.ema_decay.is_some();
        let seed = Seed::new(training.seed).derive(name);
        let ahead = steps_ahead(self.plan, stage.engine().cuda().is_some());
        let Running { guards, in_flight, pace, next, saved } = state;
        let mut ended = StageEnd::Done;
        for step in *next..recipe.steps {
            if stage.due(step) {
                self.drain(stage, in_flight, 0, guards, pace, before)?;
                stage.between(step)?;
            }
            let rate = recipe.schedule.at(step);
            let control = control(recipe, step, seed.at(step));
            let queued = match stage.submit(step, &control) {
                Err(error) if error.is_batch_error() && stage.survives_missing_batch() && step > *saved => {
                    let drained = self.drain(stage, in_flight, 0, guards, pace, before);
                    self.save_and_say(drained, stage, step, before, guards);
                    return Err(error);
                }
                queued => queued?,
            };
            pace.wait(queued.waited);
            for note in &queued.notes {
                self.progress.say(&format!("note: {note}"));
                self.events.append("note", json!({ "step": before + step, "note": note }))?;
            }
            let (rows, records, shape) = (queued.rows, queued.records, queued.shape);
            in_flight.push(queued.ticket, InFlightStep { step, rows, records, shape, rate, control });
            self.drain(stage, in_flight, ahead, guards, pace, before)?;
            let done = step + 1;
            *next = done;
            let every = |n: u64| n > 0 && done.is_multiple_of(n);
            let mut score = None;
            if every(validate_every) || done == recipe.steps {
                self.drain(stage, in_flight, 0, guards, pace, before)?;
                pace.pause();
                let (at, loss) = (RunPosition { step: done, before }, guards.trend.mean());
                let (found, is_last) = self.validate(stage, &mut guards.held_out, at, loss)?;
                score = found;
                if is_last {
                    ended = StageEnd::Early;
                }
            }
            // Before the checkpoint, so that a resumed run does not repeat it. The samples at the end are spoken below.
            if let Some(samples) = samples
                && every(training.sample_every)
                && done < recipe.steps
                && ended == StageEnd::Done
            {
                self.drain(stage, in_flight, 0, guards, pace, before)?;
                pace.pause();
                stage.announce("spoken samples", None);
                self.sample(stage, average, samples, RunPosition { step: done, before });
            }
            let stop = self.stop.load(Ordering::Relaxed);
            if every(training.checkpoint_every) || done == recipe.steps || stop || ended == StageEnd::Early {
                self.drain(stage, in_flight, 0, guards, pace, before)?;
                pace.pause();
                // Weights that only give bad steps are not worth a checkpoint.
                if !guards.bad.last_was_bad() || done == recipe.steps || stop || ended == StageEnd::Early {
                    stage.announce("a checkpoint", Some(CHECKPOINT_TIMEOUT));
                    self.save(stage, done, before, guards, score)?;
                    *saved = done;
                }
            }
            // At its last step a stage is finished first; the caller stops before the next stage.
            if stop && done < recipe.steps && ended == StageEnd::Done {
                self.progress.stage_end();
                let run = self.folder.name().to_owned();
                return Err(TrainError::Stopped { stage: name, step: done, run });
            }
            if ended == StageEnd::Early {
                self.progress
                    .say(&format!("validation has not improved for too long: `{name}` ends at step {done}"));
                break;
            }
        }
        Ok(ended)
    }

    /// After too many bad steps: rolls back to the last checkpoint of the stage, once, and returns the step to continue
    /// from. If the cause is in the data or the settings, the same happens again and the run ends; after a temporary device
    /// fault, it continues. Returns `None` if gradients exploded again and the stage ends with its best weights, which
    /// they have not affected.
    fn rollback(
        &mut self,
        stage: &mut dyn Stage,
        error: TrainError,
        returned_to: Option<u64>,
        state: &mut Running,
    ) -> Result<Option<u64>, TrainError> {
        let name = stages::name(stage.kind());
        let training = &self.plan.training;
        state.in_flight.complete(0, stage)?;
        stage.announce("a return to the last checkpoint", None);
        let Some(last) = self.last_of(name)? else { return Err(error) };
        let step = restore(stage, &last, &mut state.guards)?;
        if returned_to == Some(step) {
            let best = state.guards.held_out.best.as_ref().map(|best| best.chosen.step);
            let (TrainError::BadSteps { exploded: true, .. }, Some(best)) = (&error, best) else {
                return Err(error);
            };
            self.progress.say(&format!(
                "{error}\n`{name}` ends here with the weights of step {best}, the best on the validation set so far; a lower \
                 --learning-rate may take it further"
            ));
            let event = json!({ "stage": name, "step": step, "best": best, "error": error.to_string() });
            self.events.append_durably("exploded_again", event)?;
            state.next = step;
            return Ok(None);
        }
        state.guards.bad.set_limits(training.bad_steps_in_a_row, training.bad_step_budget);
        (state.next, state.saved) = (step, step);
        state.pace.pause();
        self.progress.say(&format!(
            "{error}\n`{name}` rolls back to its last checkpoint and continues from step {step}; if the same happens again, the run ends"
        ));
        self.events
            .append_durably("returned", json!({ "stage": name, "step": step, "error": error.to_string() }))?;
        Ok(Some(step))
    }

    /// Processes reports in order until at most `keep` steps are in flight.
    fn drain(
        &mut self,
        stage: &mut dyn Stage,
        in_flight: &mut StepQueue<InFlightStep>,
        keep: usize,
        guards: &mut Guards,
        pace: &mut Pace,
        before: u64,
    ) -> Result<(), TrainError> {
        while let Some(completed) = in_flight.complete_next(keep, stage)? {
            pace.step(completed.end, completed.step.rows);
            self.reported(stage, &completed.step, &completed.report, guards, pace, before)?;
        }
        Ok(())
    }

    /// Saves the weights when batches stop coming, if the last reports are good. The message appears before the error that
    /// ends the run.
    fn save_and_say(
        &mut self,
        drained: Result<(), TrainError>,
        stage: &dyn Stage,
        step: u64,
        before: u64,
        guards: &Guards,
    ) {
        let name = stages::name(stage.kind());
        self.progress.stage_end();
        match drained.and_then(|()| self.save(stage, step, before, guards, None)) {
            Ok(()) => self.progress.say(&format!(
                "no batch for step {} of `{name}`: step {step} is saved; once the cause below is fixed, `myxtts train \
                 --resume {}` continues from there",
                step + 1,
                self.folder.name()
            )),
            Err(error) => self.progress.say(&format!("step {step} of `{name}` could not be saved: {error}")),
        }
    }
}
