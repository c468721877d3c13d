//! The loop of a stage: steps ahead of their reports, guards, validation, checkpoints, and the way back to the last one.

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
use myxtts_tensor::engine::Ticket;
use pace::Pace;
use saved::restore;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps that may be queued on a GPU before the report of the first is waited for.
pub const AHEAD: usize = 3;
/// Steps whose losses are looked at for a spike, and how many spikes in a row are a new level.
const SPIKE_WINDOW: usize = 100;
const SPIKE_PATIENCE: u32 = 20;
/// Steps a trend is taken over.
const TREND_WINDOW: usize = 50;
/// Everything a run writes to.
pub struct Session<'a> {
    /// Its folder.
    pub folder: &'a RunFolder,
    /// Its settings.
    pub plan: &'a Plan,
    /// Checkpoints.
    pub store: CheckpointStore,
    /// What happened.
    pub events: EventLog,
    /// Curves.
    pub board: TensorBoard,
    /// Raised when the run is to stop.
    pub stop: Arc<AtomicBool>,
    /// Receives the progress of stages and steps.
    pub progress: &'a dyn Progress,
    /// Who listens to spoken samples; none without a recogniser, and none once it has failed.
    pub listener: Option<Listener>,
}

/// Where a run is: the steps done of the current stage, and all steps of the stages before it.
#[derive(Clone, Copy)]
struct RunPosition {
    step: u64,
    before: u64,
}

impl RunPosition {
    /// The step among all steps of the run, by which curves are plotted.
    fn total(self) -> u64 {
        self.before + self.step
    }
}

struct InFlightStep {
    step: u64,
    ticket: Ticket,
    rows: u64,
    records: Vec<u32>,
    shape: [usize; 3],
    rate: f64,
    control: Control,
}

/// A stage that has ended. It holds the weights that its model is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageOutcome {
    /// How.
    pub ended: StageEnd,
    /// Steps that were done.
    pub steps: u64,
    /// The validation whose weights were kept; none where nothing was validated, and the last weights are kept.
    pub chosen: Option<BestValidation>,
}

/// How a stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageEnd {
    /// All its steps are done.
    Done,
    /// Validation has not become better for too long.
    Early,
}

/// A stage that is under way.
struct Running {
    guards: Guards,
    in_flight: VecDeque<InFlightStep>,
    pace: Pace,
    /// The step that comes next.
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
    /// The newest whole checkpoint of a stage, if the run has one. Damaged ones are named and passed over.
    pub fn last_of(&mut self, stage: &'static str) -> Result<Option<OpenCheckpoint>, TrainError> {
        let latest = self.store.latest_valid()?;
        for damaged in &latest.damaged {
            self.progress.say(&format!("passed over: {damaged}"));
        }
        let Some(checkpoint) = latest.checkpoint else { return Ok(None) };
        if checkpoint.meta["stage"] != stage {
            return Ok(None);
        }
        Ok(Some(self.store.load(&checkpoint.name())?))
    }

