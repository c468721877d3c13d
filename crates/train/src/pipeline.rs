//! A run from its first stage to its last: what is missing is trained, in order, each stage on what the one before it made.

use crate::beside::WithCodes;
use crate::error::TrainError;
use crate::machine::Machine;
use crate::mirrored::{Build, Mirrored};
use crate::model::{DECODER, DVAE, GPT, Model};
use crate::session::Session;
use crate::share::Share;
use crate::sizes::Sizes;
use crate::stages::clips::Clips;
use crate::stages::codes::codes_of;
use crate::stages::decoder::{DecoderSettings, DecoderStage};
use crate::stages::dvae::{DvaeSettings, DvaeStage};
use crate::stages::gpt::{GptSettings, GptStage};
use crate::stages::latents::latents_of;
use crate::stages::{self, Kind, Stage};
use crate::strategy::split;
use myxtts_data::batch::Rows;
use myxtts_data::record::RecordSource;
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::Masks;
use myxtts_run::durable::fault::disk_of_environment;
use myxtts_run::plan::{Masks as PlanMasks, Plan, Recipe};
use myxtts_run::progress::Progress;
use myxtts_tensor::Mode;
use std::path::PathBuf;
use std::sync::Arc;

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
}

/// What is asked for beside the plan.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// This stage alone.
    pub only: Option<Kind>,
    /// A model to begin from.
    pub from: Option<PathBuf>,
}

/// Steps of the stages in the order they run.
const ORDER: [Kind; 3] = [Kind::Dvae, Kind::Gpt, Kind::Decoder];

/// Trains what is missing, with a replica on each of `machines`, of which there is at least one. The model is in the run's
/// folder when this returns, after every stage.
pub fn train(
    session: &mut Session<'_>,
    request: &Request,
    corpus: &Corpus,
    machines: &[Machine],
    progress: &dyn Progress,
) -> Result<Model, TrainError> {
    let plan = session.plan;
    let path = session.folder.path().join(MODEL_FOLDER);
    let disk = disk_of_environment();
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
        // What is fine-tuned is made anew, beginning from what it was.
        model.set_begun(match request.only {
            Some(kind) => vec![part_of(kind)],
            None => vec![GPT],
        });
    }
    model.set_vocabulary(&corpus.tokenizer);
    let due = |model: &Model, kind: Kind, recipe: &Recipe| {
        let wanted = request.only.is_none_or(|only| only == kind);
        wanted && recipe.steps > 0 && (!model.has(part_of(kind)) || model.is_begun(part_of(kind)))
    };
    if due(&model, Kind::Gpt, &plan.recipe(Kind::Gpt, fine_tune)) {
        // Now, and not after an hour of the stage before it.
        split(plan.data.batch_size, machines.len())?;
    }
    let mut before = 0;
    for kind in ORDER {
        let recipe = plan.recipe(kind, fine_tune);
        if due(&model, kind, &recipe) {
            run_stage(session, kind, &recipe, before, corpus, machines, &mut model, progress)?;
            model.finish_begun(part_of(kind));
            model.write(&*disk, &path)?;
        }
        before += recipe.steps;
    }
    Ok(model)
}

fn part_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Dvae => DVAE,
        Kind::Gpt => GPT,
        Kind::Decoder => DECODER,
    }
}

