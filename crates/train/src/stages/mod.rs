//! The stages, in the order a model is made: [`dvae`] (sound to codes) -> [`gpt`] (text to codes) -> [`decoder`] (states
//! to sound). The text's vocabulary, the stage before them, is made when a corpus is
//! prepared: it is kept beside the corpus, and every run on it is cut by the same.

pub mod codes;
pub mod decoder;
pub mod dvae;
pub mod gpt;
pub mod latents;

use crate::error::TrainError;
use crate::model::Model;
pub use myxtts_run::plan::Stage as Kind;
use myxtts_tensor::engine::Ticket;
use myxtts_tensor::{Control, Engine, Report};
use serde_json::Value;
use std::time::Duration;

/// A step that was queued.
#[derive(Debug)]
pub struct Submitted {
    /// Its report, to be asked for.
    pub ticket: Ticket,
    /// Rows of the batch that hold a record.
    pub rows: u64,
    /// The records in it.
    pub records: Vec<u32>,
    /// Rows, places of text and places of sound: steps of one shape take one time.
    pub shape: [usize; 3],
    /// How long the batch was waited for.
    pub waited: Duration,
}

/// What a pass over held-out records found.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// Lower is better: what the best checkpoint is chosen by.
    pub score: f64,
    /// Everything measured, by name.
    pub numbers: Vec<(&'static str, f64)>,
}

/// What the loop asks of a stage. Every method is a pure function of the stage's weights, its data and its arguments, or a
/// run that goes on would not be the run that was.
pub trait Stage {
    /// Which it is.
    fn kind(&self) -> Kind;

    /// What it trains, for people: sizes, batches, memory.
    fn described(&self) -> Vec<String>;

    /// Its weights and their device.
    fn engine(&self) -> &Engine;

    /// The same, to be changed.
    fn engine_mut(&mut self) -> &mut Engine;

    /// Queues step `step`, on its own batch.
    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError>;

    /// What a step's report says, by name, the loss aside.
    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)>;

    /// What has to happen between steps; called before step `step`, with nothing queued where `due` said so.
    fn between(&mut self, _step: u64) -> Result<(), TrainError> {
        Ok(())
    }

    /// Whether [`Stage::between`] has something to do before step `step`.
    fn due(&self, _step: u64) -> bool {
        false
    }

    /// A pass over held-out records; nothing where there are none.
    fn validate(&mut self) -> Result<Option<Validation>, TrainError>;

    /// Steps of an epoch.
    fn epoch_steps(&self) -> u64;

    /// The name of a record.
    fn clip(&self, record: u32) -> String;

    /// Where the data stands before step `step`, to be compared when a run goes on.
    fn position(&self, step: u64) -> Value;

    /// Hands the trained part to the model.
    fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError>;
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
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Dvae => "dvae",
        Kind::Gpt => "gpt",
        Kind::Decoder => "decoder",
    }
}
