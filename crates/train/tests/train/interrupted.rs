//! A stop request before a stage exists: codes and states of every clip are computed before its first step.

use myxtts_data::loader::FailureBudget;
use myxtts_data::tokenizer::{self, Tokenizer, TrainOptions};
use myxtts_run::config::{Flag, HostResources, Sources};
use myxtts_run::durable::OsDisk;
use myxtts_run::exit::Exit;
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::Plan;
use myxtts_run::progress::{Progress, Silent};
use myxtts_train::job_control::JobControl;
use myxtts_train::pipeline::{self, Devices, Request};
use myxtts_train::session::Session;
use myxtts_train::stages::codes::CodesFile;
use myxtts_train::stages::codes::codes_of;
use myxtts_train::training_data::Corpus;
use myxtts_train::{ComputeDevice, Model, TrainError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::small::{CLIPS, Clips};

/// Number of clips that are long.
const LONG: usize = 2;

/// Requests a stop at a point of the progress: a task, and the number of its completed items.
struct Stopper {
    stop: Arc<AtomicBool>,
    at: (&'static str, u64),
    /// Tasks that were begun, with their completed items.
    told: Mutex<Vec<(String, u64)>>,
}

impl Stopper {
    fn check(&self) {
        let told = self.told.lock().unwrap();
        if told.last().is_some_and(|(what, done)| (what.as_str(), *done) == self.at) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Progress for Stopper {
    fn start(&self, what: &str, _total: u64) {
        self.told.lock().unwrap().push((what.to_owned(), 0));
        self.check();
    }
    fn advance(&self, items: u64) {
        self.told.lock().unwrap().last_mut().unwrap().1 += items;
        self.check();
    }
}

fn vocabulary() -> Tokenizer {
    let options = TrainOptions { vocab_size: 200, ..TrainOptions::default() };
    tokenizer::train([("en", "hello world, this is a voice")], &options).unwrap()
}

/// Runs the missing stages with a stop request there; returns the result and the progress.
fn run(runs: &Path, at: (&'static str, u64)) -> (Result<Model, TrainError>, Vec<(String, u64)>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Stopper { stop: stop.clone(), at, told: Mutex::default() };
    let clips = Clips { long: LONG, ..Clips::default() };
    let ended = train_all(runs, &[], clips, &stopper, stop);
    (ended, stopper.told.into_inner().unwrap())
}

/// Runs the missing stages with one step each.
pub fn train_all(
    runs: &Path,
    settings: &[&str],
    clips: Clips,
    progress: &dyn Progress,
    stop: Arc<AtomicBool>,
) -> Result<Model, TrainError> {
    let steps = ["dvae", "gpt", "decoder"].map(|stage| Flag::Set(format!("training.{stage}_steps=1")));
    let tiny = ["model.preset=tiny", "data.batch_size=2", "data.num_workers=1", "training.sample_every=0"];
    let said = tiny.iter().chain(settings).map(|said| Flag::Set((*said).to_owned()));
    let command_line = steps.into_iter().chain(said).collect();
    let plan =
        Plan::resolve(&Sources { command_line, ..Sources::for_host(HostResources::detect()) }).unwrap();
    let folder = match runs.join("run/plan.json").exists() {
        true => RunFolder::resume(runs, "run").unwrap().0,
        false => RunFolder::create(runs, Some("run"), &plan).unwrap(),
    };
    let mut session = Session::open(&folder, &plan, stop, progress).unwrap();
    let corpus = Corpus {
        source: Arc::new(clips),
        train: (0..CLIPS as u32 - 1).collect(),
        validation: vec![CLIPS as u32 - 1],
        tokenizer: vocabulary(),
        sentences: Vec::new(),
        data_side: None,
    };
    let devices = Devices { machines: &[ComputeDevice::CPU], ranks: None };
    pipeline::train(&mut session, &Request::default(), &corpus, devices)
}

fn assert_stopped(ended: Result<Model, TrainError>, before: &str) {
    let error = ended.err().unwrap();
    assert_eq!(error.exit(), Exit::Stopped);
    assert!(matches!(error, TrainError::Stopped { stage, step: 0, .. } if stage == before), "{error}");
    assert!(error.to_string().contains("`myxtts train --resume run` continues"), "{error}");
}

#[test]
fn a_stop_while_codes_or_latents_are_computed_takes_effect_after_the_current_batch() {
    let runs = tempfile::tempdir().unwrap();
    let there = |file: &str| runs.path().join("run").join(file).is_file();

    // The long clips are the first batch.
    let (ended, told) = run(runs.path(), ("audio codes", LONG as u64));
    assert_stopped(ended, "gpt");
    assert_eq!(told, [("audio codes".to_owned(), LONG as u64)], "codes were made after the stop");
    assert!(there("model/dvae.safetensors") && !there("codes.bin"));

    let (ended, told) = run(runs.path(), ("latents", 0));
    assert_stopped(ended, "decoder");
    let codes = ("audio codes".to_owned(), CLIPS as u64);
    assert_eq!(told, [codes, ("latents".to_owned(), 0)], "latents were made after the stop");
    assert!(there("model/gpt.safetensors") && there("codes.bin"));

    // Stored results are not computed again.
    let (ended, told) = run(runs.path(), ("latents", 0));
    assert_stopped(ended, "decoder");
    assert_eq!(told, [("latents".to_owned(), 0)]);

    both_keep_the_same_codes(&runs.path().join("run/model"));
}

/// Two writers of one file of codes, as threads instead of processes.
fn both_keep_the_same_codes(model: &Path) {
    let model = Model::open(model).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (kept, go_on) = (folder.path().join("codes.bin"), AtomicBool::new(false));
    let make = |progress: &dyn Progress| {
        codes_of(
            &Clips::default(),
            &model,
            ComputeDevice::CPU,
            FailureBudget::default(),
            CodesFile { disk: &OsDisk, path: &kept },
            JobControl { progress, stop: &go_on },
        )
        .unwrap()
    };
    let [one, other] = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| make(&Silent)));
        both.map(|thread| thread.join().unwrap())
    });
    assert_eq!(one, other);
    let watching = Stopper { stop: Arc::default(), at: ("nothing", 0), told: Mutex::default() };
    assert_eq!(make(&watching), one);
    assert!(watching.told.into_inner().unwrap().is_empty(), "the file that both have written cannot be read");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something unfinished was left");
}
