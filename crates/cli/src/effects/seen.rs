//! What can be seen of settings: each function turns a plan into words, and two plans that differ in what they do differ in
//! these words. An error is something to be seen as well.

use std::sync::{Arc, Mutex, PoisonError};
use std::sync::atomic::AtomicBool;

use myxtts_run::config::Key;
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::progress::{Progress, Silent, StepProgress};
use myxtts_tensor::engine::Arena;
use myxtts_tensor::{Control, Device, Precision};
use myxtts_train::Machine;
use myxtts_train::corpus::{CorpusSet, RecordMode, assemble};
use myxtts_train::devices::RunDevices;
use myxtts_train::notes::{PlannedRun, settings_notes};
use myxtts_train::pipeline::{self, Devices, Request};
use myxtts_train::stage_context::StageContext;
use myxtts_train::training_data::Corpus;
use myxtts_train::session::Session;
use myxtts_train::sizes::Sizes;
use myxtts_train::preview::Preview;

use super::made_up::{Mels, World, made_up};
use crate::progress::Terminal;

/// What is seen of a plan.
pub type Seen = fn(&World, &Plan) -> anyhow::Result<String>;

const ALL: [StageKind; 3] = [StageKind::Dvae, StageKind::Gpt, StageKind::Decoder];

fn opened(plan: &Plan) -> anyhow::Result<Corpus> {
    Ok(assemble::open(plan, &Arc::default(), &Terminal::new())?)
}

/// Every utterance of the corpus as it is read, before anything is computed of it.
pub fn corpus(_: &World, plan: &Plan) -> anyhow::Result<String> {
    Ok(format!("{:?}", CorpusSet::read(&plan.data, &Terminal::new())?.utterances()))
}

