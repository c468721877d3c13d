//! A GPT stage without a device: its network, batches and step tapes, and from these the memory it will need.

use super::conditioning_feed::{ConditioningKind, parts};
use super::fill::Filler;
use super::{GptSettings, Phase, Shares, acoustic_targets};
use crate::error::TrainError;
use crate::overlay::CODES;
use crate::replica_slice::{ReplicaSlice, Replicas};
use crate::stages::RecordSplit;
use myxtts_data::batch::{Ladder, Order, Plan as Batches, PlanError, Rows, Settings, Tail};
use myxtts_data::record::{RecordSource, TOKENS};
use myxtts_model::{Declare, Gpt, GptOptions, GptShape, LossWeights, Released};
use myxtts_run::plan::Recipe;
use myxtts_tensor::collective::Replica;
use myxtts_tensor::engine::Forecast;
use myxtts_tensor::memory::MemoryPlan;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::parameters::Layout;
use myxtts_tensor::{Backward, DType, Device, EngineOptions, Recompute, Tape, Training, Value};
use std::sync::Arc;

/// The network, its parameters, and their names in released files.
pub(super) fn network(settings: &GptSettings, recipe: &Recipe) -> (Gpt, Arc<Layout>, Vec<Released>) {
    let frozen = settings.freeze_layers;
    let lora = settings.lora_rank;
    let trained = move |name: &str| match lora {
        _ if myxtts_model::declare::is_training_only(name) => true,
        Some(_) => myxtts_model::lora::is_adapter(name),
        None => frozen == 0 || !is_frozen(name, frozen),
    };
    let mut declare = Declare::new(recipe.weight_decay as f32, &trained);
    let mut gpt = Gpt::declare(&mut declare, settings.sizes.clone());
    if let Some(rank) = lora {
        gpt.add_lora(&mut declare, &myxtts_model::LoraSizes { rank, ..Default::default() });
    }
    if settings.regularization.aligns() {
        gpt.add_alignment_head(&mut declare);
    }
    if settings.regularization.acoustic_weight > 0.0 {
        gpt.add_acoustic_head(&mut declare, acoustic_targets::channels(&settings.sizes));
    }
    let (layout, released) = declare.finish();
    (gpt, layout, released)
}

/// Options of its engine.
pub(super) fn options(settings: &GptSettings, recipe: &Recipe) -> EngineOptions {
    let training = match recipe.ema_decay {
        Some(_) => Training::AdamWithAverage,
        None => Training::Adam,
    };
    EngineOptions { training, mode: settings.mode, seed: settings.seed, ..EngineOptions::default() }
}

/// Training batches of the records as they are fed, and validation batches.
pub(crate) fn batches(
    settings: &GptSettings,
    source: &dyn RecordSource,
    (records, kind): (&dyn RecordSource, ConditioningKind),
    RecordSplit { train, validation }: RecordSplit<'_>,
) -> Result<(Batches, Option<Batches>), TrainError> {
    let batches = Settings {
        seed: myxtts_run::seed::Seed::new(settings.seed).derive("gpt"),
        rows: settings.rows,
        order: settings.order.order(),
        worst_first: settings.order.worst_first,
        buckets: settings.lengths.buckets,
        frame_unit: settings.lengths.unit,
        token_unit: settings.lengths.unit,
        length: CODES,
        max_frames: Some(settings.sizes.max_audio as u32),
        max_tokens: Some(settings.sizes.max_text as u32),
        balance: settings.balance,
        parts: parts(settings.frames, ConditioningKind::Mels),
        ..Settings::default()
    };
    let own = Settings { parts: parts(settings.frames, kind), ..batches.clone() };
    let plan = Batches::new(records, train.iter().copied(), own)?;
    if validation.is_empty() {
        return Ok((plan, None));
    }
    let held_out = Settings {
        tail: Tail::Short,
        order: Order::Fixed,
        worst_first: false,
        ladder: Some(ladder(&plan, source, validation)),
        balance: 1.0,
        ..batches
    };
    match Batches::new(source, validation.iter().copied(), held_out) {
        Ok(held_out) => Ok((plan, Some(held_out))),
        // All validation records are longer than the model allows: there is nothing to validate on.
        Err(PlanError::NoRecords { .. }) => Ok((plan, None)),
        Err(error) => Err(error.into()),
    }
}

