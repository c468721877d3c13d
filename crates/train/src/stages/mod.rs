//! The stages, in the order a model is made: [`dvae`] (sound to codes) -> [`gpt`] (text to codes) -> [`decoder`] (states
//! to sound). The text's vocabulary, the stage before them, is made when a corpus is
//! prepared: it is kept beside the corpus, and every run on it is cut by the same.

pub mod clips;
pub mod codes;
pub mod decoder;
pub mod dvae;
mod forecast;
pub mod gpt;
pub mod latent_file;
pub mod latents;
mod prompts;

use crate::error::TrainError;
use crate::feed::Measured;
use crate::model::Model;
use myxtts_data::batch::{Plan as Batches, Reason};
pub use myxtts_run::plan::StageKind;
use myxtts_tensor::engine::{OpTime, Ticket};
use myxtts_tensor::{Control, Engine, ParameterId, Report};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// In which order clips come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipOrder {
    /// Another one each epoch; else by length and number, the same every time.
    pub shuffled: bool,
    /// The largest batch of every length comes before all others. Only where there are several lengths.
    pub worst_first: bool,
}

impl Default for ClipOrder {
    fn default() -> Self {
        ClipOrder { shuffled: true, worst_first: false }
    }
}

impl ClipOrder {
    /// The same for a plan of batches.
    fn order(self) -> myxtts_data::batch::Order {
        match self.shuffled {
            true => myxtts_data::batch::Order::Shuffled,
            false => myxtts_data::batch::Order::Fixed,
        }
    }
}

/// The records of a run by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct RecordSplit<'a> {
    /// Records to train on.
    pub train: &'a [u32],
    /// Records of the validation set; may be empty.
    pub validation: &'a [u32],
}

/// A step that was queued.
#[derive(Debug)]
pub struct Submitted {
    /// Its report, to be asked for.
    pub ticket: Ticket,
    /// Rows of the batch that hold a record.
    pub rows: u64,
    /// Every record in it, also those that a voice was only heard by: any of them may be what made the step a bad one.
    pub records: Vec<u32>,
    /// Rows, places of text and places of sound: steps of one shape take one time.
    pub shape: [usize; 3],
    /// How long the batch was waited for.
    pub waited: Duration,
    /// What its feed measured when it was taken.
    pub fed: Measured,
    /// What those who make batches have to say: a bad clip, a thread that was replaced. Usually empty.
    pub notes: Vec<String>,
}

/// The name of the number that says how much worse the codes of held-out clips are guessed with the texts of other clips, in
/// nats: near zero where the model ignores the text.
pub const TEXT_GAIN: &str = "text_gain";

/// What a pass over held-out records found.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// Lower is better: what the best checkpoint is chosen by.
    pub score: f64,
    /// The loss, which says whether what is learnt is learnt by heart.
    pub loss: f64,
    /// Everything measured, by name.
    pub numbers: Vec<(&'static str, f64)>,
}

/// The network of a stage and the data it learns from: the part of a stage that is the same on one device and on several.
pub trait StageCore {
    /// The stage it is.
    fn kind(&self) -> StageKind;

    /// Lines for the user about what is trained: sizes, batches, memory.
    fn described(&self) -> Vec<String>;

    /// The weights and their device.
    fn engine(&self) -> &Engine;

    /// The weights and their device.
    fn engine_mut(&mut self) -> &mut Engine;

    /// The numbers of a step's report by name, without the loss.
    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)>;

    /// Whether [`Stage::between`] has work to do before step `step`.
    fn due(&self, _step: u64) -> bool {
        false
    }

    /// A number for what is optimised after `step` steps. Only scores of the same objective can be compared; the scores of a
    /// later one replace those of an earlier one.
    fn objective(&self, _step: u64) -> u64 {
        0
    }

    /// Whether the model takes the moving average of a parameter, where averages are kept.
    fn is_averaged(&self, _parameter: ParameterId) -> bool {
        true
    }

    /// Steps of an epoch.
    fn epoch_steps(&self) -> u64;

    /// The id of a record.
    fn clip(&self, record: u32) -> String;

    /// The position in the data before step `step`. A resumed run compares it with the one it was saved with.
    fn position(&self, step: u64) -> Value;

    /// Copies the trained part into the model.
    fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError>;
}

/// Runs the steps of a stage, on one device or on several. Every method is a pure function of the stage's weights, its data
/// and its arguments: otherwise a resumed run would differ from one that was not interrupted.
///
/// A type that wraps a stage returns the core of that stage and forwards the methods that do not have the default.
pub trait Stage {
    /// The network and the data.
    fn core(&self) -> &dyn StageCore;

    /// The network and the data.
    fn core_mut(&mut self) -> &mut dyn StageCore;

    /// Lines for the user about what is trained and where.
    fn description(&self) -> Vec<String> {
        self.core().described()
    }

    /// Queues step `step` on its own batch.
    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError>;

    /// Queues the step of the last batch of this shape again, on the inputs that are still on the device: the step alone,
    /// with nothing fed. `None` where there was no such batch, or where the stage does not support it.
    fn replay(&mut self, _shape: [usize; 3], _control: &Control) -> Result<Option<Ticket>, TrainError> {
        Ok(None)
    }

    /// Runs the step of the last batch of this shape again, operation by operation, each timed on the device. Empty where
    /// there was no such batch, or where the stage does not support it.
    fn profile(&mut self, _shape: [usize; 3], _control: &Control) -> Result<Vec<OpTime>, TrainError> {
        Ok(Vec::new())
    }

    /// Waits for the report of a queued step.
    fn wait(&mut self, ticket: Ticket) -> Result<Report, TrainError> {
        Ok(self.core_mut().engine_mut().wait(ticket)?)
    }

