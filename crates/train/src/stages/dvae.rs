//! The DVAE stage: encodes windows of mels to codes and decodes them.

mod batches;
pub mod forecast;
mod mel_feed;
mod mel_statistics;
mod settings;
mod step;
mod token_targets;

use super::gpt::conditioning_input::ConditioningInput;
use super::{RecordSplit, Stage, StageCore, StageKind, Submitted, Validation};
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::feed::{Feed, Maker, Measured, ReadyBatch, field, maker_of};
use crate::model::{DVAE, MEL_STATS, Model};
use crate::replica_slice::ReplicaSlice;
use mel_feed::MelFeed;
use mel_statistics::measure_mels;
use myxtts_data::batch::{BatchInfo, Plan as Batches};
use myxtts_data::loader::{Notes, Options as LoaderOptions};
use myxtts_data::mel::FrontEnd;
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_model::codebook::{HostCodebook, codebook_from_rows, revive_codes};
use myxtts_model::declare::{TRAINING_ONLY, is_training_only};
use myxtts_model::dvae::Dvae;
use myxtts_model::weights::folder::{TOKEN_HEAD_BIAS, TOKEN_HEAD_WEIGHT};
use myxtts_model::{Declare, Released};
use myxtts_run::memory_size::memory_size;
use myxtts_run::plan::Recipe;
use myxtts_run::seed::Seed;
use myxtts_tensor::engine::{OpTime, Ticket, Upload};
use myxtts_tensor::{Control, Engine, EngineOptions, Layout, Report, Training};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use step::{Ready, ready};
use token_targets::{MEL_WITH_TOKEN, WithTokens};

pub(crate) use batches::batches;
pub use mel_feed::MelDevice;
pub use settings::DvaeSettings;
pub use token_targets::TokenTargets;

/// Interval, in steps, at which unused codes are moved to encoded rows.
const REVIVE_EVERY: u64 = 20;
/// A code chosen by fewer rows than this, averaged over about a hundred steps, is unused.
const MIN_USE: f32 = 0.03;
/// What the loop needs to know about a batch.
struct DvaeBatch {
    rows: u64,
    records: Vec<u32>,
    /// Number of codes with a token.
    tokens: f32,
    /// The input of its mels, if a device computes them.
    mel_input: Option<ConditioningInput>,
}

impl DvaeBatch {
    /// `tokens`: the token of every code, negative where none is known; empty where codes need not predict them.
    fn of(bytes: &[u8], info: &BatchInfo, tokens: &[i32], mel_input: Option<ConditioningInput>) -> DvaeBatch {
        let records: &[i32] = bytemuck::cast_slice(field(bytes, info, "record"));
        let records = records.iter().filter(|&&r| r >= 0).map(|&r| r as u32).collect();
        let tokens = tokens.iter().filter(|&&token| token >= 0).count() as f32;
        DvaeBatch { rows: u64::from(info.rows_valid), records, tokens, mel_input }
    }
}

/// The DVAE in training.
pub struct DvaeStage {
    settings: DvaeSettings,
    slice: ReplicaSlice,
    recipe: Recipe,
    engine: Engine,
    dvae: Dvae,
    released: Vec<Released>,
    stats: Vec<f32>,
    source: Arc<dyn RecordSource>,
    /// The same source, with the token of every frame if codes have to predict it.
    learnt: Arc<dyn RecordSource>,
    batches: Arc<Batches>,
    held_out: Option<Arc<Batches>>,
    /// The feed of training batches if a device computes their mels; else the reason, if that was requested.
    mel_feed: Result<MelFeed, Option<String>>,
    feed: Option<Feed<DvaeBatch>>,
    notes: Notes,
    /// Names the records that could not be read when the stage was built.
    bad_records: Option<String>,
    step: Ready,
    measure: Ready,
}

