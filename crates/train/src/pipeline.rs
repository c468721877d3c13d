//! A run from its first stage to its last: trains the parts that are missing, in order, each stage on the results of those
//! before.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::model::{DECODER, DVAE, GPT, Model, check_base};
use crate::ranks::{RankError, Ranks, lead};
use crate::session::Session;
use crate::sizes::Sizes;
use crate::stage_context::{ORDER, StageContext};
use crate::stages::{self, StageKind};
use crate::strategy::split;
use crate::training_data::Corpus;
use myxtts_data::features::Recipe as Features;
use myxtts_model::weights::Reading;
use myxtts_run::durable::fault::disk_from_env;
use myxtts_run::plan::{Plan, Recipe};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The folder inside a run that holds its model.
pub const MODEL_FOLDER: &str = "model";

/// What a run trains, apart from its settings.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The only stage to train; `None` trains every stage.
    pub only: Option<StageKind>,
    /// The model folder to fine-tune; `None` trains from scratch.
    pub from: Option<PathBuf>,
}

/// The devices and processes of a run.
#[derive(Clone, Copy)]
pub struct Devices<'a> {
    /// The devices of this process, at least one, with a replica on each.
    pub machines: &'a [ComputeDevice],
    /// The processes of the run; this one is rank 0. `None` in a run of one process.
    pub ranks: Option<&'a Arc<Ranks>>,
}

/// Trains the missing parts, with a replica on each of `machines`; or, as rank 0 of `ranks`, on the first of them and on the
/// other ranks. Writes the model to the run folder after every stage.
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
        check_base(from, request.only)?;
        model = Model::open(from)?;
        // Parts that are fine-tuned are trained again, starting from their weights.
        model.set_retrained(retrained_parts(plan, request.only));
    }
    if let Some((before, after)) = model.adopt_vocabulary(&corpus.tokenizer, plan.training.seed)? {
        session.progress.say(&format!("the GPT's text tables grow from {before} rows to {after}"));
        if plan.training.lora_rank.is_some() || plan.training.freeze_layers > 0 {
            session.progress.say(
                "note: training.lora_rank and training.freeze_layers freeze these tables: new rows keep their random initial values",
            );
        }
    }
    if let Some(before) = model.set_reading(reading(plan)) {
        session.progress.say(&format!(
            "note: the model was trained with data.cleaner {}, silence cut at {:?} dB and loudness {:?}; from now on the \
             settings of this run apply",
            before.cleaner, before.trim_db, before.loudness_lufs
        ));
    }
    let due = |model: &Model, kind: StageKind, recipe: &Recipe| {
        let wanted = request.only.is_none_or(|only| only == kind);
        wanted && recipe.steps > 0 && (!model.has(part_of(kind)) || model.is_retrained(part_of(kind)))
    };
    if due(&model, StageKind::Gpt, &plan.recipe(StageKind::Gpt, fine_tune)) {
        // Check now, not after an hour of the stage before it.
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
                check_even_split(setting, rows, ranks.world())?;
            }
        }
    }
    if plan.training.sample_every > 0 && corpus.sentences.is_empty() {
        session
            .progress
            .say("the validation set is empty (data.val_fraction), so no samples are spoken during training");
    }
    let context = StageContext::of(plan, corpus, machines[0], session.folder.path(), session.progress);
    let context = StageContext { machines, ranks, stop: session.stop.clone(), ..context };
    if !ORDER.iter().any(|&kind| due(&model, kind, &plan.recipe(kind, fine_tune))) {
        let name = session.folder.name();
        session.progress.say(&format!("{name} is finished: no requested stage is left to train"));
    }
    let mut before = 0;
    for kind in ORDER {
        let recipe = plan.recipe(kind, fine_tune);
        if due(&model, kind, &recipe) {
            run_stage(session, (kind, fine_tune), &recipe, before, &context, &mut model)?;
            model.finish_retrained(part_of(kind));
            model.write(&*disk, &path)?;
            // The next stage may need a long time before its first step, to compute codes or states of every clip.
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

/// The parts of a base model that are trained again: that of the only stage; else the GPT, and the decoder if its steps are
/// set.
pub(crate) fn retrained_parts(plan: &Plan, only: Option<StageKind>) -> Vec<&'static str> {
    match only {
        Some(kind) => vec![part_of(kind)],
        None if plan.training.decoder_steps.is_some_and(|steps| steps > 0) => vec![GPT, DECODER],
        None => vec![GPT],
    }
}

/// The stages that a new run trains, in order: those with steps whose part the base model lacks, or that train it again. `has`
/// says which parts the base model has; `None` without a base model.
pub(crate) fn due_stages(
    plan: &Plan,
    only: Option<StageKind>,
    has: Option<&dyn Fn(&str) -> bool>,
) -> Vec<StageKind> {
    let steps_of = |kind| plan.recipe(kind, has.is_some()).steps;
    trained_stages(plan, only, has).into_iter().filter(|&kind| steps_of(kind) > 0).collect()
}

/// As [`due_stages`], including those of 0 steps.
pub(crate) fn trained_stages(
    plan: &Plan,
    only: Option<StageKind>,
    has: Option<&dyn Fn(&str) -> bool>,
) -> Vec<StageKind> {
    let retrained = retrained_parts(plan, only);
    let is_trained = |kind| {
        let part = part_of(kind);
        has.is_none_or(|has| !has(part)) || retrained.contains(&part)
    };
    ORDER.into_iter().filter(|&kind| only.is_none_or(|only| only == kind) && is_trained(kind)).collect()
}

/// Checks that all ranks get the same number of rows.
fn check_even_split(setting: &'static str, rows: usize, world: usize) -> Result<(), RankError> {
    match rows.is_multiple_of(world) {
        true => Ok(()),
        false => {
            let above = rows.next_multiple_of(world);
            let below = if above > world { above - world } else { above };
            Err(RankError::Uneven { setting, rows, world, below, above })
        }
    }
}

/// How the run preprocesses text and recordings; stored with the model, for speaking with it.
fn reading(plan: &Plan) -> Reading {
    let features = Features::from_plan(&plan.data);
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
            // The stage stopped before its first step, or before it resumed at a later one.
            let last = session.last_of(name)?;
            let step = last.and_then(|last| last.checkpoint.meta["step"].as_u64()).unwrap_or(0);
            return Err(TrainError::Stopped { stage: name, step, run: session.folder.name().to_owned() });
        }
        stage => stage?,
    };
    let last = session.last_of(name)?;
    let samples = context.samples(model);
    let spoken =
        (context.plan.training.sample_every > 0 && !samples.sentences.is_empty()).then_some(&samples);
    let done = session.run(&mut *stage, recipe, before, last, spoken)?;
    // Averages are in place already: the stage holds the weights that were validated.
    stage.finish(model, false)?;
    let chosen = done.chosen;
    let how = json!({ "steps": done.steps, "kept_step": chosen.map_or(done.steps, |chosen| chosen.step),
                      "validation": chosen.map(|chosen| chosen.score) });
    model.set_trained(part_of(kind), how);
    Ok(())
}
