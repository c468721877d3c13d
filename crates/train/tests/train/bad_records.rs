//! Bad records found before the steps of a stage: left out, named and counted against `data.failure_budget`.

use myxtts_data::loader::FailureBudget;
use myxtts_data::record::DVAE_MEL;
use myxtts_run::durable::OsDisk;
use myxtts_run::exit::Exit;
use myxtts_run::plan::StageKind;
use myxtts_run::progress::Progress;
use myxtts_train::feed::FeedSettings;
use myxtts_train::job_control::JobControl;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::session::StageEnd;
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::codes::{CodesFile, codes_of};
use myxtts_train::stages::dvae::{DvaeSettings, DvaeStage};
use myxtts_train::{ComputeDevice, Model, TrainError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};

use super::interrupted::train_all;
use super::small::{self, CLIPS, Clips};

const BAD: usize = 2;

/// Clips; one of them was damaged before the run.
fn damaged() -> Clips {
    static SINCE: AtomicBool = AtomicBool::new(true);
    Clips { damaged: Some((BAD, &SINCE)), ..Clips::default() }
}

/// Clips whose storage fails at the first read.
fn unreachable() -> Clips {
    static LEFT: AtomicI64 = AtomicI64::new(0);
    Clips { reads_left: Some(&LEFT), ..Clips::default() }
}

fn budget(rate: f64) -> FailureBudget {
    FailureBudget { rate, ..FailureBudget::default() }
}

/// All lines for the user, those that describe stages included.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Progress for Lines {
    fn say(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
    fn stage(&self, _name: &'static str, _from: u64, _steps: u64, described: &[String]) {
        self.0.lock().unwrap().extend_from_slice(described);
    }
}

/// The lines that contain all of `words`.
fn with<'a>(lines: &'a [String], words: &[&str]) -> Vec<&'a String> {
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).collect()
}

fn dvae_stage(clips: Clips, train: &[u32], rate: f64) -> Result<DvaeStage, TrainError> {
    let feeding = FeedSettings { failures: budget(rate), ..FeedSettings::default() };
    let settings = DvaeSettings { feeding, ..small::dvae_settings() };
    let recipe = small::plan(StageKind::Dvae, 3).recipe(StageKind::Dvae, false);
    let sides = RecordSplit { train, validation: &[CLIPS as u32 - 1] };
    let (slice, source) = (ReplicaSlice::WHOLE, Arc::new(clips));
    DvaeStage::new(slice, settings, recipe, ComputeDevice::CPU, source, sides, &Model::default())
}

/// The statistics of mels were computed from all clips, and the first that could not be read ended the run.
#[test]
fn one_bad_clip_ended_the_dvae_stage_before_its_first_step() {
    let all: Vec<u32> = (0..CLIPS as u32 - 1).collect();
    let mut stage = dvae_stage(damaged(), &all, 0.2).unwrap();
    let runs = tempfile::tempdir().unwrap();
    let (plan, lines) = (small::plan(StageKind::Dvae, 3), Lines::default());
    small::run_with_progress(runs.path(), &plan, &mut stage, &lines, Arc::default(), None).unwrap();
    let lines = lines.0.into_inner().unwrap();
    let words = ["1 of 5 records", "mel statistics", "clip-2", "its checksum does not match"];
    assert_eq!(with(&lines, &words).len(), 1, "named once: {lines:?}");

    // The other clips are measured as without it.
    let good: Vec<u32> = all.iter().copied().filter(|&record| record != BAD as u32).collect();
    let scale = |stage: &DvaeStage| {
        let mut model = Model::default();
        myxtts_train::stages::StageCore::finish(stage, &mut model, false).unwrap();
        model.mel_stats(80)
    };
    assert_eq!(scale(&stage), scale(&dvae_stage(Clips::default(), &good, 0.0).unwrap()));
    assert_ne!(scale(&stage), scale(&dvae_stage(Clips::default(), &all, 0.0).unwrap()));

    let error = dvae_stage(damaged(), &all, 0.19).err().unwrap();
    assert!(matches!(error, TrainError::BadRecords { bad: 1, total: 5, .. }), "{error:?}");
    assert_eq!(error.exit(), Exit::BadData);
    assert!(error.to_string().contains("clip-2") && error.to_string().contains("19.0 %"), "{error}");
    // A disk that fails says nothing about the clips.
    let error = dvae_stage(unreachable(), &all, 1.0).err().unwrap();
    assert!(matches!(error, TrainError::Record(_)), "{error:?}");
}