/// The network with its parameters.
fn network(settings: &DvaeSettings, recipe: &Recipe) -> (Dvae, Arc<Layout>, Vec<Released>) {
    let mut declare = Declare::new(recipe.weight_decay as f32, &|_| true);
    let mut dvae = Dvae::declare(&mut declare, &settings.sizes, "dvae.");
    if let Some(spoken) = &settings.token_targets {
        dvae.add_token_head(&mut declare, spoken.vocabulary);
    }
    let (layout, released) = declare.finish();
    (dvae, layout, released)
}

/// Options of its engine.
fn options(settings: &DvaeSettings, recipe: &Recipe) -> EngineOptions {
    let training = match recipe.ema_decay {
        Some(_) => Training::AdamWithAverage,
        None => Training::Adam,
    };
    EngineOptions { training, mode: settings.mode, seed: settings.seed, ..EngineOptions::default() }
}

fn are_numbers(row: &[f32]) -> bool {
    row.iter().all(|x| x.is_finite())
}

impl DvaeStage {
    /// Builds the stage on `source`. It trains on its slice of every batch of `train` and validates on `validation`. The
    /// initial weights and the new vectors of unused codes are computed from whole batches. Each replica computes the initial
    /// weights itself, and those of the first replica replace them when the replicas are connected.
    pub fn new(
        slice: ReplicaSlice,
        settings: DvaeSettings,
        recipe: Recipe,
        machine: ComputeDevice,
        source: Arc<dyn RecordSource>,
        RecordSplit { train, validation }: RecordSplit<'_>,
        model: &Model,
    ) -> Result<DvaeStage, TrainError> {
        let bands = settings.sizes.channels;
        let measured = measure_mels(&*source, train, bands, settings.feeding.failures)?;
        let stats = match model.numbers(MEL_STATS) {
            Some(_) => model.mel_stats(bands),
            None => measured.scale,
        };
        let (dvae, layout, released) = network(&settings, &recipe);
        let mut engine = Engine::new(machine.device, layout, machine.precision, options(&settings, &recipe))?;
        let missing = model.fill(&mut engine, &released)?;
        let known = model.has(DVAE) && missing.iter().all(|name| is_training_only(name));
        super::start_average(&mut engine, recipe.ema_decay.is_some())?;
        let learnt: Arc<dyn RecordSource> = match &settings.token_targets {
            Some(spoken) => {
                let per_code = settings.sizes.frames_per_code();
                Arc::new(WithTokens::new(source.clone(), DVAE_MEL, spoken.alignments.clone(), per_code))
            }
            None => source.clone(),
        };
        let (plan, held_out) = batches(&settings, &*learnt, RecordSplit { train, validation })?;
        let (plan, held_out) = (Arc::new(plan), held_out.map(Arc::new));
        let step = ready(&mut engine, &dvae, &settings, &recipe, Some(&slice))?;
        let measure = ready(&mut engine, &dvae, &settings, &recipe, None)?;
        let mel_feed = MelFeed::of(&settings, &engine, &stats, train)?;
        let mut stage = DvaeStage {
            settings,
            slice,
            recipe,
            engine,
            dvae,
            released,
            stats,
            source,
            learnt,
            batches: plan,
            held_out,
            mel_feed,
            feed: None,
            notes: Notes::default(),
            bad_records: measured.bad,
            step,
            measure,
        };
        if !known {
            stage.initialise_output(&measured.mean)?;
            stage.fill_codebook()?;
        }
        Ok(stage)
    }

    /// Initialises the network so that it outputs the mean mel and receives the difference from it. Log-mels are far from
    /// zero, and learning that offset would take longer than learning the content.
    fn initialise_output(&mut self, mean: &[f32]) -> Result<(), TrainError> {
        let mean: Vec<f32> = mean.iter().zip(&self.stats).map(|(mean, stat)| mean / stat).collect();
        let sizes = &self.settings.sizes;
        let last = format!("dvae.decoder.{}.bias", 1 + sizes.blocks + sizes.layers);
        let find =
            |name: &str| self.engine.layout().find(name).unwrap_or_else(|| panic!("a DVAE has no {name}"));
        let (last, bias, weight) =
            (find(&last), find("dvae.encoder.0.0.bias"), find("dvae.encoder.0.0.weight"));
        let taps = self.engine.read_parameter(weight)?;
        let against: Vec<f32> = taps
            .chunks_exact(sizes.taps * mean.len())
            .map(|out| {
                -out.chunks_exact(mean.len())
                    .flat_map(|tap| tap.iter().zip(&mean))
                    .map(|(w, m)| w * m)
                    .sum::<f32>()
            })
            .collect();
        self.engine.write_parameter(bias, &against)?;
        self.engine.write_parameter(last, &mean)?;
        super::start_average(&mut self.engine, self.recipe.ema_decay.is_some())
    }

