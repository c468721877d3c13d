//! Long runs stay flat: memory, open files, threads and the event log do not grow with the number of steps.
//!
//! The test binary starts itself as the process that is measured, so that no other test counts. `MYXTTS_STEPS=100000` raises
//! the number of steps, and `MYXTTS_FLAT_OUT=FOLDER` keeps the measurements, one JSON object per line, as
//! `bench/flat/run.sh` does.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use myxtts_run::plan::StageKind;
use myxtts_run::progress::{Progress, StepProgress};
use myxtts_train::ComputeDevice;
use myxtts_train::session::StageEnd;
use serde_json::{Value, json};

use super::small::{self, Clips};

const CHILD: &str = "MYXTTS_TEST_FLAT_CHILD";
/// Stages, with a number of steps that takes about two seconds each.
const STAGES: [(&str, StageKind, u64); 3] =
    [("dvae", StageKind::Dvae, 4_000), ("gpt", StageKind::Gpt, 200), ("decoder", StageKind::Decoder, 100)];
/// Measurements per run.
const SAMPLES: u64 = 100;
/// Allowed growth of a run of 100,000 steps, and of one of a few thousand, in KiB.
const GROWTH_KIB: i64 = 16 << 10;
const SHORT_GROWTH_KIB: i64 = 2 << 10;
/// Bytes that a step may add to `events.jsonl`, which has a line for every tenth step; and bytes of its 60 validations and
/// checkpoints, and of its first 100 steps, which have a line each.
const EVENT_BYTES: u64 = 50;
const OTHER_EVENT_BYTES: u64 = 96 << 10;
/// Entries that are kept: the newest checkpoint, the best, the best of the stage, and the lock.
const KEPT: i64 = 4;

/// The steps of a stage, and whether the user set their number.
fn steps(short: u64) -> (u64, bool) {
    match std::env::var("MYXTTS_STEPS") {
        Ok(n) => (n.parse().unwrap(), true),
        Err(_) => (short, false),
    }
}

/// Anonymous memory of this process, in KiB.
fn memory() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn entries(folder: impl AsRef<Path>) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Records the resources of the process during its steps.
struct Meter {
    run: PathBuf,
    out: fs::File,
    every: u64,
    last: Mutex<(u64, Instant)>,
}

impl Progress for Meter {
    fn step(&self, progress: &StepProgress) {
        if !progress.step.is_multiple_of(self.every) {
            return;
        }
        let (step, now) = (progress.step, Instant::now());
        let mut last = self.last.lock().unwrap();
        let passed = now.duration_since(last.1).as_secs_f64() / (step - last.0) as f64;
        let sample = json!({
            "step": step,
            "memory_kib": memory(),
            "files": entries("/proc/self/fd"),
            "threads": entries("/proc/self/task"),
            "step_us": (passed * 1e6).round(),
            "events_bytes": fs::metadata(self.run.join("events.jsonl")).unwrap().len(),
            "checkpoints": entries(self.run.join("checkpoints")),
        });
        writeln!(&self.out, "{sample}").unwrap();
        *last = (step, Instant::now());
    }
}

/// The child process; returns at once in the normal test run.
#[test]
fn child() {
    let Ok(asked) = std::env::var(CHILD) else { return };
    let (stage, runs) = asked.split_once(':').unwrap();
    let (_, kind, short) = *STAGES.iter().find(|(name, ..)| *name == stage).unwrap();
    let (runs, (steps, _)) = (Path::new(runs), steps(short));
    let mut plan = small::plan(kind, steps);
    plan.training.checkpoint_every = steps / 20;
    (plan.training.keep_checkpoints, plan.training.keep_best) = (1, 1);
    plan.training.validate_every = Some(steps / 40);
    plan.training.early_stop_patience = Some(u32::MAX);
    let mut stage = small::stage(kind, &plan, Clips::default(), 1, ComputeDevice::CPU);
    let out = fs::File::create(runs.join("samples.jsonl")).unwrap();
    let last = Mutex::new((0, Instant::now()));
    let meter = Meter { run: runs.join("run"), out, every: steps / SAMPLES, last };
    let stop = Arc::new(AtomicBool::new(false));
    let finished = small::run_with_progress(runs, &plan, &mut *stage, &meter, stop, None).unwrap();
    assert_eq!(finished.ended, StageEnd::Done);
}

/// Runs a stage in a separate process; returns the measurements.
fn measured(stage: &str) -> Vec<Value> {
    let runs = tempfile::tempdir().unwrap();
    let name = concat!(module_path!(), "::child").split_once("::").unwrap().1;
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(CHILD, format!("{stage}:{}", runs.path().display()))
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success(), "{stage}: {}", String::from_utf8_lossy(&output.stderr));
    let samples = fs::read_to_string(runs.path().join("samples.jsonl")).unwrap();
    if let Ok(folder) = std::env::var("MYXTTS_FLAT_OUT") {
        fs::write(Path::new(&folder).join(format!("{stage}.jsonl")), &samples).unwrap();
    }
    samples.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Maximum of a measured value between two tenths of a run.
fn most(samples: &[Value], figure: &str, tenths: std::ops::Range<usize>) -> i64 {
    let range = tenths.start * samples.len() / 10..tenths.end * samples.len() / 10;
    samples[range].iter().map(|sample| sample[figure].as_i64().unwrap()).max().unwrap()
}

#[test]
fn memory_files_threads_and_the_event_log_do_not_grow_with_the_steps() {
    for (stage, _, short) in STAGES {
        let (steps, is_long) = steps(short);
        let samples = measured(stage);
        assert_eq!(samples.len() as u64, SAMPLES, "{stage}");
        // From the end of the first tenth; and again from where a decoder has its discriminators, after half of its steps.
        let growth = |figure| {
            let grown =
                |from, to| most(&samples, figure, to - 1..to) - most(&samples, figure, from..from + 1);
            grown(1, 5) + grown(6, 10)
        };
        let (memory, files, threads) = (growth("memory_kib"), growth("files"), growth("threads"));
        let events = most(&samples, "events_bytes", 9..10) as u64;
        println!(
            "{stage}: {steps} steps, memory {memory:+} KiB, files {files:+}, threads {threads:+}, {events} bytes of events"
        );
        let allowed = if is_long { GROWTH_KIB } else { SHORT_GROWTH_KIB };
        assert!(memory <= allowed, "{stage}: memory grew by {memory} KiB");
        assert!(files <= 0, "{stage}: {files} files more are open");
        assert!(threads <= 0, "{stage}: {threads} threads more");
        assert!(events <= EVENT_BYTES * steps + OTHER_EVENT_BYTES, "{stage}: {events} bytes of events");
        let kept = most(&samples, "checkpoints", 0..10);
        assert!(kept <= KEPT, "{stage}: {kept} checkpoints were kept");
    }
}
