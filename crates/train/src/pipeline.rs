//! A run from its first stage to its last: what is missing is trained, in order, each stage on what the one before it made.

use crate::align::Alignments;
use crate::overlay::{WithCodes, position};
use crate::error::TrainError;
use crate::feed::{Depth, Feeding};
use crate::machine::Machine;
use crate::mirrored::{Build, Mirrored};
use crate::model::{DECODER, DVAE, GPT, Model};
use crate::ranks::{RankError, Ranks, lead};
use crate::samples::{Samples, Sentence};
use crate::session::Session;
use crate::replica_slice::ReplicaSlice;
use crate::sizes::Sizes;
use crate::stages::clips::Clips;
use crate::stages::codes::{self, codes_of};
use crate::stages::decoder::{DecoderSettings, DecoderStage};
use crate::stages::dvae::{DvaeSettings, DvaeStage, MelDevice, Spoken};
use crate::stages::gpt::{Conditioning, GptSettings, GptStage, Lengths, Regularization};
use crate::stages::latents::{self, latents_of};
use crate::stages::{self, ClipOrder, StageKind, Stage};
use crate::strategy::split;
use myxtts_data::batch::Rows;
use myxtts_data::features::Recipe as Features;
use myxtts_data::loader::FailureBudget;
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::Masks;
use myxtts_model::weights::Reading;
use myxtts_run::durable::fault::disk_from_env;
use myxtts_run::plan::{Masks as PlanMasks, Plan, PreprocessingMode, Recipe};
use myxtts_run::progress::Progress;
use myxtts_tensor::engine::Upload;
use myxtts_tensor::{Device, Mode};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The folder inside a run that holds its model.
pub const MODEL_FOLDER: &str = "model";
/// The file inside a run that holds its audio codes.
const CODES_FILE: &str = "codes.bin";

/// What is learnt from.
pub struct Corpus {
    /// Prepared records.
    pub source: Arc<dyn RecordSource>,
    /// Those that are learnt from.
    pub train: Vec<u32>,
    /// Those that are only measured on.
    pub validation: Vec<u32>,
    /// The vocabulary they were prepared with.
    pub tokenizer: Tokenizer,
    /// What is spoken on the way and at the end.
    pub sentences: Vec<Sentence>,
    /// Where batches are prepared, if not on the processor.
    pub data_side: Option<DataSide>,
}

/// A device that prepares batches for those that train: the mels of the DVAE's batches, audio codes once, the conditioning of the
/// GPT's batches, and the GPT's states for the decoder once.
#[derive(Clone)]
pub struct DataSide {
    /// The device.
    pub device: Device,
    /// The records, with sound in the place of conditioning mels and beside those of the DVAE.
    pub sounds: Arc<dyn RecordSource>,
    /// Batches that wait for the model.
    pub buffer_size: usize,
    /// How long the model waits at least.
    pub model_start_delay: Duration,
}

impl DataSide {
    /// How far ahead batches are made: full before the model starts, it is not for the measured waits to say how deep it is.
    fn depth(&self, depth: Option<Depth>) -> Option<Depth> {
        let most = self.buffer_size.max(2);
        depth.map(|depth| Depth { least: most, most, ..depth })
    }
}

/// Of a device's memory, what conditioning that stays there may take: a share that no batch misses.
const RESIDENT_SHARE: f64 = 1.0 / 16.0;

/// What is asked for beside the plan.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// This stage alone.
    pub only: Option<StageKind>,
    /// A model to begin from.
    pub from: Option<PathBuf>,
}

/// Steps of the stages in the order they run.
const ORDER: [StageKind; 3] = [StageKind::Dvae, StageKind::Gpt, StageKind::Decoder];

/// The devices and processes of a run.
#[derive(Clone, Copy)]
pub struct Devices<'a> {
    /// The devices of this process, at least one, with a replica on each.
    pub machines: &'a [Machine],
    /// The processes of the run, of which this is rank 0; `None` in a run of one process.
    pub ranks: Option<&'a Arc<Ranks>>,
}