/// Builds the tapes of a stage.
pub(super) struct StepBuilder<'a> {
    pub settings: &'a GptSettings,
    pub slice: &'a ReplicaSlice,
    pub recipe: &'a Recipe,
    pub gpt: &'a Gpt,
    pub filler: &'a Filler,
    pub batches: &'a Batches,
    pub held_out: Option<&'a Batches>,
    pub recomputed: usize,
}

impl StepBuilder<'_> {
    /// Total bytes: `held` for weights and optimiser state, the inputs of every shape, the activations of the largest shape
    /// and, on a GPU, waiting batches.
    pub fn need(
        &self,
        held: usize,
        gpu: bool,
        plan_of: &dyn Fn(&Tape) -> MemoryPlan,
    ) -> Result<(usize, Vec<MemoryPlan>), TrainError> {
        let shapes = |batches: &Batches, ranks| -> Result<Vec<GptShape>, TrainError> {
            let layouts = batches.layouts(ranks)?;
            Ok(layouts.iter().map(|layout| self.filler.shape(layout.rows(), layout.rung())).collect())
        };
        let phases: &[Phase] = match self.settings.accumulate {
            0 | 1 => &[Phase::Step],
            2 => &[Phase::First, Phase::Last],
            _ => &[Phase::First, Phase::Middle, Phase::Last],
        };
        let mut plans = Vec::new();
        for shape in shapes(self.batches, self.slice.world())? {
            plans.extend(phases.iter().map(|&phase| plan_of(&self.tape(shape, phase).0)));
        }
        if let Some(held_out) = self.held_out {
            for shape in shapes(held_out, 1)? {
                plans.push(plan_of(&self.tape(shape, Phase::Validate).0));
            }
        }
        let inputs: usize = plans.iter().map(|plan| plan.input_bytes).sum();
        let scratch = plans.iter().map(|plan| plan.scratch_bytes).max().unwrap_or(0);
        let slot = self.filler.slot_bytes(self.batches, self.slice.world())?;
        let waiting = match (gpu, self.settings.feeding.depth) {
            (true, Some(depth)) => depth.slots(slot) * slot,
            _ => 0,
        };
        Ok((held + inputs + scratch + waiting, plans))
    }

    /// The tape of a program.
    pub fn tape(&self, shape: GptShape, phase: Phase) -> (Tape, Shares) {
        let (mut tape, inputs, targets) = self.filler.tape(shape);
        self.slice.begin(&mut tape);
        let options = match phase {
            Phase::Validate => GptOptions::default(),
            _ => GptOptions { dropout: self.recipe.dropout as f32, recomputed_blocks: self.recomputed },
        };
        let outputs = self.gpt.forward_with_heads(&mut tape, &inputs, &options);
        let smoothing = if phase == Phase::Validate { 0.0 } else { self.recipe.label_smoothing as f32 };
        let weights = LossWeights {
            alignment: self.settings.regularization.alignment_weight as f32,
            acoustic: self.settings.regularization.acoustic_weight as f32,
            smoothing,
            ..Default::default()
        };
        let mut losses = self.gpt.losses(&mut tape, &outputs, &targets, weights);
        let mut shares = None;
        if phase != Phase::Validate && self.slice.world() > 1 {
            // Losses are means over this slice's targets, whose number differs between slices: each is scaled to its part of
            // the mean over the whole batch.
            let kinds = if losses.alignment.is_some() { 3 } else { 2 };
            let own: Vec<Value> = (0..kinds).map(|_| tape.input([1], DType::F32)).collect();
            losses.text = tape.multiply(losses.text, own[0]);
            losses.mel = tape.multiply(losses.mel, own[1]);
            // A slice may have no such target, if a row lost its text or a clip could not be aligned.
            losses.alignment = losses.alignment.map(|(loss, correct)| (tape.multiply(loss, own[2]), correct));
            // All slices have the same number of positions.
            let part = 1.0 / self.slice.world() as f32;
            losses.acoustic = losses.acoustic.map(|loss| tape.scale(loss, part));
            losses.total = losses.weighted(&mut tape, weights);
            shares = Some(own);
        }
        losses.note(&mut tape, 0);
        if phase != Phase::Validate {
            let accumulate = matches!(phase, Phase::Middle | Phase::Last);
            tape.backward(losses.total, Backward { recompute: Recompute::Norms, accumulate });
        }
        match phase {
            Phase::Step | Phase::Last => {
                self.slice.reduce(&mut tape);
                let average = self.recipe.ema_decay.is_some();
                // Coqui's second beta: gradients of speech are noisier than those of text.
                tape.update(losses.total, AdamW { beta2: 0.96, average, ..AdamW::default() })
            }
            Phase::First | Phase::Middle | Phase::Validate => tape.report_loss(losses.total),
        }
        (tape, shares)
    }
}

