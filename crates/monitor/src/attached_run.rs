//! Monitors a run of another process through its `events.jsonl` and its lock file.

use std::fs;
use std::path::{Path, PathBuf};

use myxtts_run::events::{Event, EventReader};
use myxtts_run::folder::{FolderError, RunFolder};
use myxtts_run::lock::LOCK_FILE;

use crate::sample::RunSample;

const PLAN: &str = "plan.json";
const EVENTS: &str = "events.jsonl";
/// Maximum length of a process id in the lock file, in bytes.
const MAX_PID_BYTES: usize = 20;

/// A run that is being monitored.
#[derive(Debug)]
pub struct AttachedRun {
    path: PathBuf,
    proc: PathBuf,
    events: EventReader,
    run: RunSample,
    /// Number and time of the last logged step.
    last_step: Option<(u64, f64)>,
}

impl AttachedRun {
    /// Opens a run by its folder, or by its name in the folder of all runs.
    pub fn open(runs: &Path, run: &str) -> Result<AttachedRun, FolderError> {
        let path = PathBuf::from(run);
        if path.join(PLAN).is_file() {
            return Ok(AttachedRun::at(&path));
        }
        if path.components().count() > 1 {
            // Given as a folder, so the name is not the problem.
            return Err(FolderError::NotARun { path, names: Vec::new() });
        }
        Ok(AttachedRun::at(RunFolder::view(runs, run)?.path()))
    }

    fn at(path: &Path) -> AttachedRun {
        let events = EventReader::new(&path.join(EVENTS));
        let proc = PathBuf::from("/proc");
        AttachedRun { path: path.to_owned(), proc, events, run: RunSample::default(), last_step: None }
    }

    /// Path of the run folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the current state. An incomplete line is left for the next call. If the events cannot be read, the earlier
    /// values stay and `unreadable` gives the reason.
    pub fn read(&mut self) -> RunSample {
        let (run, last_step) = (&mut self.run, &mut self.last_step);
        let read = self.events.read_with(|event| apply(run, last_step, &event));
        self.run.unreadable = read.err().map(|error| error.to_string());
        let mut run = RunSample { pid: self.pid(), ..self.run.clone() };
        // A process that stops cleanly truncates the lock file, but logs no event.
        let is_released = fs::metadata(self.path.join(LOCK_FILE)).is_ok_and(|lock| lock.len() == 0);
        if is_released && run.ended.is_none() {
            run.ended = Some("no process is training it".to_owned());
        }
        run
    }

    /// The training process. A killed one leaves its id in the lock file, and the id may have been reused: only a process
    /// of this program counts.
    fn pid(&self) -> Option<u32> {
        let bytes = fs::read(self.path.join(LOCK_FILE)).ok().filter(|bytes| bytes.len() <= MAX_PID_BYTES)?;
        let pid = std::str::from_utf8(&bytes).ok()?.trim().parse::<u32>().ok()?;
        let name = fs::read_to_string(self.proc.join(pid.to_string()).join("comm")).ok()?;
        name.starts_with("myxtts").then_some(pid)
    }
}

fn apply(run: &mut RunSample, last_step: &mut Option<(u64, f64)>, event: &Event) {
    let field = |name: &str| event.fields.get(name);
    let number = |name: &str| field(name)?.as_f64();
    let stage = || field("stage").and_then(|stage| stage.as_str()).map(str::to_owned);
    run.last_event = Some(event.time);
    match event.kind.as_str() {
        "stage" => {
            let step = field("from").and_then(|from| from.as_u64());
            let steps = field("steps").and_then(|steps| steps.as_u64());
            *last_step = None;
            *run =
                RunSample { stage: stage(), step, steps, last_event: run.last_event, ..RunSample::default() };
        }
        "step" => {
            run.stage = stage().or(run.stage.take());
            run.step = field("step").and_then(|step| step.as_u64()).or(run.step);
            run.steps_per_second = run.step.zip(*last_step).and_then(|(step, (before, time))| {
                let (steps, seconds) = (step.checked_sub(before)?, event.time - time);
                (steps > 0 && seconds > 0.0).then(|| steps as f64 / seconds)
            });
            *last_step = run.step.map(|step| (step, event.time));
            run.clips_per_second = number("clips_per_second");
            (run.on_device, run.wait) = (number("busy"), number("wait"));
            run.ended = None;
        }
        "stage_end" => {
            run.ended = field("ended").and_then(|ended| ended.as_str()).map(str::to_owned);
        }
        _ => {}
    }
}