/// Trains what is missing, with a replica on each of `machines`, of which there is at least one; or, as rank 0 of `ranks`, on
/// the first of them and on the other ranks. The model is in the run's folder when this returns, after every stage.
pub fn train(
    session: &mut Session<'_>,
    request: &Request,
    corpus: &Corpus,
    Devices { machines, ranks }: Devices<'_>,
) -> Result<Model, TrainError> {
    let plan = session.plan;
    let path = session.folder.path().join(MODEL_FOLDER);
    let disk = disk_from_env();
    let mut model = Model::open(&path)?;
    let fine_tune = request.from.is_some();
    if model.is_empty()
        && let Some(from) = &request.from
    {
        model = Model::open(from)?;
        if model.is_empty() {
            return Err(TrainError::NoData(format!(
                "{} is no model: `myxtts import` makes one of a checkpoint, and a run has one in its folder `model`",
                from.display()
            )));
        }
        if model.has(GPT) && !model.has(DVAE) && request.only != Some(StageKind::Dvae) {
            return Err(TrainError::NoData(format!(
                "{} has a GPT and no DVAE: a new one would give its audio codes another meaning; import the model again with \
                 --dvae",
                from.display()
            )));
        }
        // What is fine-tuned is made anew, beginning from what it was.
        model.set_begun(match request.only {
            Some(kind) => vec![part_of(kind)],
            None => vec![GPT],
        });
    }
    if let Some((before, after)) = model.adopt_vocabulary(&corpus.tokenizer, plan.training.seed)? {
        session.progress.say(&format!("the GPT's text tables grow from {before} rows to {after}"));
        if plan.training.lora_rank.is_some() || plan.training.freeze_layers > 0 {
            session.progress.say(
                "note: training.lora_rank and training.freeze_layers leave these tables as they are: new rows stay as drawn",
            );
        }
    }
    if let Some(before) = model.set_reading(reading(plan)) {
        session.progress.say(&format!(
            "note: the model was trained with data.cleaner {}, silence cut at {:?} dB and loudness {:?}; from now on it is \
             as this run has them",
            before.cleaner, before.trim_db, before.loudness_lufs
        ));
    }
    let due = |model: &Model, kind: StageKind, recipe: &Recipe| {
        let wanted = request.only.is_none_or(|only| only == kind);
        wanted && recipe.steps > 0 && (!model.has(part_of(kind)) || model.is_begun(part_of(kind)))
    };
    if due(&model, StageKind::Gpt, &plan.recipe(StageKind::Gpt, fine_tune)) {
        // Now, and not after an hour of the stage before it.
        if plan.data.frame_budget.is_none() {
            split(plan.data.batch_size, machines.len())?;
        }
    }
    if let Some(ranks) = ranks {
        let sizes = Sizes::of(plan, machines[0], &corpus.tokenizer, &model)?;
        for (kind, setting, rows) in [
            (StageKind::Dvae, "data.dvae_batch_size", sizes.dvae_rows as usize),
            (StageKind::Decoder, "data.decoder_batch_size", sizes.decoder_rows),
        ] {
            if due(&model, kind, &plan.recipe(kind, fine_tune)) {
                evenly(setting, rows, ranks.world())?;
            }
        }
    }
    if plan.training.sample_every > 0 && corpus.sentences.is_empty() {
        session.progress.say("nothing is held out (data.val_fraction), so nothing is spoken on the way");
    }
    let context = StageContext::of(plan, corpus, machines[0], session.folder.path(), session.progress);
    let context = StageContext { machines, ranks, stop: session.stop.clone(), ..ground };
    let mut before = 0;
    for kind in ORDER {
        let recipe = plan.recipe(kind, fine_tune);
        if due(&model, kind, &recipe) {
            run_stage(session, (kind, fine_tune), &recipe, before, &context, &mut model)?;
            model.finish_begun(part_of(kind));
            model.write(&*disk, &path)?;
            // What comes next may take long before its first step: codes or states of every clip.
            let last = request.only.is_some() || Some(&kind) == ORDER.last();
            if session.stop.load(Ordering::Relaxed) && !last {
                let run = session.folder.name().to_owned();
                return Err(TrainError::Stopped { stage: stages::name(kind), step: recipe.steps, run });
            }
        }
        before += recipe.steps;
    }
    if model.has(GPT) {
        session.final_samples(&context.samples(&model), before);
    }
    Ok(model)
}

/// Whether every rank can have as many rows as the others.
fn evenly(setting: &'static str, rows: usize, world: usize) -> Result<(), RankError> {
    match rows.is_multiple_of(world) {
        true => Ok(()),
        false => {
            let above = rows.next_multiple_of(world);
            let below = if above > world { above - world } else { above };
            Err(RankError::Uneven { setting, rows, world, below, above })
        }
    }
}