/// The memory that a GPT stage would need on each of its devices, for any batch, before there is a stage: no device is
/// opened.
pub struct GptForecast<'a> {
    settings: GptSettings,
    recipe: Recipe,
    slice: ReplicaSlice,
    gpt: Gpt,
    filler: Filler,
    forecast: Forecast,
    device: Device,
    /// All memory of the device; unlimited if it is not known.
    memory: u64,
    source: &'a dyn RecordSource,
    split: RecordSplit<'a>,
}

impl<'a> GptForecast<'a> {
    /// The forecast of a stage with `replicas` replicas; only the lengths of records are read.
    pub fn new(
        settings: GptSettings,
        recipe: Recipe,
        Replicas { machine, count: replicas }: Replicas,
        source: &'a dyn RecordSource,
        split: RecordSplit<'a>,
    ) -> GptForecast<'a> {
        let (gpt, layout, _) = network(&settings, &recipe);
        let forecast =
            Forecast::new(machine.device, &layout, machine.precision, &options(&settings, &recipe));
        let stats = vec![1.0; settings.sizes.conditioning.mels];
        let mut filler = Filler::new(
            settings.sizes.clone(),
            (settings.masks, settings.frames, stats),
            (layout, machine.precision),
        );
        filler.aligned = settings.regularization.aligns();
        if settings.regularization.acoustic_weight > 0.0 {
            filler.acoustic_channels = acoustic_targets::channels(&settings.sizes);
        }
        let slice = match replicas {
            0 | 1 => ReplicaSlice::WHOLE,
            // The other replicas only count; they never run.
            n => ReplicaSlice::of(Arc::new(Replica::group(n).swap_remove(0))),
        };
        let (device, memory) = (machine.device, u64::MAX);
        GptForecast { settings, recipe, slice, gpt, filler, forecast, device, memory, source, split }
    }

    /// Sets the memory of the device, in bytes: resident conditioning may take a share of it.
    pub fn on_memory_of(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Bytes per device with batches of `rows` rows in all and steps of `accumulate` batches, including resident
    /// conditioning, without waiting batches.
    pub fn planned(&self, rows: usize, accumulate: usize) -> Result<u64, TrainError> {
        let mut settings = self.settings_of(rows);
        settings.accumulate = accumulate as u64;
        settings.feeding.depth = None;
        let (batches, held_out) =
            batches(&settings, self.source, (self.source, ConditioningKind::Mels), self.split)?;
        let builder = StepBuilder {
            settings: &settings,
            slice: &self.slice,
            recipe: &self.recipe,
            gpt: &self.gpt,
            filler: &self.filler,
            batches: &batches,
            held_out: held_out.as_ref(),
            recomputed: 0,
        };
        let rows = batches.layouts(self.slice.world())?.iter().map(|layout| layout.rows() as usize).collect();
        let device = (self.device, self.memory);
        let held = self.forecast.memory().total()
            + super::conditioning_feed::planned(&settings, self.source, device, &rows);
        Ok(builder.need(held, false, &|tape| self.forecast.plan_of(tape))?.0 as u64)
    }

    /// Bytes of one batch that waits on a device.
    pub fn waiting(&self, rows: usize) -> Result<u64, TrainError> {
        let (batches, _) = batches(
            &self.settings_of(rows),
            self.source,
            (self.source, ConditioningKind::Mels),
            RecordSplit { validation: &[], ..self.split },
        )?;
        Ok(self.filler.slot_bytes(&batches, self.slice.world())? as u64)
    }

    fn settings_of(&self, rows: usize) -> GptSettings {
        let rows = match self.settings.rows {
            Rows::Fixed(_) => Rows::Fixed(rows as u32),
            budget => budget,
        };
        GptSettings { rows, ..self.settings.clone() }
    }
}

/// The shapes of training, and a larger one if a validation record needs it.
fn ladder(plan: &Batches, source: &dyn RecordSource, records: &[u32]) -> Ladder {
    let mut rungs = plan.ladder().rungs().to_vec();
    let (tokens, codes) = (crate::overlay::position(source, TOKENS), crate::overlay::position(source, CODES));
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
