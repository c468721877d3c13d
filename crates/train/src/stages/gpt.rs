//! The GPT stage: predicts the codes of a clip from its text, conditioned on another clip of the same speaker.

mod acoustic_targets;
mod augment;
mod augmented_rows;
pub(super) mod conditioning_engine;
mod conditioning_feed;
pub(super) mod conditioning_input;
pub(super) mod fill;
mod regularization;
mod row_indices;
mod settings;
mod shuffled;
pub(crate) mod step_builder;
mod validation;

use acoustic_targets::AcousticTargets;
use augment::Augmenter;
pub use augmented_rows::AugmentedRow;
pub(crate) use augmented_rows::AugmentedRows;
pub use conditioning_feed::Conditioning;
pub(crate) use conditioning_feed::ConditioningKind;
pub use regularization::Regularization;
pub use settings::{GptSettings, Lengths};

use super::{RecordSplit, Stage, StageCore, StageKind, Submitted, Validation, describe_left_out};
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::feed::{Feed, Measured, ReadyBatch};
use crate::model::{GPT, Model, TEXT_DROPOUT};
use crate::overlay::WithCodes;
use crate::replica_slice::ReplicaSlice;
use conditioning_feed::ConditioningFeed;
use fill::{Filler, GptBatch};
use myxtts_data::batch::{Plan as Batches, Rows};
use myxtts_data::loader::{Notes, Options as LoaderOptions};
use myxtts_data::record::RecordSource;
use myxtts_model::{Gpt, GptShape, Released};
use myxtts_run::memory_size::memory_size;
use myxtts_run::plan::Recipe;
use myxtts_tensor::engine::{OpTime, Ticket};
use myxtts_tensor::memory::MemoryPlan;
use myxtts_tensor::{Control, Engine, Program, Report, Value as Node};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use step_builder::GptForecast;
use step_builder::StepBuilder;

/// The purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// A step of one batch.
    Step,
    /// The first batch of a step of several.
    First,
    /// A batch in the middle of a step of several.
    Middle,
    /// The last batch of a step of several, with the update.
    Last,
    /// A pass without gradients.
    Validate,
}

/// Nodes of a replica's shares of the text targets, code targets and, with an alignment head, its targets; `None` without
/// replicas.
type Shares = Option<Vec<Node>>;

/// The GPT in training.
pub struct GptStage {
    settings: GptSettings,
    slice: ReplicaSlice,
    recipe: Recipe,
    engine: Engine,
    gpt: Gpt,
    released: Vec<Released>,
    filler: Filler,
    augmenter: Option<Arc<Augmenter>>,
    conditioning: ConditioningFeed,
    source: Arc<WithCodes>,
    batches: Arc<Batches>,
    held_out: Option<Arc<Batches>>,
    feed: Option<Feed<GptBatch>>,
    notes: Notes,
    programs: HashMap<(GptShape, Phase), (Program, Shares)>,
    recomputed: usize,
    memory: String,
}