    /// Trains a stage to its end, from its beginning or from a checkpoint. `before` are the steps of the stages before it,
    /// `samples` what is spoken on the way.
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
        let from = match last {
            Some(last) => {
                let step = restore(stage, &last, &mut guards)?;
                // What they allow may have been changed since.
                guards.bad.set_limits(training.bad_steps_in_a_row, training.bad_step_budget);
                guards.spikes.set_limit(training.spike_limit);
                guards.held_out.early.set_patience(patience);
                step
            }
            None => 0,
        };
        let described = stage.description();
        self.progress.stage(name, from, recipe.steps, &described);
        if let Some(why) = stops_early.filter(|_| from == 0) {
            self.progress.say(&format!("{name}: {why}"));
        }
        self.events.append_durably(
            "stage",
            json!({ "stage": name, "from": from, "steps": recipe.steps, "described": described }),
        )?;
        // A run that ended between the last checkpoint of a stage and the model made of it.
        let spent = guards.held_out.early.is_spent();
        let pace = Pace::new(Instant::now(), (stage.engine().busy(), stage.communication()));
        let (began, summed) = (Instant::now(), stage.communication());
        let mut state = Running { guards, in_flight: VecDeque::new(), pace, next: from, saved: from };
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
            let waited = stage.communication().zip(summed).map(|(all, before)| all.saturating_sub(before));
            self.verified(name, &same, waited, reached - from, began.elapsed())?;
        }
        let chosen = guards.held_out.choose(stage)?;
        if let Some(BestValidation { step, score, .. }) = chosen {
            self.progress.say(&format!(
                "`{name}` keeps the weights of step {step} of {reached}: the best on held-out clips ({score:.4})"
            ));
        }
        if let Some(samples) = samples {
            // What was chosen lies in the weights now, averages and all.
            self.sample(stage, false, samples, RunPosition { step: reached, before });
        }
        self.progress.stage_end();
        let end = json!({ "stage": name, "ended": format!("{ended:?}"), "steps": reached,
                          "chosen_step": chosen.map(|chosen| chosen.step), "score": chosen.map(|chosen| chosen.score) });
        self.events.append_durably("stage_end", end)?;
        self.board.sync()?;
        Ok(StageOutcome { ended, steps: reached, chosen })
    }

    /// Says that all ranks agree, and what of the stage's time its steps stood still while gradients were summed.
    fn verified(
        &mut self,
        name: &'static str,
        same: &str,
        waited: Option<Duration>,
        steps: u64,
        took: Duration,
    ) -> Result<(), TrainError> {
        let seconds = waited.map(|waited| waited.as_secs_f64());
        let share = seconds.map(|seconds| seconds / took.as_secs_f64().max(1e-9));
        let told = match seconds.zip(share).filter(|_| steps > 0) {
            None => String::new(),
            Some((seconds, share)) => format!(
                "; steps stood still {:.1} ms each while gradients were summed, {:.1} % of the time",
                1e3 * seconds / steps as f64,
                100.0 * share
            ),
        };
        self.progress.say(&format!("{name}: {same}{told}"));
        let event = json!({ "stage": name, "same": same, "steps": steps, "seconds": took.as_secs_f64(),
                            "communication_seconds": seconds, "communication": share });
        Ok(self.events.append_durably("ranks", event)?)
    }

    /// Does the steps that are left. Where it ends by an error, steps may still be under way.
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
        let ahead = match stage.engine().cuda() {
            // What is found wrong with a step must not be said of another.
            Some(_) if self.plan.data.optimize_cpu_gpu_overlap && !training.enable_eager_debug => AHEAD,
            _ => 0,
        };
        let Running { guards, in_flight, pace, next, saved } = state;
        let mut ended = StageEnd::Done;
        for step in *next..recipe.steps {
            if stage.due(step) {
                self.drain(stage, in_flight, 0, guards, pace, before)?;
                stage.between(step)?;
            }
            let rate = recipe.schedule.at(step);
            let control = Control {
                rate: rate as f32,
                weight: 1.0,
                clip: recipe.clip.unwrap_or(0.0) as f32,
                // Early on the average follows faster: it would else stay near the beginning for too long.
                average: recipe.ema_decay.unwrap_or(0.0).min((1 + step) as f64 / (10 + step) as f64) as f32,
                seed: seed.at(step),
            };
            let queued = match stage.submit(step, &control) {
                Err(error) if error.is_of_batches() && stage.outlives_failures() && step > *saved => {
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
            let (ticket, rows, records, shape) = (queued.ticket, queued.rows, queued.records, queued.shape);
            in_flight.push_back(InFlightStep { step, ticket, rows, records, shape, rate, control });
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
            // Before the checkpoint: a run that goes on from it has this behind it. The end is spoken below.
            if let Some(samples) = samples
                && every(training.sample_every)
                && done < recipe.steps
                && ended == StageEnd::Done
            {
                self.drain(stage, in_flight, 0, guards, pace, before)?;
                pace.pause();
                self.sample(stage, average, samples, RunPosition { step: done, before });
            }
            let stop = self.stop.load(Ordering::Relaxed);
            if every(training.checkpoint_every) || done == recipe.steps || stop || ended == StageEnd::Early {
                self.drain(stage, in_flight, 0, guards, pace, before)?;
                pace.pause();
                // Weights that only give bad steps are nothing to go back to.
                if !guards.bad.is_bad_now() || done == recipe.steps || stop || ended == StageEnd::Early {
                    self.save(stage, done, before, guards, score)?;
                    *saved = done;
                }
            }
            // At its end a stage is finished first; whoever runs the stages stops before the next.
            if stop && done < recipe.steps && ended == StageEnd::Done {
                self.progress.stage_end();
                let run = self.folder.name().to_owned();
                return Err(TrainError::Stopped { stage: name, step: done, run });
            }
            if ended == StageEnd::Early {
                self.progress.say(&format!(
                    "validation has not become better for too long: `{name}` ends at step {done}"
                ));
                break;
            }
        }
        Ok(ended)
    }

    /// After too many bad steps: back to the last checkpoint of the stage, once, and from which step it goes on. Where the cause
    /// lies in the data or the settings, the same happens again and the run ends; where a device went wrong for a moment, it
    /// goes on. None where gradients exploded again and the stage ends with its best weights, which they have not touched.
    fn rollback(
        &mut self,
        stage: &mut dyn Stage,
        error: TrainError,
        returned_to: Option<u64>,
        state: &mut Running,
    ) -> Result<Option<u64>, TrainError> {
        let name = stages::name(stage.kind());
        let training = &self.plan.training;
        for one in state.in_flight.drain(..) {
            stage.wait(one.ticket)?;
        }
        let Some(last) = self.last_of(name)? else { return Err(error) };
        let step = restore(stage, &last, &mut state.guards)?;
        if returned_to == Some(step) {
            let best = state.guards.held_out.best.as_ref().map(|best| best.chosen.step);
            let (TrainError::BadSteps { exploded: true, .. }, Some(best)) = (&error, best) else {
                return Err(error);
            };
            self.progress.say(&format!(
                "{error}\n`{name}` ends here with the weights of step {best}, the best on held-out clips so far; a lower \
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
            "{error}\n`{name}` goes back to its last checkpoint and goes on from step {step}; should the same happen again, the run ends"
        ));
        self.events
            .append_durably("returned", json!({ "stage": name, "step": step, "error": error.to_string() }))?;
        Ok(Some(step))
    }

    /// Takes reports in order until no more than `keep` steps are under way.
    fn drain(
        &mut self,
        stage: &mut dyn Stage,
        in_flight: &mut VecDeque<InFlightStep>,
        keep: usize,
        guards: &mut Guards,
        pace: &mut Pace,
        before: u64,
    ) -> Result<(), TrainError> {
        while in_flight.len() > keep
            && let Some(one) = in_flight.pop_front()
        {
            let report = stage.wait(one.ticket)?;
            pace.step(Instant::now(), one.rows, (stage.engine().busy(), stage.communication()));
            self.reported(stage, &one, &report, guards, pace, before)?;
        }
        Ok(())
    }

    /// Saves what was learnt before batches stopped coming, if its last reports are good. What is said of it stands before
    /// the error that ends the run.
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
                "no batch for step {} of `{name}`: step {step} is saved; when the cause below is gone, `myxtts train \
                 --resume {}` goes on from there",
                step + 1,
                self.folder.name()
            )),
            Err(error) => self.progress.say(&format!("step {step} of `{name}` could not be saved: {error}")),
        }
    }
}
