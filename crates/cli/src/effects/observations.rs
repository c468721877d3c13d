//! Observations of a plan: each function describes one effect of the settings as text, so that plans with different effects give
//! different texts. An error is an observation too.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use myxtts_run::config::Key;
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::progress::{Progress, Silent, StepProgress};
use myxtts_tensor::engine::Arena;
use myxtts_tensor::{Control, Device, Precision};
use myxtts_train::ComputeDevice;
use myxtts_train::corpus::CorpusSet;
use myxtts_train::corpus::assemble::{self, Assembly};
use myxtts_train::devices::RunDevices;
use myxtts_train::notes::{PlannedRun, settings_notes};
use myxtts_train::pipeline::{self, Devices, Request};
use myxtts_train::preview::Preview;
use myxtts_train::replica_slice::Replicas;
use myxtts_train::session::{Session, steps_ahead};
use myxtts_train::stage_context::StageContext;
use myxtts_train::stages::Stage;
use myxtts_train::strategy::{AvailableGpus, StrategyRequest, strategy};
use myxtts_train::training_data::Corpus;

use super::fake_server::FakeServer;
use super::fixtures::{Mels, TestFolder, generated_corpus, sentence};
use crate::progress::Terminal;

/// Describes an effect of a plan.
pub type Observation = fn(&TestFolder, &Plan) -> anyhow::Result<String>;

fn opened(plan: &Plan) -> anyhow::Result<Corpus> {
    Ok(assemble::open(plan, &Arc::default(), &Terminal::new())?.corpus)
}

/// Every utterance of the corpus, before features are computed.
pub fn corpus(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    Ok(format!("{:?}", CorpusSet::read(&plan.data, &Terminal::new())?.utterances()))
}