#[allow(clippy::too_many_arguments)] // the whole of a run meets here, once
fn run_stage(
    session: &mut Session<'_>,
    kind: Kind,
    recipe: &Recipe,
    before: u64,
    corpus: &Corpus,
    machines: &[Machine],
    model: &mut Model,
    progress: &dyn Progress,
) -> Result<(), TrainError> {
    let (plan, machine) = (session.plan, machines[0]);
    let sizes = Sizes::of(plan, machine, &corpus.tokenizer, model)?;
    let mode = if plan.training.enable_graph_mode && !plan.training.enable_eager_debug {
        Mode::Captured
    } else {
        Mode::Eager
    };
    let seed = plan.training.seed;
    let sides: (Arc<[u32]>, Arc<[u32]>) = (corpus.train[..].into(), corpus.validation[..].into());
    let (average, recipe) = (recipe.ema_decay.is_some(), *recipe);
    let mut stage = match kind {
        Kind::Dvae => {
            let settings = DvaeSettings {
                sizes: sizes.dvae.clone(),
                rows: sizes.dvae_rows,
                frames: sizes.dvae_frames,
                mode,
                workers: plan.data.num_workers,
                seed,
            };
            let source = corpus.source.clone();
            let some = sharing(session, machines, settings.rows as usize);
            placed(some, model, move |machine, share, model| {
                let (settings, source, sides) = (settings.clone(), source.clone(), (&*sides.0, &*sides.1));
                Ok(Box::new(DvaeStage::replica(share, settings, recipe, machine, source, sides, model)?))
            })?
        }
        Kind::Gpt => {
            let source = with_codes(session, corpus, machine, model, progress)?;
            let settings = gpt_settings(plan, &sizes, mode);
            placed(machines, model, move |machine, share, model| {
                let (settings, source, sides) = (settings.clone(), source.clone(), (&*sides.0, &*sides.1));
                Ok(Box::new(GptStage::replica(share, settings, recipe, machine, source, sides, model)?))
            })?
        }
        Kind::Decoder => {
            let source = with_codes(session, corpus, machine, model, progress)?;
            let how = (sizes.conditioning_frames, seed, &corpus.tokenizer);
            let latents = latents_of(&source, model, machine, how, progress)?;
            let settings = DecoderSettings {
                decoder: sizes.decoder.clone(),
                speaker: sizes.speaker.clone(),
                judges: sizes.judges.clone(),
                rows: sizes.decoder_rows,
                window: sizes.decoder_window,
                heard: sizes.speaker_frames,
                judged_from: sizes.judged_from,
                mode,
                seed,
            };
            let source = corpus.source.clone();
            let clips = Arc::new(Clips::load(&settings, &*source, latents, (&*sides.0, &*sides.1))?);
            let some = sharing(session, machines, settings.rows);
            placed(some, model, move |machine, share, model| {
                let (settings, source, clips) = (settings.clone(), source.clone(), clips.clone());
                Ok(Box::new(DecoderStage::replica(share, settings, recipe, machine, source, clips, model)?))
            })?
        }
    };
    let last = session.last_of(stages::name(kind))?;
    session.run(&mut *stage, &recipe, before, last)?;
    stage.finish(model, average)
}

/// As many of the machines as a batch of so many rows can be split over: the user has no say in how many these are, so
/// that one of three stays idle where sixteen rows are split over two.
fn sharing<'a>(session: &mut Session<'_>, machines: &'a [Machine], rows: usize) -> &'a [Machine] {
    let most = (1..=machines.len()).rev().find(|&n| rows.is_multiple_of(n)).unwrap_or(1);
    if most < machines.len() {
        session.watcher.say(&format!(
            "a batch of {rows} windows is split over {most} of the {} devices: it cannot be split evenly over more",
            machines.len()
        ));
    }
    &machines[..most]
}

/// A stage on one machine, or a replica of it on each of several.
fn placed(
    machines: &[Machine],
    model: &mut Model,
    build: impl Fn(Machine, Share, &Model) -> Result<Box<dyn Stage>, TrainError> + Send + Sync + 'static,
) -> Result<Box<dyn Stage>, TrainError> {
    if let [machine] = machines {
        return build(*machine, Share::WHOLE, model);
    }
    // Replicas are made on their own threads, of one model in memory.
    let whole = Arc::new(std::mem::take(model));
    let of = whole.clone();
    let build: Build = Arc::new(move |machine, share| build(machine, share, &of));
    let stage = Mirrored::new(machines, &build);
    drop(build);
    *model = Arc::try_unwrap(whole).unwrap_or_else(|whole| (*whole).clone());
    Ok(Box::new(stage?))
}

fn with_codes(
    session: &Session<'_>,
    corpus: &Corpus,
    machine: Machine,
    model: &Model,
    progress: &dyn Progress,
) -> Result<Arc<WithCodes>, TrainError> {
    let kept = session.folder.path().join(CODES_FILE);
    let disk = disk_of_environment();
    let codes = codes_of(&*corpus.source, model, machine, (&*disk, &kept), progress)?;
    Ok(Arc::new(WithCodes::new(corpus.source.clone(), codes)))
}

fn gpt_settings(plan: &Plan, sizes: &Sizes, mode: Mode) -> GptSettings {
    GptSettings {
        sizes: sizes.gpt.clone(),
        rows: Rows::Fixed(plan.data.batch_size as u32),
        frames: sizes.conditioning_frames,
        masks: match plan.model.masks {
            PlanMasks::Corrected => Masks::Corrected,
            PlanMasks::Coqui => Masks::Coqui,
        },
        accumulate: plan.training.gradient_accumulation_steps as u64,
        mode,
        workers: plan.data.num_workers,
        depth: plan.data.prefetch_buffer_size.clamp(2, 64),
        seed: plan.training.seed,
        memory_limit: plan.training.memory_limit,
        freeze_layers: plan.training.freeze_layers,
        lora_rank: plan.training.lora_rank,
    }
}
