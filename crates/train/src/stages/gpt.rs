//! The GPT stage: text and codes of a clip, in the voice of another clip of the same speaker.

use super::{Kind, Stage, Submitted, Validation};
use crate::beside::{CODES, WithCodes};
use crate::error::TrainError;
use crate::machine::Machine;
use crate::model::{GPT, Model};
use crate::share::Share;
use myxtts_data::batch::{
    BatchInfo, Ladder, Order, Part, Plan as Batches, Rows as BatchRows, Settings, Tail,
};
use myxtts_data::loader::{HostSlab, Loader, Options as LoaderOptions};
use myxtts_data::record::{CONDITIONING_MEL, RecordSource, TOKENS};
use myxtts_model::sequence::{frame_lengths, repeat_frames};
use myxtts_model::{
    Condition, Declare, Gpt, GptInputs, GptOptions, GptShape, GptSizes, GptTargets, LossWeights, Masks,
    Released, Rows,
};
use myxtts_run::plan::Recipe;
use myxtts_tensor::memory::MemoryPlan;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::{
    Backward, Control, DType, Engine, EngineOptions, Mode, Program, Recompute, Report, Tape, Training,
    Value as Node,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// How the stage is set up.
#[derive(Clone, Debug)]
pub struct GptSettings {
    /// Sizes of the network.
    pub sizes: GptSizes,
    /// Rows of a batch.
    pub rows: BatchRows,
    /// Frames of conditioning.
    pub frames: u32,
    /// What may be looked at, and what counts.
    pub masks: Masks,
    /// Batches whose gradients make one step.
    pub accumulate: u64,
    /// Recorded, or kernel by kernel.
    pub mode: Mode,
    /// Threads that make batches.
    pub workers: usize,
    /// Batches made ahead.
    pub depth: usize,
    /// Every draw comes from it.
    pub seed: u64,
    /// Device memory that may be used.
    pub memory_limit: Option<u64>,
    /// The first so many blocks are left as they are, with everything before them.
    pub freeze_layers: usize,
    /// The rank of adapters that are trained instead of the weights.
    pub lora_rank: Option<usize>,
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// A step of one batch.
    Step,
    /// The first batch of a step of several.
    First,
    /// One in the middle.
    Middle,
    /// The last, and the update.
    Last,
    /// No gradients.
    Validate,
}

struct Ready {
    program: Program,
    inputs: GptInputs,
    targets: GptTargets,
    shares: Option<[Node; 2]>,
}

/// The GPT being trained.
pub struct GptStage {
    settings: GptSettings,
    share: Share,
    recipe: Recipe,
    engine: Engine,
    gpt: Gpt,
    released: Vec<Released>,
    stats: Vec<f32>,
    source: Arc<WithCodes>,
    batches: Arc<Batches>,
    held_out: Option<Arc<Batches>>,
    loader: Option<(u64, Loader<HostSlab>)>,
    programs: HashMap<(GptShape, Phase), Ready>,
    recomputed: usize,
    memory: String,
}

impl GptStage {
    /// The stage on `source`, learning from `train` and validating on `validation`; with the weights of `model` where it
    /// has them.
    pub fn new(
        settings: GptSettings,
        recipe: Recipe,
        machine: Machine,
        source: Arc<WithCodes>,
        (train, validation): (&[u32], &[u32]),
        model: &Model,
    ) -> Result<GptStage, TrainError> {
        GptStage::replica(Share::WHOLE, settings, recipe, machine, source, (train, validation), model)
    }

    /// As `new`, for one of several replicas: it learns from its own slice of every batch.
    pub fn replica(
        share: Share,
        settings: GptSettings,
        recipe: Recipe,
        machine: Machine,
        source: Arc<WithCodes>,
        (train, validation): (&[u32], &[u32]),
        model: &Model,
    ) -> Result<GptStage, TrainError> {
        let frozen = settings.freeze_layers;
        let lora = settings.lora_rank;
        let trained = move |name: &str| match lora {
            Some(_) => myxtts_model::lora::is_adapter(name),
            None => frozen == 0 || !is_frozen(name, frozen),
        };
        let mut declare = Declare::new(recipe.weight_decay as f32, &trained);
        let mut gpt = Gpt::declare(&mut declare, settings.sizes.clone());
        if let Some(rank) = lora {
            gpt.add_lora(&mut declare, &myxtts_model::LoraSizes { rank, ..Default::default() });
        }
        let (layout, released) = declare.finish();
        let training = match recipe.ema_decay {
            Some(_) => Training::AdamWithAverage,
            None => Training::Adam,
        };
        let options =
            EngineOptions { training, mode: settings.mode, seed: settings.seed, ..EngineOptions::default() };
        let mut engine = Engine::new(machine.device, layout, machine.precision, options)?;
        if model.has(GPT) {
            model.fill(&mut engine, &released)?;
        }
        super::start_average(&mut engine, recipe.ema_decay.is_some())?;
        let batches = Settings {
            seed: myxtts_run::seed::Seed::new(settings.seed).derive("gpt"),
            rows: settings.rows,
            frame_unit: 16,
            length: CODES,
            max_frames: Some(settings.sizes.max_audio as u32),
            max_tokens: Some(settings.sizes.max_text as u32),
            parts: vec![
                Part::whole(TOKENS),
                Part::whole(CODES),
                Part::companion(CONDITIONING_MEL, settings.frames),
            ],
            ..Settings::default()
        };
        let plan = Batches::new(&*source, train.iter().copied(), batches.clone())?;
        let held_out = match validation {
            [] => None,
            records => {
                let settings = Settings {
                    tail: Tail::Short,
                    order: Order::Fixed,
                    ladder: Some(ladder(&plan, &source, records)),
                    ..batches
                };
                match Batches::new(&*source, records.iter().copied(), settings) {
                    Ok(batches) => Some(Arc::new(batches)),
                    // All of them longer than the model takes: there is nothing to validate on.
                    Err(myxtts_data::batch::PlanError::NoRecords { .. }) => None,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let stats = model.mel_stats(settings.sizes.conditioning.mels);
        let mut stage = GptStage {
            settings,
            share,
            recipe,
            engine,
            gpt,
            released,
            stats,
            source,
            batches: Arc::new(plan),
            held_out,
            loader: None,
            programs: HashMap::new(),
            recomputed: 0,
            memory: String::new(),
        };
        stage.fit()?;
        Ok(stage)
    }

    /// Chooses how many blocks are computed again so that the largest batch fits, and says what it takes.
    fn fit(&mut self) -> Result<(), TrainError> {
        let phase = if self.settings.accumulate > 1 { Phase::Middle } else { Phase::Step };
        let shapes: Vec<GptShape> = self
            .batches
            .layouts(self.share.world())?
            .iter()
            .map(|l| self.shape(l.rows(), l.rung()))
            .collect();
        let Some(limit) = self.settings.memory_limit else {
            self.memory = self.needed(&shapes, phase);
            return Ok(());
        };
        for recomputed in 0..=self.settings.sizes.layers {
            self.recomputed = recomputed;
            if self.need(&shapes, phase) <= limit {
                self.memory = self.needed(&shapes, phase);
                return Ok(());
            }
        }
        Err(TrainError::NoData(format!(
            "the largest batch needs {:.1} GiB with every block computed again, and training.memory_limit is {:.1} GiB: \
             lower data.batch_size or data.max_mel_frames",
            self.need(&shapes, phase) as f64 / GIB,
            limit as f64 / GIB
        )))
    }

    fn need(&self, shapes: &[GptShape], phase: Phase) -> u64 {
        let inputs: usize =
            shapes.iter().map(|&shape| MemoryPlan::of(&self.tape(shape, phase).0).input_bytes).sum();
        let scratch =
            shapes.iter().map(|&shape| MemoryPlan::of(&self.tape(shape, phase).0).scratch_bytes).max();
        (self.engine.memory().total() + inputs + scratch.unwrap_or(0)) as u64
    }

    fn needed(&self, shapes: &[GptShape], phase: Phase) -> String {
        let recomputed = match self.recomputed {
            0 => String::new(),
            n => format!(", {n} of {} blocks computed again", self.settings.sizes.layers),
        };
        format!("memory {:.2} GiB{recomputed}", self.need(shapes, phase) as f64 / GIB)
    }

    fn shape(&self, rows: u32, rung: myxtts_data::batch::Rung) -> GptShape {
        let (text, mel) = self.settings.masks.places(rung.tokens as usize, rung.frames as usize);
        GptShape { batch: rows as usize, frames: self.settings.frames as usize, text, mel }
    }

    fn tape(&self, shape: GptShape, phase: Phase) -> (Tape, GptInputs, GptTargets, Option<[Node; 2]>) {
        let mut tape = Tape::new(self.engine.layout().clone(), self.engine.precision());
        self.share.begin(&mut tape);
        let inputs = GptInputs::new(&mut tape, &self.settings.sizes, shape, self.settings.masks);
        let targets = GptTargets::new(&mut tape, shape);
        let options = match phase {
            Phase::Validate => GptOptions::default(),
            _ => GptOptions { dropout: self.recipe.dropout as f32, recomputed_blocks: self.recomputed },
        };
        let outputs = self.gpt.forward(&mut tape, &inputs, &options);
        let smoothing = if phase == Phase::Validate { 0.0 } else { self.recipe.label_smoothing as f32 };
        let weights = LossWeights { smoothing, ..Default::default() };
        let mut losses = self.gpt.losses(&mut tape, &outputs, &targets, weights);
        let mut shares = None;
        if phase != Phase::Validate && self.share.world() > 1 {
            // Means over this slice's targets, of which there are more or fewer than in other slices: each becomes its
            // part of the mean over the whole batch.
            let own = [(); 2].map(|()| tape.input([1], DType::F32));
            losses.text = tape.multiply(losses.text, own[0]);
            losses.mel = tape.multiply(losses.mel, own[1]);
            losses.total = tape.weighted_sum(&[(losses.text, weights.text), (losses.mel, weights.mel)]);
            shares = Some(own);
        }
        losses.note(&mut tape, 0);
        if phase != Phase::Validate {
            let accumulate = matches!(phase, Phase::Middle | Phase::Last);
            tape.backward(losses.total, Backward { recompute: Recompute::Norms, accumulate });
        }
        match phase {
            Phase::Step | Phase::Last => {
                self.share.reduce(&mut tape);
                let average = self.recipe.ema_decay.is_some();
                // Coqui's second beta: gradients of speech are noisier than those of text.
                tape.update(losses.total, AdamW { beta2: 0.96, average, ..AdamW::default() })
            }
            Phase::First | Phase::Middle | Phase::Validate => tape.tell(losses.total),
        }
        (tape, inputs, targets, shares)
    }

    fn ready(&mut self, shape: GptShape, phase: Phase) -> Result<(), TrainError> {
        if !self.programs.contains_key(&(shape, phase)) {
            let (tape, inputs, targets, shares) = self.tape(shape, phase);
            let program = self.engine.load(tape)?;
            self.programs.insert((shape, phase), Ready { program, inputs, targets, shares });
        }
        Ok(())
    }

    /// Puts a batch into a program's inputs and queues it.
    fn run(
        &mut self,
        bytes: &[u8],
        info: &BatchInfo,
        phase: Phase,
        control: &Control,
    ) -> Result<Submitted, TrainError> {
        let layout = &info.layout;
        let shape = self.shape(layout.rows(), layout.rung());
        self.ready(shape, phase)?;
        let sizes = &self.settings.sizes;
        let ints = |name: &str| -> &[i32] { bytemuck::cast_slice(field(bytes, layout, name)) };
        let rows = Rows {
            text: ints("tokens"),
            text_lengths: ints("tokens_rows"),
            codes: ints("codes"),
            code_lengths: ints("codes_rows"),
            prompts: &[],
        };
        let sequences = self.settings.masks.sequences(sizes, &rows)?;
        let mut mels: Vec<f32> =
            bytemuck::cast_slice(field(bytes, layout, "companion_conditioning_mel")).to_vec();
        for frame in mels.chunks_exact_mut(self.stats.len()) {
            frame.iter_mut().zip(&self.stats).for_each(|(x, s)| *x /= s);
        }
        let heard = ints("companion_conditioning_mel_rows");
        let ready = self.programs.get_mut(&(shape, phase)).expect("made above");
        let engine = &mut self.engine;
        if let Condition::Mels { mels: input, lengths } = ready.inputs.condition {
            if let Some(lengths) = lengths {
                repeat_frames(&mut mels, self.stats.len(), heard);
                let (frames, with_latents) = frame_lengths(sizes, heard);
                engine.write_i32(&ready.program, lengths.frames, &frames)?;
                engine.write_i32(&ready.program, lengths.with_latents, &with_latents)?;
            }
            engine.write(&ready.program, input, &mels)?;
        }
        for (value, data) in [
            (ready.inputs.text_in, &sequences.text_in),
            (ready.inputs.mel_in, &sequences.mel_in),
            (ready.inputs.key_mask, &sequences.key_mask),
            (ready.targets.text, &sequences.text_targets),
            (ready.targets.mel, &sequences.mel_targets),
        ] {
            engine.write_i32(&ready.program, value, data)?;
        }
        if let Some(shares) = ready.shares {
            let counted = [&sequences.text_targets, &sequences.mel_targets]
                .map(|targets| targets.iter().filter(|&&target| target >= 0).count() as f32);
            let all = self.share.totals(counted)?;
            for ((value, own), all) in shares.into_iter().zip(counted).zip(all) {
                engine.write(&ready.program, value, &[own / all.max(1.0)])?;
            }
        }
        let ticket = engine.submit(&mut ready.program, control)?;
        let records = ints("record").iter().filter(|&&r| r >= 0).map(|&r| r as u32).collect();
        Ok(Submitted { ticket, rows: u64::from(info.rows_valid), records })
    }

    fn batch(&mut self, step: u64) -> Result<myxtts_data::loader::Batch<HostSlab>, TrainError> {
        if self.loader.as_ref().is_none_or(|(next, _)| *next != step) {
            let options = self.share.loading(LoaderOptions {
                workers: self.settings.workers.max(1),
                depth: self.settings.depth.max(1),
                ..LoaderOptions::default()
            });
            let slabs = HostSlab::pool(options.depth + 2, self.batches.slab_bytes(self.share.world())?);
            let source: Arc<dyn RecordSource> = self.source.clone();
            let start = self.batches.state(step);
            self.loader = Some((step, Loader::start(source, self.batches.clone(), &start, options, slabs)?));
        }
        let (next, loader) = self.loader.as_mut().expect("started above");
        *next += 1;
        match loader.next() {
            Some(batch) => Ok(batch?),
            None => Err(TrainError::NoData("the batches ended before the steps did".into())),
        }
    }
}

const GIB: f64 = (1u64 << 30) as f64;

/// The bytes of a field; the stage asks for none that its own settings did not make.
fn field<'a>(bytes: &'a [u8], layout: &myxtts_data::batch::Layout, name: &str) -> &'a [u8] {
    let field = layout.field(name).unwrap_or_else(|| panic!("a batch has no field {name}"));
    &bytes[field.offset..field.offset + field.bytes]
}

/// Training's shapes, and a larger one where a held-out record needs it.
fn ladder(plan: &Batches, source: &WithCodes, records: &[u32]) -> Ladder {
    let mut rungs = plan.ladder().rungs().to_vec();
    let (tokens, codes) = (crate::beside::position(source, TOKENS), crate::beside::position(source, CODES));
    let longest = |column| records.iter().map(|&r| source.rows(r as usize, column)).max().unwrap_or(1);
    if let Some(last) = rungs.last().copied() {
        let (frames, text) = (longest(codes).max(last.frames), longest(tokens).max(last.tokens));
        if frames > last.frames || text > last.tokens {
            let rung = myxtts_data::batch::Rung {
                frames: frames.next_multiple_of(16),
                tokens: text.next_multiple_of(16),
            };
            rungs.pop_if(|last| last.frames >= rung.frames);
            rungs.push(rung);
        }
    }
    Ladder::new(rungs).unwrap_or_else(|| plan.ladder().clone())
}

/// Whether a parameter belongs to the embeddings or the first blocks.
fn is_frozen(name: &str, layers: usize) -> bool {
    match name.strip_prefix("gpt.gpt.h.") {
        Some(rest) => rest.split('.').next().and_then(|i| i.parse().ok()).is_some_and(|i: usize| i < layers),
        None => name.contains("embedding"),
    }
}

impl Stage for GptStage {
    fn kind(&self) -> Kind {
        Kind::Gpt
    }

    fn described(&self) -> Vec<String> {
        let sizes = &self.settings.sizes;
        let buckets = self.batches.buckets();
        let rows: Vec<u32> = buckets.iter().map(|bucket| bucket.rows).collect();
        vec![
            format!(
                "GPT {} x {}, {} heads, {} text tokens, {} codes: {:.1} M trained numbers",
                sizes.layers,
                sizes.width,
                sizes.heads,
                sizes.text_vocabulary,
                sizes.audio_vocabulary - 2,
                self.engine.layout().trained_count() as f64 / 1e6
            ),
            format!(
                "{} clips in {} lengths, {} to {} in a batch, {} batches an epoch; {}",
                self.batches.records(),
                buckets.len(),
                rows.iter().min().unwrap_or(&0),
                rows.iter().max().unwrap_or(&0),
                self.batches.batches_per_epoch(),
                self.memory
            ),
        ]
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let parts = self.settings.accumulate.max(1);
        let mut all = None::<Submitted>;
        for part in 0..parts {
            let mut batch = self.batch(step * parts + part)?;
            let phase = match part {
                _ if parts == 1 => Phase::Step,
                0 => Phase::First,
                _ if part + 1 == parts => Phase::Last,
                _ => Phase::Middle,
            };
            let info = batch.info().clone();
            // Batches of a step must not drop the same elements.
            let seed = control.seed.wrapping_add(part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let control = Control { weight: 1.0 / parts as f32, seed, ..*control };
            let now = self.run(batch.bytes(), &info, phase, &control)?;
            all = Some(match all {
                None => now,
                Some(mut before) => {
                    before.records.extend(now.records);
                    Submitted { ticket: now.ticket, rows: before.rows + now.rows, records: before.records }
                }
            });
        }
        all.ok_or_else(|| TrainError::NoData("a step of no batches".into()))
    }

    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        let [text, mel, correct, count] = [0, 1, 2, 3].map(|i| f64::from(report.notes[i]));
        vec![("text", text), ("codes", mel), ("accuracy", correct / count.max(1.0))]
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        let Some(batches) = self.held_out.clone() else { return Ok(None) };
        let source: Arc<dyn RecordSource> = self.source.clone();
        let count = batches.batches_per_epoch();
        let options = LoaderOptions { until: Some(count), ..LoaderOptions::default() };
        let slabs = HostSlab::pool(3, batches.slab_bytes(1)?);
        let loader = Loader::start(source, batches.clone(), &batches.state(0), options, slabs)?;
        let [mut text, mut mel, mut correct, mut counted] = [0.0; 4];
        for batch in loader {
            let mut batch = batch?;
            let info = batch.info().clone();
            let queued = self.run(batch.bytes(), &info, Phase::Validate, &Control::default())?;
            let report = self.engine.wait(queued.ticket)?;
            let [t, m, right, all] = [0, 1, 2, 3].map(|i| f64::from(report.notes[i]));
            text += t * all;
            mel += m * all;
            correct += right;
            counted += all;
        }
        if counted == 0.0 {
            return Ok(None);
        }
        let numbers =
            vec![("codes", mel / counted), ("text", text / counted), ("accuracy", correct / counted)];
        Ok(Some(Validation { score: mel / counted, numbers }))
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
        let sizes = json!(self.settings.sizes);
        let own: Vec<Released> = self
            .released
            .iter()
            .filter(|tensor| !myxtts_model::lora::is_adapter(&tensor.name))
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