/// The mels of the acoustic head are read outside the loader, which replaces bad clips: a clip that was damaged after the codes
/// were made ended the stage, whatever the budget.
#[test]
fn one_clip_damaged_after_the_codes_ended_the_gpt_stage() {
    const STEPS: u64 = 12;
    let run = |clips: Clips, rate: f64| {
        let mut stage = small::joining_gpt(clips, rate, STEPS);
        let runs = tempfile::tempdir().unwrap();
        let (ended, lines) = small::run(runs.path(), &small::plan(StageKind::Gpt, STEPS), &mut *stage);
        (ended, lines, small::everything(&*stage))
    };
    // With the mel alone, rows of the clip have no targets. With all of it, the loader uses another clip for the row, and only
    // segments of it are missed.
    for (column, what) in [(Some(DVAE_MEL), "rows with its audio are left out"), (None, "is used instead")] {
        let clips = Clips { damaged_column: column, ..damaged() };
        let (ended, lines, weights) = run(clips, 0.9);
        assert_eq!(ended.unwrap(), StageEnd::Done, "{column:?}");
        assert_eq!(with(&lines, &["clip-2", "checksum", what]).len(), 1, "{column:?}: noted once: {lines:?}");
        assert!(with(&lines, &["clip-2", "rows with its audio are left out"]).len() == 1, "{lines:?}");
        assert_eq!(run(clips, 0.9).2, weights, "{column:?}: another run differs");
        assert_ne!(run(Clips::default(), 0.9).2, weights, "{column:?}: the clip was never used");
        let error = run(clips, 0.0).0.unwrap_err();
        assert!(error.to_string().contains("more than the budget"), "{column:?}: {error}");
        assert!(error.to_string().contains("clip-2"), "{column:?}: {error}");
        assert_eq!(error.exit(), Exit::BadData, "{column:?}");
    }
}

fn codes(
    clips: Clips,
    model: &Model,
    kept: &Path,
    rate: f64,
) -> (Result<Vec<Vec<i32>>, TrainError>, Vec<String>) {
    let (lines, stop) = (Lines::default(), AtomicBool::new(false));
    let job = JobControl { progress: &lines, stop: &stop };
    let file = CodesFile { disk: &OsDisk, path: kept };
    let made = codes_of(&clips, model, ComputeDevice::CPU, budget(rate), file, job);
    (made, lines.0.into_inner().unwrap())
}

/// The first clip that could not be read ended the run when its codes were computed.
#[test]
fn one_bad_clip_ended_the_making_of_codes() {
    let all: Vec<u32> = (0..CLIPS as u32 - 1).collect();
    let mut model = Model::default();
    let stage = dvae_stage(Clips::default(), &all, 0.0).unwrap();
    myxtts_train::stages::StageCore::finish(&stage, &mut model, false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kept = |name: &str| folder.path().join(name);

    let (whole, lines) = codes(Clips::default(), &model, &kept("whole"), 0.0);
    let whole = whole.unwrap();
    assert!(
        whole.iter().all(|codes| codes.len() == 10) && with(&lines, &["left out"]).is_empty(),
        "{lines:?}"
    );
    let (made, lines) = codes(damaged(), &model, &kept("one"), 0.2);
    let mut expected = whole;
    expected[BAD].clear();
    assert_eq!(made.unwrap(), expected, "the others have their codes");
    let words = ["1 of 6 records", "gpt and decoder", "clip-2", "its checksum does not match"];
    assert_eq!(with(&lines, &words).len(), 1, "named once: {lines:?}");
    // A resumed run leaves out the same clips.
    let (again, _) = codes(Clips::default(), &model, &kept("one"), 0.2);
    assert_eq!(again.unwrap(), expected);

    let (refused, _) = codes(damaged(), &model, &kept("none"), 0.1);
    let error = refused.unwrap_err();
    assert!(matches!(error, TrainError::BadRecords { bad: 1, total: 6, .. }), "{error:?}");
    assert_eq!(error.exit(), Exit::BadData);
    assert!(error.to_string().contains("audio codes") && error.to_string().contains("clip-2"), "{error}");
    assert!(!kept("none").exists());
    let (refused, _) = codes(unreachable(), &model, &kept("none"), 1.0);
    assert!(matches!(refused, Err(TrainError::Record(_))), "{refused:?}");
}

/// All three stages, with alignments of text and codes in two of them, which read every clip too.
#[test]
fn one_bad_clip_ended_the_run_within_the_failure_budget() {
    let settings = ["training.code_token_weight=0.5", "training.alignment_weight=0.1"];
    let run = |rate: &str| {
        let (lines, runs) = (Lines::default(), tempfile::tempdir().unwrap());
        let settings = [settings[0], settings[1], rate];
        let ended = train_all(runs.path(), &settings, damaged(), &lines, Arc::default());
        (ended, lines.0.into_inner().unwrap())
    };
    let (ended, lines) = run("data.failure_budget=0.2");
    let model = ended.unwrap();
    assert!(model.has(myxtts_train::model::DECODER));
    for left_out_of in ["alignment of text and codes", "mel statistics", "stages gpt and decoder"] {
        assert_eq!(with(&lines, &[left_out_of, "clip-2"]).len(), 1, "{left_out_of}: {lines:?}");
    }
    let without_codes = with(&lines, &["1 clips are left out, such as clip-2"]);
    assert!(!without_codes.is_empty(), "{lines:?}");

    let (ended, _) = run("data.failure_budget=0.1");
    let error = ended.err().unwrap();
    assert!(matches!(error, TrainError::BadRecords { bad: 1, total: 5, .. }), "{error:?}");
}