/// How text and recordings of a run are read: kept with its model, for whoever speaks with it.
fn reading(plan: &Plan) -> Reading {
    let features = Features::of(&plan.data);
    Reading {
        cleaner: features.cleaner.to_string(),
        trim_db: features.trim_db,
        loudness_lufs: features.loudness_lufs,
    }
}

fn part_of(kind: StageKind) -> &'static str {
    match kind {
        StageKind::Dvae => DVAE,
        StageKind::Gpt => GPT,
        StageKind::Decoder => DECODER,
    }
}

/// What a stage is made of, beside the model.
pub struct StageContext<'a> {
    /// Its settings.
    pub plan: &'a Plan,
    /// What it learns from.
    pub corpus: &'a Corpus,
    /// Where it runs, or its first replica.
    pub machine: Machine,
    /// Where its replicas run; none where there is one alone.
    pub machines: &'a [Machine],
    /// Processes that share every batch, each with one replica; none where this one is alone.
    pub ranks: Option<&'a Arc<Ranks>>,
    /// The file that keeps audio codes, or will.
    pub codes: PathBuf,
    /// How batches come to the device.
    pub feeding: Feeding,
    /// Where the conditioning of the GPT's batches comes from.
    pub conditioning: Conditioning,
    /// Lengths that the GPT's batches are padded to.
    pub lengths: Lengths,
    /// Recorded, or kernel by kernel.
    pub mode: Mode,
    /// Who is told how far codes and latents are.
    pub progress: &'a dyn Progress,
    /// Raised when they are to be left.
    pub stop: Arc<AtomicBool>,
}