impl GptStage {
    /// Builds the stage on `source`. It trains on its slice of every batch of `train` and validates on `validation`, and
    /// starts with the weights of `model` if it has them.
    pub fn new(
        slice: ReplicaSlice,
        settings: GptSettings,
        recipe: Recipe,
        machine: ComputeDevice,
        source: Arc<WithCodes>,
        RecordSplit { train, validation }: RecordSplit<'_>,
        model: &Model,
    ) -> Result<GptStage, TrainError> {
        let (gpt, layout, released) = step_builder::network(&settings, &recipe);
        let options = step_builder::options(&settings, &recipe);
        let mut engine = Engine::new(machine.device, layout, machine.precision, options)?;
        if model.has(GPT) {
            let missing = model.fill(&mut engine, &released)?;
            // Only adapters may be newly initialised. Anything else would silently discard trained weights.
            let begins_anew = |name: &str| {
                myxtts_model::lora::is_adapter(name) || myxtts_model::declare::is_training_only(name)
            };
            if let Some(name) = missing.iter().find(|name| !begins_anew(name)) {
                return Err(TrainError::UnusableModel(format!(
                    "the model's GPT lacks {name}, or has it in another shape: import or train it again"
                )));
            }
        } else {
            let engine = std::cell::RefCell::new(&mut engine);
            let read = |id| engine.borrow().read_parameter(id);
            let write = |id, data: &[f32]| engine.borrow_mut().write_parameter(id, data);
            if let Some(rate) = settings.regularization.diagonal_rate() {
                gpt.start_diagonal(rate, read, write)?;
            }
            if settings.regularization.codebook_start
                && let Some(codebook) = model.numbers("dvae.codebook.embed")
            {
                gpt.start_from_codebook(&codebook, settings.seed, read, write)?;
            }
        }
        super::start_average(&mut engine, recipe.ema_decay.is_some())?;
        let stats = model.mel_stats(settings.sizes.conditioning.mels);
        let conditioning = ConditioningFeed::of(&settings, &engine, &source, &stats)?;
        let fed = (&*conditioning.records, conditioning.kind);
        let (plan, held_out) =
            step_builder::batches(&settings, &*source, fed, RecordSplit { train, validation })?;
        let mut filler = Filler::new(
            settings.sizes.clone(),
            (settings.masks, settings.frames, stats),
            (engine.layout().clone(), engine.precision()),
        );
        filler.aligned = settings.regularization.aligns();
        if settings.regularization.acoustic_weight > 0.0 {
            filler.acoustic_channels = acoustic_targets::channels(&settings.sizes);
            filler.acoustic = Some(Arc::new(AcousticTargets::new(source.clone(), &settings.sizes)));
        }
        let batches_in_all = recipe.steps * settings.accumulate.max(1);
        let place = (batches_in_all, slice.rank());
        let augmenter = Augmenter::new(&settings, &source, train, place).map(Arc::new);
        let mut stage = GptStage {
            settings,
            slice,
            recipe,
            engine,
            gpt,
            released,
            filler,
            augmenter,
            conditioning,
            source,
            batches: Arc::new(plan),
            held_out: held_out.map(Arc::new),
            feed: None,
            notes: Notes::default(),
            programs: HashMap::new(),
            recomputed: 0,
            memory: String::new(),
        };
        stage.fit()?;
        Ok(stage)
    }

    /// Chooses how many blocks are recomputed so that the largest batch fits, allocates the memory, and describes it.
    fn fit(&mut self) -> Result<(), TrainError> {
        let limit = self.settings.memory_limit.unwrap_or(u64::MAX);
        let least = match self.settings.memory_limit {
            Some(_) => 0..=self.settings.sizes.layers,
            None => 0..=0,
        };
        let mut found = (0, Vec::new());
        for recomputed in least {
            self.recomputed = recomputed;
            found = self.need()?;
            if found.0 <= limit {
                break;
            }
        }
        let (need, plans) = found;
        if need > limit {
            return Err(TrainError::DeviceMemory(format!(
                "the largest batch needs {} with every block recomputed, and training.memory_limit is {}: lower {} or \
                 data.max_seconds",
                memory_size(need),
                memory_size(limit),
                match self.settings.rows {
                    Rows::Fixed(_) => "data.batch_size",
                    Rows::Budget { .. } => "data.frame_budget",
                }
            )));
        }
        self.engine.reserve(&plans)?;
        let recomputed = match self.recomputed {
            0 => String::new(),
            n => format!(", {n} of {} blocks recomputed", self.settings.sizes.layers),
        };
        self.memory = format!("memory {}{recomputed}", memory_size(need));
        Ok(())
    }

    /// Total bytes of the device, including the driver's own, and the plans of all programs.
    fn need(&self) -> Result<(u64, Vec<MemoryPlan>), TrainError> {
        let (own, plans) =
            self.builder().need(self.engine.memory().total(), self.engine.cuda().is_some(), &|tape| {
                self.engine.plan_of(tape)
            })?;
        Ok(((own + self.engine.driver_bytes()?) as u64, plans))
    }

    /// Bytes in use: those of its engine, and those of the device that computes its conditioning, which may be the same.
    pub fn held(&self) -> u64 {
        (self.engine.memory().total() + self.conditioning.held()) as u64
    }

