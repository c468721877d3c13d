//! The stages, in the order in which a model is trained: [`dvae`] (audio to codes) -> [`gpt`] (text to codes) -> [`decoder`]
//! (states to audio). The text vocabulary is trained before them, when a corpus is prepared: it is stored next to the
//! corpus, and every run on it uses the same one.

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
use myxtts_run::memory_size::memory_size;
pub use myxtts_run::plan::StageKind;
use myxtts_tensor::engine::{OpTime, Ticket};
use myxtts_tensor::{Control, Engine, ParameterId, Report};
use serde_json::Value;
use std::time::Duration;

/// The order of clips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipOrder {
    /// Whether each epoch has another order; else clips are ordered by length and index, the same every time.
    pub shuffled: bool,
    /// Whether the largest batch of every length comes first. Has no effect with a single length.
    pub worst_first: bool,
}

impl Default for ClipOrder {
    fn default() -> Self {
        ClipOrder { shuffled: true, worst_first: false }
    }
}

impl ClipOrder {
    /// The order for a plan of batches.
    fn order(self) -> myxtts_data::batch::Order {
        match self.shuffled {
            true => myxtts_data::batch::Order::Shuffled,
            false => myxtts_data::batch::Order::Fixed,
        }
    }
}

/// The records of a run, by index.
#[derive(Clone, Copy, Debug)]
pub struct RecordSplit<'a> {
    /// Records to train on.
    pub train: &'a [u32],
    /// Records of the validation set; may be empty.
    pub validation: &'a [u32],
}

/// A queued step.
#[derive(Debug)]
pub struct Submitted {
    /// Ticket to wait for its report.
    pub ticket: Ticket,
    /// Number of rows of the batch that hold a record.
    pub rows: u64,
    /// Every record in it, including those that only condition a voice: any of them may be the cause of a bad step.
    pub records: Vec<u32>,
    /// Rows, text positions and audio positions: steps of one shape take the same time.
    pub shape: [usize; 3],
    /// Time that the loop waited for the batch.
    pub waited: Duration,
    /// Measurements of the feed when the batch was taken.
    pub fed: Measured,
    /// Notes of the loader, such as a bad clip or a replaced thread. Usually empty.
    pub notes: Vec<String>,
}

/// Name of a measurement: how much the loss of validation codes increases with the texts of other clips, in nats. Near zero
/// if the model ignores the text.
pub const TEXT_GAIN: &str = "text_gain";

/// The result of a pass over the validation records.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// The best checkpoint is chosen by it; lower is better.
    pub score: f64,
    /// The loss, which shows overfitting.
    pub loss: f64,
    /// All measurements, by name.
    pub numbers: Vec<(&'static str, f64)>,
}

/// The network and the data of a stage: the part that is the same on one device and on several.
pub trait StageCore {
    /// The kind of stage.
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

    /// Identifies what is optimised after `step` steps. Only scores of the same objective can be compared; the scores of a
    /// later one replace those of an earlier one.
    fn objective(&self, _step: u64) -> u64 {
        0
    }

    /// Whether the model takes the moving average of a parameter, if averages are kept.
    fn is_averaged(&self, _parameter: ParameterId) -> bool {
        true
    }

    /// Number of steps per epoch.
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
    /// without a feed. `None` if there was no such batch, or if the stage does not support it.
    fn replay(&mut self, _shape: [usize; 3], _control: &Control) -> Result<Option<Ticket>, TrainError> {
        Ok(None)
    }

    /// Runs the step of the last batch of this shape again, operation by operation, each timed on the device. Empty if
    /// there was no such batch, or if the stage does not support it.
    fn profile(&mut self, _shape: [usize; 3], _control: &Control) -> Result<Vec<OpTime>, TrainError> {
        Ok(Vec::new())
    }

    /// Waits for the report of a queued step.
    fn wait(&mut self, ticket: Ticket) -> Result<Report, TrainError> {
        Ok(self.core_mut().engine_mut().wait(ticket)?)
    }

    /// Whether the weights are still those of the last complete step after [`Stage::submit`] got no batch.
    fn survives_missing_batch(&self) -> bool {
        true
    }

    /// Called after the engine's arenas were restored from a checkpoint, to update copies of them.
    fn restored(&mut self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Work between steps; called before step `step`, with nothing queued if [`StageCore::due`] returned `true`.
    fn between(&mut self, _step: u64) -> Result<(), TrainError> {
        Ok(())
    }

    /// Measures the validation records; `None` if there are none.
    fn validate(&mut self) -> Result<Option<Validation>, TrainError>;

    /// Checks that the replicas in other processes hold the same weights. A sentence that says so, or an error if they do
    /// not; `None` in a run of one process.
    fn verify(&mut self) -> Result<Option<String>, TrainError> {
        Ok(None)
    }

    /// Announces that the caller now does something that may take longer than a step, at most `_limit`: after that, rank 0 is
    /// considered hanging. Ends with the next step.
    fn announce(&mut self, _what: &'static str, _limit: Option<Duration>) {}

    /// Time that steps have waited so far while gradients were summed over processes; `None` in a run of one process.
    fn communication(&self) -> Option<Duration> {
        None
    }
}

/// The methods of the core, for callers of any stage.
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

/// The distinct records of the lists, in their order; negative numbers are no records.
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

/// Names to print: the first few, and how many more there are.
fn list_names(clips: &[String]) -> String {
    const NAMED: usize = 20;
    match clips.len().checked_sub(NAMED) {
        None | Some(0) => clips.join(", "),
        Some(more) => format!("{} and {more} more", clips[..NAMED].join(", ")),
    }
}

/// A line on the records that batches leave out; `unit` is what their length is counted in.
fn describe_left_out(batches: &Batches, unit: &str, id: impl Fn(u32) -> String) -> Option<String> {
    let first = batches.excluded().first()?;
    let why = match first.reason {
        Reason::NoFrames => format!("it has no {unit}"),
        Reason::TooManyFrames { frames, limit } => format!("{frames} {unit}, the maximum is {limit}"),
        reason => reason.to_string(),
    };
    let count = batches.excluded().len();
    Some(format!("{count} clips are left out, such as {}: {why}", id(first.record)))
}

/// Refuses a program that would exceed the memory limit of an engine, before any of it is allocated. `batch` is the setting
/// that reduces it.
pub(crate) fn check_memory_limit(
    engine: &Engine,
    tape: &myxtts_tensor::Tape,
    (stage, batch): (&'static str, &'static str),
    limit: Option<u64>,
) -> Result<(), TrainError> {
    let Some(limit) = limit else { return Ok(()) };
    let need = engine.need_with(&engine.plan_of(tape)).total() + engine.driver_bytes()?;
    if need as u64 > limit {
        return Err(TrainError::DeviceMemory(format!(
            "the stage `{stage}` needs {}, and training.memory_limit is {}: lower {batch}, or raise the limit",
            memory_size(need as u64),
            memory_size(limit)
        )));
    }
    Ok(())
}

/// Initialises the average of the weights with the weights.
fn start_average(engine: &mut Engine, kept: bool) -> Result<(), TrainError> {
    if kept {
        let weights = engine.read_arena(myxtts_tensor::engine::Arena::Weights)?;
        let trained = engine.layout().trained_len();
        engine.write_arena(myxtts_tensor::engine::Arena::Average, &weights[..trained])?;
    }
    Ok(())
}

/// The part of a stage's description about repeated clips.
fn describe_balance(batches: &myxtts_data::batch::Plan) -> String {
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