impl<'a> StageContext<'a> {
    /// As a plan has it, in a folder.
    pub fn of(
        plan: &'a Plan,
        corpus: &'a Corpus,
        machine: Machine,
        folder: &Path,
        progress: &'a dyn Progress,
    ) -> StageContext<'a> {
        let mode = match (plan.training.enable_eager_debug, plan.training.enable_graph_mode) {
            (true, _) => Mode::Checked,
            (false, true) => Mode::Captured,
            (false, false) => Mode::Eager,
        };
        StageContext {
            plan,
            corpus,
            machine,
            machines: &[],
            ranks: None,
            codes: folder.join(CODES_FILE),
            feeding: feeding(plan),
            conditioning: conditioning(plan, corpus, machine),
            lengths: lengths(plan),
            mode,
            progress,
            stop: Arc::default(),
        }
    }

    /// Replicas that share every batch.
    fn replicas(&self) -> usize {
        self.ranks.map_or(self.machines.len(), |ranks| ranks.world())
    }

    /// A stage, ready for its first step.
    pub fn stage(
        &self,
        kind: StageKind,
        recipe: &Recipe,
        model: &mut Model,
    ) -> Result<Box<dyn Stage>, TrainError> {
        let &StageContext { plan, corpus, machine, feeding, lengths, mode, progress, .. } = self;
        let sizes = Sizes::of(plan, machine, &corpus.tokenizer, model)?;
        let (seed, source, recipe) = (plan.training.seed, corpus.source.clone(), *recipe);
        let sides: (Arc<[u32]>, Arc<[u32]>) = (corpus.train[..].into(), corpus.validation[..].into());
        match kind {
            StageKind::Dvae => {
                let spoken = self.spoken(&sizes)?;
                let mut settings = DvaeSettings { mode, feeding, spoken, ..dvae_settings(plan, &sizes) };
                if let Some(side) = &corpus.data_side {
                    settings.feeding.depth = side.depth(settings.feeding.depth);
                    settings.mels = Some(MelDevice {
                        device: side.device,
                        sounds: side.sounds.clone(),
                        start_delay: side.model_start_delay,
                    });
                }
                self.placed(settings.rows as usize, model, move |machine, slice, model| {
                    let (settings, source, sides) =
                        (settings.clone(), source.clone(), (&*sides.0, &*sides.1));
                    Ok(Box::new(DvaeStage::replica(slice, settings, recipe, machine, source, sides, model)?))
                })
            }
            StageKind::Gpt => {
                let mut settings = GptSettings {
                    feeding,
                    lengths,
                    mode,
                    conditioning: self.conditioning.clone(),
                    rows: gpt_rows(plan, self.replicas()),
                    ..gpt_settings(plan, &sizes)
                };
                if let Some(side) = &corpus.data_side {
                    settings.feeding.depth = side.depth(settings.feeding.depth);
                    settings.start_delay = Some(side.model_start_delay);
                }
                let source = self.with_codes(model)?;
                settings.regularization = self.regularization(&source)?;
                let rows = match plan.data.frame_budget {
                    // Batches of whatever length come in multiples of it.
                    Some(_) => self.replicas().max(1),
                    None => plan.data.batch_size,
                };
                self.placed(rows, model, move |machine, slice, model| {
                    let (settings, source, sides) =
                        (settings.clone(), source.clone(), (&*sides.0, &*sides.1));
                    Ok(Box::new(GptStage::replica(slice, settings, recipe, machine, source, sides, model)?))
                })
            }
            StageKind::Decoder => {
                let how = (sizes.conditioning_frames, seed, &corpus.tokenizer, feeding.failures);
                let coded = self.with_codes(model)?;
                let make = || latents_of(&coded, model, self.data_machine(), how, (progress, &self.stop));
                let latents = match self.ranks {
                    None => make()?,
                    Some(ranks) => ranks.broadcast(make, |latents| latents::encode(latents), latents::decode)?,
                };
                let settings = DecoderSettings {
                    decoder: sizes.decoder.clone(),
                    speaker: sizes.speaker.clone(),
                    discriminators: sizes.discriminators.clone(),
                    rows: sizes.decoder_rows,
                    window: sizes.decoder_window,
                    heard: sizes.speaker_frames,
                    discriminators_from: sizes.discriminators_from,
                    balance: plan.data.balance_temperature,
                    order: clip_order(plan),
                    mode,
                    feeding,
                    seed,
                    memory_limit: plan.training.memory_limit,
                };
                let clips = Arc::new(Clips::load(&settings, &*source, latents, (&*sides.0, &*sides.1))?);
                self.placed(settings.rows, model, move |machine, slice, model| {
                    let (settings, source, clips) = (settings.clone(), source.clone(), clips.clone());
                    Ok(Box::new(DecoderStage::replica(
                        slice, settings, recipe, machine, source, clips, model,
                    )?))
                })
            }
        }
    }

    /// A stage on one machine, or a replica of it on as many as a batch of so many rows can be split over: the user has no
    /// say in how large the batches of some stages are, so that there one of three may stay idle.
    fn placed(
        &self,
        rows: usize,
        model: &mut Model,
        build: impl Fn(Machine, ReplicaSlice, &Model) -> Result<Box<dyn Stage>, TrainError> + Send + Sync + 'static,
    ) -> Result<Box<dyn Stage>, TrainError> {
        let rounded = self.plan.training.reduce_bf16;
        if let Some(ranks) = self.ranks {
            let build = |slice: ReplicaSlice| build(self.machine, slice.rounded(rounded), model);
            return match ranks.is_lead() {
                true => Ok(Box::new(lead::Distributed::new(ranks, self.machine, build)?)),
                false => build(lead::slice(ranks)),
            };
        }
        let most = (1..=self.machines.len()).rev().find(|&n| rows.is_multiple_of(n)).unwrap_or(1);
        if most == 1 {
            return build(self.machine, ReplicaSlice::WHOLE, model);
        }
        // Replicas are made on their own threads, of one model in memory.
        let whole = Arc::new(std::mem::take(model));
        let of = whole.clone();
        let build: Build = Arc::new(move |machine, slice: ReplicaSlice| build(machine, slice.rounded(rounded), &of));
        let stage = Mirrored::new(&self.machines[..most], &build);
        drop(build);
        *model = Arc::try_unwrap(whole).unwrap_or_else(|whole| (*whole).clone());
        let mut stage = stage?;
        stage.set_idle(self.machines.len() - most);
        Ok(Box::new(stage))
    }

    /// What is spoken of a model, on the way and at the end.
    fn samples<'b>(&'b self, model: &'b Model) -> Samples<'b> {
        Samples {
            sentences: &self.corpus.sentences,
            source: &*self.corpus.source,
            model,
            machine: self.machine,
            cleaner: Features::of(&self.plan.data).cleaner,
            memory_limit: self.plan.training.memory_limit,
        }
    }

    /// What comes before a stage, as it begins: how long a step takes does not depend on what it says.
    pub fn untrained(&self, stage: StageKind) -> Result<Model, TrainError> {
        let mut model = Model::default();
        model.set_vocabulary(&self.corpus.tokenizer);
        for before in ORDER.into_iter().take_while(|before| *before != stage) {
            let recipe = self.plan.recipe(before, false);
            self.stage(before, &recipe, &mut model)?.finish(&mut model, false)?;
        }
        Ok(model)
    }

    /// What keeps the GPT from learning clips by heart, with the alignments that needs.
    fn regularization(&self, source: &Arc<WithCodes>) -> Result<Regularization, TrainError> {
        let training = &self.plan.training;
        let mut made = Regularization {
            masking: training.code_masking.unwrap_or(0.0),
            recombination: training.recombination.unwrap_or(0.0),
            alignment_weight: training.alignment_weight.unwrap_or(0.0),
            diagonal: training.diagonal_start.unwrap_or(false),
            codebook_start: training.codebook_start.unwrap_or(false),
            text_dropout: training.text_dropout.unwrap_or(0.0),
            alignments: None,
            space: self.corpus.tokenizer.space_id(),
        };
        if made.needs_alignments() {
            made.alignments = Some(self.alignments(&|record| source.codes(record as usize).len())?);
        }
        Ok(made)
    }

    /// The tokens that the DVAE's codes are asked for, where they are.
    fn spoken(&self, sizes: &Sizes) -> Result<Option<Spoken>, TrainError> {
        let weight = self.plan.training.code_token_weight.unwrap_or(0.0);
        if weight <= 0.0 {
            return Ok(None);
        }
        let source = &*self.corpus.source;
        let mel = position(source, DVAE_MEL);
        let alignments =
            self.alignments(&|record| sizes.dvae.codes_of(source.rows(record as usize, mel) as usize))?;
        Ok(Some(Spoken { weight, vocabulary: self.corpus.tokenizer.vocabulary_size(), alignments }))
    }

    /// Which token is spoken at each code of the clips that are learnt from; `codes_of` counts a record's codes.
    fn alignments(&self, codes_of: &(dyn Fn(u32) -> usize + Sync)) -> Result<Arc<Alignments>, TrainError> {
        self.progress.start("alignment of text and codes", 1);
        let Corpus { source, train, tokenizer, .. } = self.corpus;
        let aligned = Alignments::of(&**source, train, tokenizer, codes_of, &self.stop);
        self.progress.finish();
        Ok(Arc::new(aligned?))
    }

    /// Where what is made once of all records is made: audio codes, and the GPT's states over them.
    fn data_machine(&self) -> Machine {
        match &self.corpus.data_side {
            Some(side) => Machine::choose(Some(side.device)).unwrap_or(self.machine),
            None => self.machine,
        }
    }

    fn with_codes(&self, model: &Model) -> Result<Arc<WithCodes>, TrainError> {
        let (source, disk) = (&self.corpus.source, disk_from_env());
        let told = (self.progress, &*self.stop);
        let make = || codes_of(&**source, model, self.data_machine(), (&*disk, &self.codes), told);
        let codes = match self.ranks {
            None => make()?,
            Some(ranks) => {
                ranks.broadcast(make, |all| codes::encode(all), |bytes| codes::decode(bytes, source.len()))?
            }
        };
        Ok(Arc::new(WithCodes::new(source.clone(), codes)))
    }
}