    fn builder(&self) -> StepBuilder<'_> {
        StepBuilder {
            settings: &self.settings,
            slice: &self.slice,
            recipe: &self.recipe,
            gpt: &self.gpt,
            filler: &self.filler,
            batches: &self.batches,
            held_out: self.held_out.as_deref(),
            recomputed: self.recomputed,
        }
    }

    fn ready(&mut self, shape: GptShape, phase: Phase) -> Result<(), TrainError> {
        if !self.programs.contains_key(&(shape, phase)) {
            let (tape, shares) = self.builder().tape(shape, phase);
            let program = self.engine.load(tape)?;
            self.programs.insert((shape, phase), (program, shares));
        }
        Ok(())
    }

    /// Converts a batch to a program's inputs and queues it; its slot can then be filled again.
    fn run(
        &mut self,
        fed: &mut ReadyBatch<GptBatch>,
        phase: Phase,
        control: &Control,
    ) -> Result<Submitted, TrainError> {
        let shape = fed.what.shape;
        self.ready(shape, phase)?;
        let (program, shares) = self.programs.get_mut(&(shape, phase)).expect("made above");
        let first = if program.has_run() { None } else { self.slice.first_run() };
        self.engine.take(program, &mut fed.slot)?;
        if let Some(shares) = shares {
            let (counted, all) = (fed.what.targets, self.slice.totals(fed.what.targets)?);
            for ((value, own), all) in shares.iter().zip(counted).zip(all) {
                self.engine.write(program, *value, &[own / all.max(1.0)])?;
            }
        }
        let ticket = self.engine.submit(program, control)?;
        drop(first);
        let records = std::mem::take(&mut fed.what.records);
        let GptShape { batch, text, mel, .. } = shape;
        let (waited, measured) = (Duration::ZERO, Measured::default());
        let shape = [batch, text, mel];
        let notes = self.notes.take();
        Ok(Submitted { ticket, rows: fed.what.rows, records, shape, waited, fed: measured, notes })
    }

    /// The feed, positioned before batch `number`.
    fn feed(&mut self, number: u64) -> Result<&mut Feed<GptBatch>, TrainError> {
        if self.feed.as_ref().is_none_or(|feed| feed.upcoming() != number) {
            // Drop the old one first: there is memory for one.
            self.feed = None;
            let (feeding, source) = (self.settings.feeding, self.conditioning.records.clone());
            let options = self.slice.loading(feeding.loading());
            let options = LoaderOptions { notes: self.notes.clone(), ..options };
            let mut filler = self.filler.clone();
            (filler.kind, filler.engine) = (self.conditioning.kind, self.conditioning.maker.clone());
            filler.augmenter = self.augmenter.clone();
            let maker = filler.maker(source, &self.batches, number, options)?;
            let bytes = self.filler.slot_bytes(&self.batches, self.slice.world())?;
            let (finisher, began) = (self.conditioning.finisher(), Instant::now());
            let feed = feeding.start_with("feed gpt", &self.engine, bytes, number, maker, finisher)?;
            if let Some(delay) = self.settings.start_delay {
                feed.wait_until_full(began + delay);
            }
            self.feed = Some(feed);
        }
        Ok(self.feed.as_mut().expect("started above"))
    }
}

fn is_step_of((shape, phase): &(GptShape, Phase), wanted: [usize; 3]) -> bool {
    *phase == Phase::Step && [shape.batch, shape.text, shape.mel] == wanted
}

impl StageCore for GptStage {
    fn kind(&self) -> StageKind {
        StageKind::Gpt
    }

    fn described(&self) -> Vec<String> {
        let sizes = &self.settings.sizes;
        let buckets = self.batches.buckets();
        let rows: Vec<u32> = buckets.iter().map(|bucket| bucket.rows).collect();
        let mut lines = vec![
            format!(
                "GPT {} x {}, {} heads, {} text tokens, {} codes: {:.1} M trained parameters",
                sizes.layers,
                sizes.width,
                sizes.heads,
                sizes.text_vocabulary,
                sizes.audio_vocabulary - 2,
                self.engine.layout().trained_count() as f64 / 1e6
            ),
            format!(
                "{} clips{} in {} lengths, {} to {} per batch, {} batches per epoch; {}",
                self.batches.records(),
                super::describe_balance(&self.batches),
                buckets.len(),
                rows.iter().min().unwrap_or(&0),
                rows.iter().max().unwrap_or(&0),
                self.batches.batches_per_epoch(),
                self.memory
            ),
        ];
        lines.extend(self.settings.regularization.described());
        lines.extend(self.conditioning.description.clone());
        if let (Some(depth), Some(delay)) = (self.settings.feeding.depth, self.settings.start_delay) {
            lines.push(format!(
                "the model starts when {} batches are ready, after at least {:.1} s",
                self.filler
                    .slot_bytes(&self.batches, self.slice.world())
                    .map_or(depth.max, |bytes| depth.slots(bytes)),
                delay.as_secs_f64()
            ));
        }
        lines.extend(describe_left_out(&self.batches, "codes", |record| self.clip(record)));
        lines
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        let [text, mel, correct, count, alignment, aligned, acoustic] =
            [0, 1, 2, 3, 4, 5, 6].map(|i| f64::from(report.notes[i]));
        let mut numbers = vec![("text", text), ("codes", mel), ("accuracy", correct / count.max(1.0))];
        if self.settings.regularization.aligns() {
            numbers.extend([("alignment", alignment), ("aligned", aligned / count.max(1.0))]);
        }
        if self.settings.regularization.acoustic_weight > 0.0 {
            numbers.push(("acoustic", acoustic));
        }
        numbers
    }