    /// Whether the weights are still those of the last whole step after [`Stage::submit`] found no batch.
    fn outlives_failures(&self) -> bool {
        true
    }

    /// Called after the engine's arenas were restored from a checkpoint: copies of them have to follow.
    fn restored(&mut self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Work between steps; called before step `step`, with nothing queued where [`StageCore::due`] returned `true`.
    fn between(&mut self, _step: u64) -> Result<(), TrainError> {
        Ok(())
    }

    /// Measures the validation records; `None` where there are none.
    fn validate(&mut self) -> Result<Option<Validation>, TrainError>;

    /// Checks that the replicas in other processes hold the same weights. A sentence that says so, or an error where they do
    /// not; `None` in a run of one process.
    fn verify(&mut self) -> Result<Option<String>, TrainError> {
        Ok(None)
    }

    /// Time that steps have waited so far while gradients were summed over processes; `None` in a run of one process.
    fn communication(&self) -> Option<Duration> {
        None
    }
}

/// The core's methods, for callers of any stage.
impl dyn Stage + '_ {
    /// The stage it is.
    pub fn kind(&self) -> StageKind {
        self.core().kind()
    }

    /// The weights and their device.
    pub fn engine(&self) -> &Engine {
        self.core().engine()
    }

    /// The weights and their device.
    pub fn engine_mut(&mut self) -> &mut Engine {
        self.core_mut().engine_mut()
    }

    /// See [`StageCore::numbers`].
    pub fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        self.core().numbers(report)
    }

    /// See [`StageCore::due`].
    pub fn due(&self, step: u64) -> bool {
        self.core().due(step)
    }

    /// See [`StageCore::objective`].
    pub fn objective(&self, step: u64) -> u64 {
        self.core().objective(step)
    }

    /// See [`StageCore::is_averaged`].
    pub fn is_averaged(&self, parameter: ParameterId) -> bool {
        self.core().is_averaged(parameter)
    }

    /// Steps of an epoch.
    pub fn epoch_steps(&self) -> u64 {
        self.core().epoch_steps()
    }

    /// The id of a record.
    pub fn clip(&self, record: u32) -> String {
        self.core().clip(record)
    }

    /// See [`StageCore::position`].
    pub fn position(&self, step: u64) -> Value {
        self.core().position(step)
    }

    /// Copies the trained part into the model.
    pub fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError> {
        self.core().finish(model, average)
    }
}

/// Each record that is named once, in the order they come; numbers below zero are none.
fn clips(lists: &[&[i32]]) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    for &record in lists.iter().copied().flatten() {
        if let Ok(record) = u32::try_from(record)
            && !all.contains(&record)
        {
            all.push(record);
        }
    }
    all
}

/// Names to print: a few of them, and how many more there are.
fn named(clips: &[String]) -> String {
    const NAMED: usize = 20;
    match clips.len().checked_sub(NAMED) {
        None | Some(0) => clips.join(", "),
        Some(more) => format!("{} and {more} more", clips[..NAMED].join(", ")),
    }
}

/// A line on the records that batches leave out; `unit` is what their length is counted in.
fn left_out(batches: &Batches, unit: &str, id: impl Fn(u32) -> String) -> Option<String> {
    let first = batches.excluded().first()?;
    let why = match first.reason {
        Reason::NoFrames => format!("it has no {unit}"),
        Reason::TooManyFrames { frames, limit } => format!("{frames} {unit}, {limit} is the most"),
        reason => reason.to_string(),
    };
    let count = batches.excluded().len();
    Some(format!("{count} clips are left out, such as {}: {why}", id(first.record)))
}

/// Between two pieces of what is made before a stage: goes on, unless it is asked to stop.
pub(crate) fn check_stop(stop: &AtomicBool) -> Result<(), TrainError> {
    if stop.load(Ordering::Relaxed) { Err(TrainError::Interrupted) } else { Ok(()) }
}

/// Refuses a program that would take an engine over the memory it may use, before any of it is taken. `batch` is the
/// setting that makes it smaller.
pub(crate) fn within(
    engine: &Engine,
    tape: &myxtts_tensor::Tape,
    (stage, batch): (&'static str, &'static str),
    limit: Option<u64>,
) -> Result<(), TrainError> {
    let Some(limit) = limit else { return Ok(()) };
    let need = engine.need_with(&engine.plan_of(tape)).total() + engine.driver_bytes()?;
    if need as u64 > limit {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        return Err(TrainError::DeviceMemory(format!(
            "the stage `{stage}` needs {:.2} GiB, and training.memory_limit is {:.2} GiB: lower {batch}, or raise the limit",
            gib(need as u64),
            gib(limit)
        )));
    }
    Ok(())
}

/// The average of the weights begins as the weights.
fn start_average(engine: &mut Engine, kept: bool) -> Result<(), TrainError> {
    if kept {
        let weights = engine.read_arena(myxtts_tensor::engine::Arena::Weights)?;
        let trained = engine.layout().trained_len();
        engine.write_arena(myxtts_tensor::engine::Arena::Average, &weights[..trained])?;
    }
    Ok(())
}

/// How a stage says that batches are balanced, behind its clips.
fn balanced(batches: &myxtts_data::batch::Plan) -> String {
    match batches.repeated() {
        0 => String::new(),
        more => format!(" and {more} repeats for balance"),
    }
}

/// The name of a stage on the command line and in files.
pub fn name(kind: StageKind) -> &'static str {
    match kind {
        StageKind::Dvae => "dvae",
        StageKind::Gpt => "gpt",
        StageKind::Decoder => "decoder",
    }
}