fn run_stage(
    session: &mut Session<'_>,
    (kind, fine_tune): (StageKind, bool),
    recipe: &Recipe,
    before: u64,
    context: &StageContext<'_>,
    model: &mut Model,
) -> Result<(), TrainError> {
    let name = stages::name(kind);
    if let Some(ranks) = context.ranks {
        lead::begin_stage(ranks, kind, fine_tune, model)?;
    }
    let mut stage = match context.stage(kind, recipe, model) {
        Err(TrainError::Interrupted) => {
            // Before its first step, or before it went on from a later one.
            let last = session.last_of(name)?;
            let step = last.and_then(|last| last.checkpoint.meta["step"].as_u64()).unwrap_or(0);
            return Err(TrainError::Stopped { stage: name, step, run: session.folder.name().to_owned() });
        }
        stage => stage?,
    };
    let last = session.last_of(name)?;
    let samples = context.samples(model);
    let spoken = (context.plan.training.sample_every > 0 && !samples.sentences.is_empty()).then_some(&samples);
    let done = session.run(&mut *stage, recipe, before, last, spoken)?;
    // Averages are in their places already: the stage holds what was measured.
    stage.finish(model, false)?;
    let chosen = done.chosen;
    let how = json!({ "steps": done.steps, "kept_step": chosen.map_or(done.steps, |chosen| chosen.step),
                      "validation": chosen.map(|chosen| chosen.score) });
    model.set_trained(part_of(kind), how);
    Ok(())
}