    fn epoch_steps(&self) -> u64 {
        (self.batches.batches_per_epoch() / self.settings.accumulate.max(1)).max(1)
    }

    fn clip(&self, record: u32) -> String {
        self.source.id(record as usize)
    }

    fn position(&self, step: u64) -> Value {
        json!(self.batches.state(step * self.settings.accumulate.max(1)))
    }

    fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError> {
        let mut sizes = json!(self.settings.sizes);
        if self.settings.regularization.text_dropout > 0.0 {
            sizes[TEXT_DROPOUT] = json!(self.settings.regularization.text_dropout);
        }
        let own: Vec<Released> = self
            .released
            .iter()
            .filter(|tensor| {
                !myxtts_model::lora::is_adapter(&tensor.name)
                    && !myxtts_model::declare::is_training_only(&tensor.name)
            })
            .cloned()
            .collect();
        model.take(GPT, sizes, &self.engine, &own, average)?;
        for adapter in self.gpt.adapters() {
            let Some(tensor) = own.iter().find(|tensor| tensor.id == adapter.weight) else { continue };
            let read = |id| self.engine.read_parameter(id);
            let (weight, a, b) = (read(adapter.weight)?, read(adapter.a)?, read(adapter.b)?);
            let merged = adapter.merged(&weight, &a, &b, self.settings.lora_rank.unwrap_or(1));
            model.set(&tensor.name, &tensor.shape, &tensor.to_released(&merged));
        }
        Ok(())
    }
}

impl Stage for GptStage {
    fn core(&self) -> &dyn StageCore {
        self
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let parts = self.settings.accumulate.max(1);
        let mut all = None::<Submitted>;
        for part in 0..parts {
            let waiting = self.slice.waits_for_batch();
            let mut fed = self.feed(step * parts + part)?.next_batch()?;
            drop(waiting);
            let phase = match part {
                _ if parts == 1 => Phase::Step,
                0 => Phase::First,
                _ if part + 1 == parts => Phase::Last,
                _ => Phase::Middle,
            };
            // Batches of a step must not drop the same elements.
            let seed = control.seed.wrapping_add(part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let control = Control { weight: control.weight / parts as f32, seed, ..*control };
            let mut now = self.run(&mut fed, phase, &control)?;
            if let Some(feed) = &mut self.feed {
                now.fed = feed.measured();
                now.waited = now.fed.last_wait;
                feed.give_back(fed.slot);
            }
            all = Some(match all {
                None => now,
                Some(mut before) => {
                    before.records.extend(now.records);
                    before.notes.extend(now.notes);
                    let (rows, records, notes) = (before.rows + now.rows, before.records, before.notes);
                    Submitted { rows, records, notes, waited: before.waited + now.waited, ..now }
                }
            });
        }
        all.ok_or_else(|| TrainError::Internal("a step without batches".into()))
    }

    fn replay(&mut self, shape: [usize; 3], control: &Control) -> Result<Option<Ticket>, TrainError> {
        // A step of several batches is several programs: one of them does not have the time of the step.
        match self.programs.iter_mut().find(|(key, _)| is_step_of(key, shape)) {
            Some((_, (program, _))) => Ok(Some(self.engine.submit(program, control)?)),
            None => Ok(None),
        }
    }

    fn profile(&mut self, shape: [usize; 3], control: &Control) -> Result<Vec<OpTime>, TrainError> {
        match self.programs.iter_mut().find(|(key, _)| is_step_of(key, shape)) {
            Some((_, (program, _))) => Ok(self.engine.profile(program, control)?),
            None => Ok(Vec::new()),
        }
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        self.measure_validation()
    }
}