    /// Initialises the codebook with rows that the encoder computes from the first batches.
    fn fill_codebook(&mut self) -> Result<(), TrainError> {
        let sizes = self.settings.sizes.clone();
        // Four rows to choose from for each code.
        let enough = 4 * sizes.codes * sizes.code_width;
        let rows = self.encoded(0, 64, enough)?;
        // If all rows are NaN or Inf, every step reports that with the names of its clips.
        if !rows.is_empty() {
            let book = codebook_from_rows(&rows, sizes.code_width, sizes.codes, self.settings.seed);
            book.write(&mut self.engine, self.dvae.codebook())?;
        }
        Ok(())
    }

    /// The rows that the encoder computes from the batches from `first` on, of at most `most` batches, until there are
    /// `enough` numbers. Clips with NaN or Inf are left out: a code with NaN would stay unusable.
    fn encoded(&mut self, first: u64, most: u64, enough: usize) -> Result<Vec<f32>, TrainError> {
        let batches = self.batches.clone();
        let mut feed = self.measuring(&batches, first, first + most)?;
        let mut rows = Vec::new();
        for _ in 0..most {
            self.measure_batch(&mut feed)?;
            let made = self.engine.read(&self.measure.program, self.measure.encoded)?;
            let width = self.settings.sizes.code_width;
            rows.extend(made.chunks_exact(width).filter(|row| are_numbers(row)).flatten());
            if rows.len() >= enough {
                break;
            }
        }
        Ok(rows)
    }

    /// A feed of a plan's batches, separate from the training feed.
    fn measuring(
        &self,
        batches: &Arc<Batches>,
        first: u64,
        until: u64,
    ) -> Result<Feed<DvaeBatch>, TrainError> {
        let budget = self.settings.feeding.failures;
        let options = LoaderOptions { until: Some(until), budget, ..LoaderOptions::default() };
        let maker = self.maker(&self.measure, batches, first, options)?;
        Feed::blocking(self.engine.uploader(Upload::WithStep)?, self.measure.image.bytes(), first, maker)
    }

    /// Passes the next batch of a feed through the network without an update.
    fn measure_batch(&mut self, feed: &mut Feed<DvaeBatch>) -> Result<Report, TrainError> {
        let mut fed = feed.next_batch()?;
        self.engine.take(&self.measure.program, &mut fed.slot)?;
        feed.give_back(fed.slot);
        let ticket = self.engine.submit(&mut self.measure.program, &Control::default())?;
        Ok(self.engine.wait(ticket)?)
    }

    fn maker(
        &self,
        ready: &Ready,
        batches: &Arc<Batches>,
        first: u64,
        options: LoaderOptions,
    ) -> Result<Maker<DvaeBatch>, TrainError> {
        let (image, mel, stats) = (ready.image.clone(), ready.mel, self.stats.clone());
        let (tokens, per_code) = (ready.tokens, self.settings.sizes.frames_per_code());
        let window = self.settings.frames as usize;
        let column = batches.settings().parts[0].column;
        maker_of(self.learnt.clone(), batches, first, options, move |bytes, info, into, _| {
            let frames = bytemuck::cast_slice(field(bytes, info, column.name));
            let mut spoken = Vec::new();
            if column == MEL_WITH_TOKEN {
                let mels;
                (mels, spoken) = token_targets::split(column, frames, (window, 0), per_code);
                image.write_divided(into, mel, &mels, &stats);
                if let Some(tokens) = tokens {
                    image.write_i32(into, tokens, &spoken);
                }
            } else {
                image.write_divided(into, mel, frames, &stats);
            }
            Ok((image.bytes(), DvaeBatch::of(bytes, info, &spoken, None)))
        })
    }