/// Every record with its arrays, bit for bit, and the vocabulary size.
pub fn records(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let corpus = opened(plan)?;
    let source = &*corpus.source;
    let mut text = format!("{} pieces", corpus.tokenizer.pieces());
    for record in 0..source.len() {
        text += &format!("\n{}", source.id(record));
        for (column, described) in source.columns().iter().enumerate() {
            let rows = source.rows(record, column);
            let mut bytes = vec![0; rows as usize * described.row_bytes()];
            source.read(record, column, 0, &mut bytes)?;
            let sum =
                bytes.iter().fold(17u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            text += &format!(" {}[{rows}]={sum:x}", described.name);
        }
    }
    Ok(text)
}

/// The training and the validation clips.
pub fn split(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let corpus = opened(plan)?;
    let names =
        |side: &[u32]| side.iter().map(|&record| corpus.source.id(record as usize)).collect::<Vec<_>>();
    Ok(format!("{:?} {:?}", names(&corpus.train), names(&corpus.validation)))
}

/// The files that opening the corpus writes, by their names without content hashes.
pub fn files(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    opened(plan)?;
    let mut found = Vec::new();
    let mut folders = vec![folder.path("")];
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
                // Every plan has a cache folder of its own.
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
pub fn batches(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    Ok(batches_of(plan, StageKind::Dvae)? + &batches_of(plan, StageKind::Gpt)?)
}

/// The clips that the first batches of the decoder are sampled from.
pub fn decoder_batches(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    stage(folder, plan, StageKind::Decoder, |stage| {
        let mut text = String::new();
        for step in 0..2 {
            let taken = stage.submit(step, &Control::default())?;
            stage.wait(taken.ticket)?;
            text += &format!("{} {:?}\n", taken.rows, taken.records);
        }
        Ok(text)
    })
}

/// Bytes of the slots in which batches of a GPT wait.
pub fn fed(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    stage(folder, plan, StageKind::Gpt, |stage| {
        let taken = stage.submit(0, &Control::default())?;
        stage.wait(taken.ticket)?;
        Ok(format!("{} bytes", taken.fed.bytes))
    })
}

/// The threads that load batches, and the number of batches that wait in RAM.
pub fn loading(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    Ok(on_gpu(folder, plan, |context| {
        let options = context.feeding.loading();
        format!("{} threads, {} batches", options.workers, options.depth)
    }))
}

/// When batches are copied to a GPU, and from which memory.
pub fn upload(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    Ok(on_gpu(folder, plan, |context| format!("{:?}", context.feeding.upload)))
}

/// Where the conditioning of batches comes from on a GPU.
pub fn conditioning(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    Ok(on_gpu(folder, plan, |context| format!("{:?}", context.conditioning)))
}

/// How a GPU runs a step.
pub fn mode(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    Ok(on_gpu(folder, plan, |context| format!("{:?}", context.mode)))
}

/// The number of steps that are queued on a GPU before the first is waited for.
pub fn ahead(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    Ok(format!("{} steps", steps_ahead(plan, true)))
}

/// Describes what a stage on a GPU would be built from. No GPU is used.
fn on_gpu(folder: &TestFolder, plan: &Plan, describe: impl FnOnce(&StageContext<'_>) -> String) -> String {
    let corpus = generated_corpus(Mels::Normal);
    let gpu = ComputeDevice { device: Device::Cuda(0), precision: Precision::Bf16 };
    describe(&StageContext::of(plan, &corpus, gpu, &folder.path(""), &Silent))
}

/// The devices of the replicas, on a machine with four GPUs.
pub fn devices(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let machine = AvailableGpus { simulated: None, ..AvailableGpus::simulated(4) };
    let chosen = strategy(&machine, &StrategyRequest::of(plan, None))?;
    Ok(format!("{:?}", chosen.choice.devices(&machine)))
}

/// The data side of a corpus on a machine with four simulated GPUs, and where the conditioning then comes from.
pub fn data_gpu(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let devices = RunDevices::choose(plan, None, Some(4), false)?;
    let assembly = Assembly { data_gpu: devices.data_gpu(), ..Assembly::default() };
    let corpus = assembly.assemble(plan, &Arc::default(), &Terminal::new())?.corpus;
    let context = StageContext::of(plan, &corpus, devices.first(), &folder.path(""), &Silent);
    let side = corpus.data_side.as_ref().map(|side| (side.device, side.buffer_size, side.model_start_delay));
    Ok(format!("{side:?} {:?}", context.conditioning))
}

/// The notes before a run begins on a CPU.
pub fn notes(plan: &Plan) -> String {
    let run = PlannedRun { plan, machine: ComputeDevice::CPU, only: None, base: None };
    [plan.notes.clone(), settings_notes(&run)].concat().join("\n")
}

/// Every value as it is resolved.
pub fn resolved(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let values = plan.values.iter().filter(|value| Key::find(value.key.path).is_some());
    // Not the setting that is tested, but its effect on the others.
    let others = values.filter(|value| value.key.path != "data.auto_tune_performance");
    let own = ["data.cache_dir", "training.runs_dir"];
    let others = others.filter(|value| !own.contains(&value.key.path));
    Ok(others.map(|value| format!("{} {}\n", value.key.path, value.value)).collect())
}

/// The transcript of a clip and its errors, by the recogniser for spoken samples. If it is a server, a fake one is started that
/// answers once; the text then ends with the model that was requested.
pub fn transcripts(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let mut training = plan.training.clone();
    let server = training.recognizer_url.is_some().then(FakeServer::start).transpose()?;
    if let Some(server) = &server {
        training.recognizer_url = Some(server.address.clone());
    }
    let Some(mut recognizer) = myxtts_train::evaluate::listener::Listener::of(&training)? else {
        return Ok("no recogniser".to_owned());
    };
    let transcript = recognizer.transcribe(&folder.path("corpus/wavs/a-0.wav"), "twenty one", "en");
    if let Some(error) = recognizer.failed() {
        anyhow::bail!("{error}");
    }
    Ok(format!("{transcript:?} {:?}", server.map(FakeServer::requested_model)))
}

/// The messages on opening a corpus whose features are computed on demand: what stays in memory.
pub fn on_demand(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let listener = Listener::default();
    assemble::open(plan, &Arc::default(), &listener)?;
    let lines = listener.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(lines.into_iter().filter(|line| line.contains("on demand")).collect())
}

/// Runs `act` on a stage with generated clips.
fn stage(
    folder: &TestFolder,
    plan: &Plan,
    kind: StageKind,
    act: impl FnOnce(&mut dyn Stage) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    stage_on(&[], folder, plan, kind, act)
}

/// As [`stage`], with a replica on each of `machines`.
fn stage_on(
    machines: &[ComputeDevice],
    folder: &TestFolder,
    plan: &Plan,
    kind: StageKind,
    act: impl FnOnce(&mut dyn Stage) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let corpus = generated_corpus(Mels::Normal);
    // One folder for all plans: codes are reused by plans with the same DVAE.
    let context = StageContext::of(plan, &corpus, ComputeDevice::CPU, &folder.path(""), &Silent);
    let context = StageContext { machines, ..context };
    let mut model = context.untrained(kind)?;
    let mut stage = context.stage(kind, &plan.recipe(kind, false), &mut model)?;
    act(&mut *stage)
}

/// The weights of a GPT and their average after two steps.
pub fn gpt(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    weights(&[], folder, plan, StageKind::Gpt)
}

/// The weights of a stage and their average after two steps.
pub fn weights_of(folder: &TestFolder, plan: &Plan, kind: StageKind) -> anyhow::Result<String> {
    weights(&[], folder, plan, kind)
}

/// How the engine of a stage runs its steps.
pub fn engine_mode(folder: &TestFolder, plan: &Plan, kind: StageKind) -> anyhow::Result<String> {
    stage(folder, plan, kind, |stage| Ok(format!("{:?}", stage.engine().mode())))
}

/// The records of the first batches of one stage.
pub fn batches_of(plan: &Plan, kind: StageKind) -> anyhow::Result<String> {
    let corpus = generated_corpus(Mels::Normal);
    let replicas = Replicas { machine: ComputeDevice::CPU, count: 1 };
    let preview = Preview::new(kind, plan, replicas, corpus.source.clone(), corpus.split())?;
    let mut text = format!("{kind:?}, {} batches per step\n", preview.of_step);
    for number in 0..8 {
        let step = preview.train.step(number);
        let rung = preview.train.buckets()[step.bucket].rung;
        text += &format!("{rung:?} {:?}\n", step.records().collect::<Vec<_>>());
    }
    Ok(text)
}

/// The same with two replicas.
pub fn replicas(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    weights(&[ComputeDevice::CPU; 2], folder, plan, StageKind::Gpt)
}

fn weights(
    machines: &[ComputeDevice],
    folder: &TestFolder,
    plan: &Plan,
    kind: StageKind,
) -> anyhow::Result<String> {
    let recipe = plan.recipe(kind, false);
    stage_on(machines, folder, plan, kind, |stage| {
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
        let mut text = String::new();
        for arena in [Arena::Weights, Arena::Average] {
            if stage.engine().holds(arena) {
                let numbers = stage.engine().read_arena(arena)?;
                let sum = numbers
                    .iter()
                    .fold(17u64, |sum, x| sum.wrapping_mul(31).wrapping_add(u64::from(x.to_bits())));
                text += &format!("\n{arena:?} {sum:x}");
            }
        }
        Ok(text)
    })
}

/// The description of a stage: sizes, batches, memory; or the error that prevents it.
pub fn setup(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let of = |kind| match stage(folder, plan, kind, |stage| Ok(stage.description().join("\n"))) {
        Ok(text) => text,
        Err(error) => format!("error: {error:#}"),
    };
    Ok([StageKind::Dvae, StageKind::Gpt].map(of).join("\n"))
}

/// The description of a DVAE stage.
pub fn dvae_setup(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    stage(folder, plan, StageKind::Dvae, |stage| Ok(stage.description().join("\n")))
}

/// A DVAE trained to the end.
pub fn trained(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    run(plan, Mels::Normal, Some(StageKind::Dvae))
}

/// The steps of all stages of a run, with their losses.
pub fn stages(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let messages = run(plan, Mels::Normal, None)?;
    let is_step =
        |line: &&str| line.starts_with("step ") || line.contains(" from ") || line.starts_with("error");
    Ok(messages.lines().filter(is_step).collect::<Vec<_>>().join("\n"))
}

/// The number of loss spikes on clips of which one is an outlier.
pub fn spikes(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let messages = run(plan, Mels::Outlier, Some(StageKind::Dvae))?;
    Ok(format!("{} spikes", messages.matches("is a spike").count()))
}

/// A DVAE trained on clips of NaN values.
pub fn nan(_: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    run(plan, Mels::Nan, Some(StageKind::Dvae))
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

/// The messages of a run, how it ends, and what it leaves in the folder.
fn run(plan: &Plan, mels: Mels, only: Option<StageKind>) -> anyhow::Result<String> {
    let mut corpus = generated_corpus(mels);
    if only == Some(StageKind::Dvae) {
        // Other samples are spoken, which takes longer.
        corpus.sentences.push(sentence());
    }
    let folder = RunFolder::create(&plan.training.runs_dir, Some("run"), plan)?;
    let listener = Listener::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut session = Session::open(&folder, plan, stop, &listener)?;
    let request = Request { only, from: None };
    let ended = pipeline::train(
        &mut session,
        &request,
        &corpus,
        Devices { machines: &[ComputeDevice::CPU], ranks: None },
    );
    let ended = ended.map(|_| "done".to_owned()).unwrap_or_else(|error| format!("error: {error}"));
    let kept: Vec<String> = session.store.list()?.checkpoints.iter().map(|c| c.name()).collect();
    drop(session);
    let model = std::fs::read(folder.path().join("model/dvae.safetensors")).unwrap_or_default();
    let sum = model.iter().fold(17u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    // The path differs between plans.
    let text = format!(
        "{}\n{ended}\n{kept:?}\n{sum:x}",
        listener.0.into_inner().unwrap_or_else(PoisonError::into_inner).join("\n")
    );
    Ok(text.replace(&folder.path().display().to_string(), "RUN"))
}

/// Whether the run folder is made in `training.runs_dir`.
pub fn runs(folder: &TestFolder, plan: &Plan) -> anyhow::Result<String> {
    let run = RunFolder::create(&plan.training.runs_dir, None, plan)?;
    let within = run.path().strip_prefix(folder.path(""))?.components().next();
    Ok(within.is_some_and(|first| first.as_os_str() == "elsewhere").to_string())
}