/// Every record: its name, its arrays to the last bit, and the vocabulary.
pub fn records(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let corpus = opened(plan)?;
    let source = &*corpus.source;
    let mut words = format!("{} pieces", corpus.tokenizer.pieces());
    for record in 0..source.len() {
        words += &format!("\n{}", source.id(record));
        for (column, described) in source.columns().iter().enumerate() {
            let rows = source.rows(record, column);
            let mut bytes = vec![0; rows as usize * described.row_bytes()];
            source.read(record, column, 0, &mut bytes)?;
            let sum =
                bytes.iter().fold(17u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            words += &format!(" {}[{rows}]={sum:x}", described.name);
        }
    }
    Ok(words)
}

/// Which clips are learnt from, and which are held out.
pub fn split(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let corpus = opened(plan)?;
    let names =
        |side: &[u32]| side.iter().map(|&record| corpus.source.id(record as usize)).collect::<Vec<_>>();
    Ok(format!("{:?} {:?}", names(&corpus.train), names(&corpus.validation)))
}

/// The files that reading the corpus leaves, by their names without numbers of content.
pub fn files(world: &World, plan: &Plan) -> anyhow::Result<String> {
    opened(plan)?;
    let mut found = Vec::new();
    let mut folders = vec![world.path("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.starts_with(plan.data.cache_dir.as_deref().unwrap_or(&path)) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let parent = path
                    .parent()
                    .and_then(|p| p.file_name())
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                // Folders that every plan has of its own.
                let parent = if parent.starts_with("cache-") { "cache".to_owned() } else { parent };
                found.push(format!("{parent}/{}", name.split('-').next().unwrap_or_default()));
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found.join(" "))
}

/// Records and companions of the first batches of the GPT and the DVAE, and the shapes they have.
pub fn batches(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let corpus = made_up(Mels::Fine);
    let mut words = String::new();
    for kind in [StageKind::Dvae, StageKind::Gpt] {
        let sides = (&corpus.train[..], &corpus.validation[..]);
        let preview = Preview::new(kind, plan, (Machine::CPU, 1), corpus.source.clone(), sides)?;
        words += &format!("\n{kind:?}, {} batches a step\n", preview.of_step);
        for number in 0..8 {
            let step = preview.train.step(number);
            let rung = preview.train.buckets()[step.bucket].rung;
            words += &format!("{rung:?} {:?}\n", step.records().collect::<Vec<_>>());
        }
    }
    Ok(words)
}

/// The clips that the first batches of the decoder are drawn from.
pub fn decoder_batches(world: &World, plan: &Plan) -> anyhow::Result<String> {
    stage(world, plan, StageKind::Decoder, |stage| {
        let mut words = String::new();
        for step in 0..2 {
            let taken = stage.submit(step, &Control::default())?;
            stage.wait(taken.ticket)?;
            words += &format!("{} {:?}\n", taken.rows, taken.records);
        }
        Ok(words)
    })
}

/// The recipe of every stage, and its learning rate at a few steps.
pub fn recipe(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let of = |stage| {
        let recipe = plan.recipe(stage, false);
        let rates: Vec<f64> = (0..5).map(|i| recipe.schedule.at(i * recipe.steps / 4)).collect();
        format!("{recipe:?} {rates:?}\n")
    };
    Ok(ALL.map(of).concat())
}

/// How batches come to a device, with what and in which way steps run there. No device is opened.
pub fn feeding(world: &World, plan: &Plan) -> anyhow::Result<String> {
    let corpus = made_up(Mels::Fine);
    let gpu = Machine { device: Device::Cuda(0), precision: Precision::F32 };
    let context = StageContext::of(plan, &corpus, gpu, &world.path(""), &Silent);
    let StageContext { feeding, conditioning, lengths, mode, .. } = &context;
    Ok(format!("{feeding:?} {:?} {conditioning:?} {lengths:?} {mode:?}", feeding.loading()))
}

/// On which of four GPUs a run trains, and where its batches come from.
pub fn place(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let devices = RunDevices::choose(plan, None, Some(4), false)?;
    Ok(devices.lines().join("\n"))
}

/// What is said before a run begins on a processor.
pub fn said(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let run = PlannedRun { plan, machine: Machine::CPU, only: None, fine_tune: false };
    Ok([plan.notes.clone(), settings_notes(&run)].concat().join("\n"))
}

/// Every value as it is resolved.
pub fn resolved(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let values = plan.values.iter().filter(|value| Key::find(value.key.path).is_some());
    // Not the setting that is tried, but what it does to the others.
    let others = values.filter(|value| value.key.path != "data.auto_tune_performance");
    let own = ["data.cache_dir", "training.runs_dir"];
    let others = others.filter(|value| !own.contains(&value.key.path));
    Ok(others.map(|value| format!("{} {}\n", value.key.path, value.value)).collect())
}

/// Sizes of all networks, batches and windows.
pub fn sizes(_: &World, plan: &Plan) -> anyhow::Result<String> {
    Ok(format!("{:?}", Sizes::without_vocabulary(plan, Machine::CPU)))
}

/// Who listens to what is spoken.
pub fn listener(_: &World, plan: &Plan) -> anyhow::Result<String> {
    Ok(format!("{:?}", myxtts_train::evaluate::listener::Listener::of(&plan.training)?))
}

/// Where records come from.
pub fn source(_: &World, plan: &Plan) -> anyhow::Result<String> {
    Ok(format!("{:?}", RecordMode::from_plan(&plan.data)))
}

/// Does something with a stage on clips that are made up.
fn stage(
    world: &World,
    plan: &Plan,
    kind: StageKind,
    act: impl FnOnce(&mut dyn myxtts_train::stages::StageKind) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let corpus = made_up(Mels::Fine);
    // One folder for all: codes that were made once serve whoever has the same DVAE.
    let context = StageContext::of(plan, &corpus, Machine::CPU, &world.path(""), &Silent);
    let mut model = context.untrained(kind)?;
    let mut stage = context.stage(kind, &plan.recipe(kind, false), &mut model)?;
    act(&mut *stage)
}

/// What a GPT is said to be, and its weights and their average after two steps.
pub fn gpt(world: &World, plan: &Plan) -> anyhow::Result<String> {
    let recipe = plan.recipe(StageKind::Gpt, false);
    stage(world, plan, StageKind::Gpt, |stage| {
        for step in 0..2 {
            let control = Control {
                rate: recipe.schedule.at(step) as f32,
                weight: 1.0,
                clip: recipe.clip.unwrap_or(0.0) as f32,
                average: recipe.ema_decay.unwrap_or(0.0) as f32,
                seed: step,
            };
            let taken = stage.submit(step, &control)?;
            stage.wait(taken.ticket)?;
        }
        let mut words = stage.described().join("\n");
        for arena in [Arena::Weights, Arena::Average] {
            if stage.engine().holds(arena) {
                let numbers = stage.engine().read_arena(arena)?;
                let sum = numbers
                    .iter()
                    .fold(17u64, |sum, x| sum.wrapping_mul(31).wrapping_add(u64::from(x.to_bits())));
                words += &format!("\n{arena:?} {sum:x}");
            }
        }
        Ok(words)
    })
}

/// What a stage says when it is set up: sizes, batches, memory, or that it cannot be.
pub fn set_up(world: &World, plan: &Plan) -> anyhow::Result<String> {
    let of = |kind| match stage(world, plan, kind, |stage| Ok(stage.described().join("\n"))) {
        Ok(words) => words,
        Err(error) => format!("error: {error:#}"),
    };
    Ok([StageKind::Dvae, StageKind::Gpt].map(of).join("\n"))
}

/// A DVAE trained to its end.
pub fn trained(_: &World, plan: &Plan) -> anyhow::Result<String> {
    run(plan, Mels::Fine)
}

/// The same on clips of which one is far from all others.
pub fn leaping(_: &World, plan: &Plan) -> anyhow::Result<String> {
    let said = run(plan, Mels::OneLoud)?;
    Ok(format!("{} spikes", said.matches("is a spike").count()))
}

/// The same on clips that are no numbers.
pub fn poisoned(_: &World, plan: &Plan) -> anyhow::Result<String> {
    run(plan, Mels::NoNumbers)
}

#[derive(Default)]
struct Listener(Mutex<Vec<String>>);

impl Listener {
    fn push(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

impl Progress for Listener {
    fn stage(&self, name: &'static str, from: u64, steps: u64, _: &[String]) {
        self.push(format!("{name} from {from} to {steps}"));
    }
    fn step(&self, progress: &StepProgress) {
        self.push(format!("step {} loss {}", progress.step, progress.loss));
    }
    fn say(&self, line: &str) {
        self.push(line.to_owned());
    }
}

/// What is said on the way, how it ends, and what is left in the folder.
fn run(plan: &Plan, mels: Mels) -> anyhow::Result<String> {
    let corpus = made_up(mels);
    let folder = RunFolder::create(&plan.training.runs_dir, Some("run"), plan)?;
    let listener = Listener::default();
    let mut session = Session {
        folder: &folder,
        plan,
        store: folder.checkpoint_store()?,
        events: folder.event_log()?,
        board: folder.tensorboard(None)?,
        stop: Arc::new(AtomicBool::new(false)),
        progress: &listener,
        listener: None,
    };
    let request = Request { only: Some(StageKind::Dvae), from: None };
    let ended = pipeline::train(&mut session, &request, &corpus, Devices { machines: &[Machine::CPU], ranks: None });
    let ended = ended.map(|_| "done".to_owned()).unwrap_or_else(|error| format!("error: {error}"));
    let kept: Vec<String> = session.store.list()?.checkpoints.iter().map(|c| c.name()).collect();
    drop(session);
    let model = std::fs::read(folder.path().join("model/dvae.safetensors")).unwrap_or_default();
    let sum = model.iter().fold(17u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    // Folders are of each plan's own.
    let words = format!("{}\n{ended}\n{kept:?}\n{sum:x}", listener.0.into_inner().unwrap_or_else(PoisonError::into_inner).join("\n"));
    Ok(words.replace(&folder.path().display().to_string(), "RUN"))
}

/// Where the folder of a run is made.
pub fn runs(world: &World, plan: &Plan) -> anyhow::Result<String> {
    let folder = RunFolder::create(&plan.training.runs_dir, None, plan)?;
    let within = folder.path().strip_prefix(world.path(""))?.components().next();
    Ok(within.is_some_and(|first| first.as_os_str() == "elsewhere").to_string())
}