    /// The training batch of `step`.
    fn batch(&mut self, step: u64) -> Result<ReadyBatch<DvaeBatch>, TrainError> {
        let _waiting = self.slice.waits_for_batch();
        if self.feed.as_ref().is_none_or(|feed| feed.upcoming() != step) {
            self.feed = None;
            let feeding = self.settings.feeding;
            let options = self.slice.loading(feeding.loading());
            let options = LoaderOptions { notes: self.notes.clone(), ..options };
            let (maker, finisher) = match &self.mel_feed {
                Ok(mel_feed) => {
                    let maker = mel_feed.maker(&self.step, &self.settings, step, options)?;
                    (maker, Some(mel_feed.finisher()))
                }
                Err(_) => (self.maker(&self.step, &self.batches, step, options)?, None),
            };
            let (bytes, began) = (self.step.image.bytes(), Instant::now());
            let feed = feeding.start_with("feed dvae", &self.engine, bytes, step, maker, finisher)?;
            if let Ok(mel_feed) = &self.mel_feed {
                feed.wait_until_full(began + mel_feed.start_delay);
            }
            self.feed = Some(feed);
        }
        self.feed.as_mut().expect("started above").next_batch()
    }
}

impl StageCore for DvaeStage {
    fn kind(&self) -> StageKind {
        StageKind::Dvae
    }

    fn described(&self) -> Vec<String> {
        let sizes = &self.settings.sizes;
        let mut lines = vec![
            format!(
                "DVAE {} channels, {} codes of {}: {:.1} M trained parameters",
                sizes.hidden,
                sizes.codes,
                sizes.code_width,
                self.engine.layout().trained_count() as f64 / 1e6
            ),
            format!(
                "{} clips{}, {} windows of {:.2} s per batch; memory {}",
                self.batches.records(),
                super::describe_balance(&self.batches),
                self.settings.rows,
                FrontEnd::Dvae.seconds(self.settings.frames as usize),
                memory_size(self.engine.memory().total() as u64)
            ),
        ];
        match &self.mel_feed {
            Ok(mel_feed) => lines.push(mel_feed.description()),
            Err(why) => lines.extend(why.clone()),
        }
        lines.extend(self.bad_records.clone());
        lines
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        let [squared, commitment, absolute] = [0, 1, 2].map(|i| f64::from(report.notes[i]));
        let mut numbers = vec![("squared", squared), ("absolute", absolute), ("commitment", commitment)];
        if self.settings.token_targets.is_some() {
            numbers.push(("tokens", f64::from(report.notes[3])));
            let [correct, count] = [4, 5].map(|i| f64::from(report.notes[i]));
            numbers.push(("tokens_named", correct / count.max(1.0)));
        }
        numbers
    }

    fn due(&self, step: u64) -> bool {
        // Codes stay unchanged near the end: the next stages are trained on them.
        step > 0 && step.is_multiple_of(REVIVE_EVERY) && step < self.recipe.steps * 3 / 4
    }

    fn epoch_steps(&self) -> u64 {
        self.batches.batches_per_epoch().max(1)
    }

    fn clip(&self, record: u32) -> String {
        self.source.id(record as usize)
    }

    fn position(&self, step: u64) -> Value {
        json!(self.batches.state(step))
    }

    fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError> {
        let sizes = json!({ "codes": self.settings.sizes.codes });
        model.set(MEL_STATS, &[self.stats.len()], &self.stats);
        let own = self.released.iter().filter(|tensor| !is_training_only(&tensor.name));
        let own: Vec<Released> = own.cloned().collect();
        model.take(DVAE, sizes, &self.engine, &own, average)?;
        // The token classifier is stored with the codes it was trained on: speaking uses it to check its output.
        let head = [(TOKEN_HEAD_WEIGHT, "token_head.weight"), (TOKEN_HEAD_BIAS, "token_head.bias")];
        for (name, trained) in head {
            let trained = format!("{TRAINING_ONLY}{trained}");
            match self.released.iter().find(|tensor| tensor.name == trained) {
                Some(tensor) => {
                    let one = Released { name: name.to_owned(), ..tensor.clone() };
                    model.take(
                        DVAE,
                        json!({ "codes": self.settings.sizes.codes }),
                        &self.engine,
                        &[one],
                        average,
                    )?;
                }
                None => model.remove(name),
            }
        }
        Ok(())
    }
}

impl Stage for DvaeStage {
    fn core(&self) -> &dyn StageCore {
        self
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let ReadyBatch { mut slot, what, .. } = self.batch(step)?;
        self.engine.take(&self.step.program, &mut slot)?;
        if let Some(share) = self.step.token_share {
            let [all] = self.slice.totals([what.tokens])?;
            self.engine.write(&self.step.program, share, &[what.tokens / all.max(1.0)])?;
        }
        let mut fed = Measured::default();
        if let Some(feed) = &mut self.feed {
            fed = feed.measured();
            feed.give_back(slot);
        }
        let ticket = self.engine.submit(&mut self.step.program, control)?;
        let shape = [self.slice.rows(self.settings.rows)? as usize, 0, self.settings.frames as usize];
        let (rows, records) = (what.rows, what.records);
        let (waited, notes) = (fed.last_wait, self.notes.take());
        Ok(Submitted { ticket, rows, records, shape, waited, fed, notes })
    }

    fn replay(&mut self, _: [usize; 3], control: &Control) -> Result<Option<Ticket>, TrainError> {
        Ok(Some(self.engine.submit(&mut self.step.program, control)?))
    }

    fn profile(&mut self, _: [usize; 3], control: &Control) -> Result<Vec<OpTime>, TrainError> {
        Ok(self.engine.profile(&mut self.step.program, control)?)
    }

    fn between(&mut self, step: u64) -> Result<(), TrainError> {
        if !self.due(step) {
            return Ok(());
        }
        let mut book = HostCodebook::read(&self.engine, self.dvae.codebook())?;
        // The first replica decides for all: those that disagree would wait for each other.
        let mut any = [f32::from(u8::from(!book.unused(MIN_USE).is_empty()))];
        self.slice.from_first(&mut any)?;
        if any[0] == 0.0 {
            return Ok(());
        }
        if self.slice.rank() == 0 {
            // Computed again instead of kept from the step before: a run that was just resumed has none.
            let rows = self.encoded(step - 1, 1, 1)?;
            if !rows.is_empty() {
                let seed = Seed::new(self.settings.seed).derive("revive").with(step).value();
                revive_codes(&mut book, &rows, self.settings.sizes.code_width, MIN_USE, seed);
            }
        }
        // Devices round differently: a codebook computed by each of them would not be the same one.
        for values in [&mut book.embed, &mut book.cluster_size, &mut book.embed_avg] {
            self.slice.from_first(values)?;
        }
        book.write(&mut self.engine, self.dvae.codebook())?;
        Ok(())
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        let Some(batches) = self.held_out.clone() else { return Ok(None) };
        let count = batches.batches_per_epoch();
        let mut feed = self.measuring(&batches, 0, count)?;
        let (mut squared, mut absolute, mut passes) = (0.0, 0.0, 0.0);
        for _ in 0..count {
            let report = self.measure_batch(&mut feed)?;
            squared += f64::from(report.notes[0]);
            absolute += f64::from(report.notes[2]);
            passes += 1.0;
        }
        if passes == 0.0 {
            return Ok(None);
        }
        let numbers = vec![("squared", squared / passes), ("absolute", absolute / passes)];
        Ok(Some(Validation { score: squared / passes, loss: squared / passes, numbers }))
    }
}