pub(crate) fn dvae_settings(plan: &Plan, sizes: &Sizes) -> DvaeSettings {
    DvaeSettings {
        sizes: sizes.dvae.clone(),
        rows: sizes.dvae_rows,
        frames: sizes.dvae_frames,
        balance: plan.data.balance_temperature,
        order: clip_order(plan),
        mode: Mode::default(),
        feeding: feeding(plan),
        seed: plan.training.seed,
        memory_limit: plan.training.memory_limit,
        spoken: None,
        mels: None,
    }
}

fn clip_order(plan: &Plan) -> ClipOrder {
    ClipOrder { shuffled: plan.data.shuffle, worst_first: plan.data.worst_batch_first }
}

/// Mel frames that a code stands for: settings count in frames, batches of the GPT in codes.
const FRAMES_OF_CODE: u64 = 4;

/// Rows of the GPT's batches, which so many replicas share.
pub(crate) fn gpt_rows(plan: &Plan, replicas: usize) -> Rows {
    match plan.data.frame_budget {
        None => Rows::Fixed(plan.data.batch_size as u32),
        Some(frames) => Rows::Budget {
            frames: (frames as u64 / FRAMES_OF_CODE).max(1),
            quadratic: plan
                .data
                .quadratic_frames
                .map(|frames| (frames / FRAMES_OF_CODE as f64).round().max(1.0) as u32),
            multiple: replicas.max(1) as u32,
        },
    }
}

pub(crate) fn gpt_settings(plan: &Plan, sizes: &Sizes) -> GptSettings {
    GptSettings {
        sizes: sizes.gpt.clone(),
        rows: gpt_rows(plan, 1),
        order: clip_order(plan),
        frames: sizes.conditioning_frames,
        balance: plan.data.balance_temperature,
        masks: match plan.model.masks {
            PlanMasks::Corrected => Masks::Corrected,
            PlanMasks::Coqui => Masks::Coqui,
        },
        accumulate: plan.training.gradient_accumulation_steps as u64,
        mode: Mode::default(),
        feeding: feeding(plan),
        conditioning: Conditioning::Fed,
        start_delay: None,
        lengths: lengths(plan),
        seed: plan.training.seed,
        memory_limit: plan.training.memory_limit,
        freeze_layers: plan.training.freeze_layers,
        lora_rank: plan.training.lora_rank,
        regularization: Regularization::default(),
    }
}

/// Where the conditioning of the GPT's batches comes from, on a device.
pub(crate) fn conditioning(plan: &Plan, corpus: &Corpus, machine: Machine) -> Conditioning {
    let cached = plan.data.native_loading && plan.data.preprocessing_mode != PreprocessingMode::Runtime;
    match &corpus.data_side {
        Some(DataSide { device, sounds, .. }) => {
            Conditioning::Sound { device: *device, sounds: sounds.clone() }
        }
        // On the processor there is nothing nearer to it, and without a cache there are no mels yet.
        None if plan.data.keep_on_device && cached && machine.device != Device::Cpu => {
            Conditioning::Resident { at_most: RESIDENT_SHARE }
        }
        None => Conditioning::Fed,
    }
}

/// As a plan has it; every switch shows what it buys when it is off, and none changes a bit of what is learnt.
fn feeding(plan: &Plan) -> Feeding {
    let data = &plan.data;
    Feeding {
        workers: data.num_workers,
        upload: match (data.prefetch_to_gpu, data.enhanced_gpu_prefetch) {
            (true, true) => Upload::Ahead,
            (true, false) => Upload::AheadPageable,
            (false, _) => Upload::InTurn,
        },
        depth: Some(Depth::of(data.prefetch_buffer_size)),
        under_way: data.buffer_size,
        failures: FailureBudget { rate: data.failure_budget, ..FailureBudget::default() },
        planted: None,
    }
}

fn lengths(plan: &Plan) -> Lengths {
    Lengths { buckets: plan.data.buckets as u32, ..Lengths::default() }
}
