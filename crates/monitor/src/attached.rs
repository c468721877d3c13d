//! A run looked at from outside: the end of its `events.jsonl`, and the process that holds its lock.

use std::fs;
use std::path::{Path, PathBuf};

use myxtts_run::events::{Event, EventReader};
use myxtts_run::folder::{FolderError, RunFolder};
use myxtts_run::lock::LOCK_FILE;

use crate::sample::Run;

const PLAN: &str = "plan.json";
const EVENTS: &str = "events.jsonl";
/// Numbers of processes are shorter than this.
const LONGEST_PID: usize = 20;

/// A run that is watched.
#[derive(Debug)]
pub struct Attached {
    path: PathBuf,
    proc: PathBuf,
    events: EventReader,
    run: Run,
    /// The last step it told of, and when.
    stepped: Option<(u64, f64)>,
}

impl Attached {
    /// Finds a run by its folder, or by its name in the folder of all runs.
    pub fn open(runs: &Path, run: &str) -> Result<Attached, FolderError> {
        let path = PathBuf::from(run);
        if path.join(PLAN).is_file() {
            return Ok(Attached::at(&path));
        }
        if path.components().count() > 1 {
            // Meant as a folder: what is wrong is not its name.
            return Err(FolderError::NotARun { path, names: Vec::new() });
        }
        Ok(Attached::at(RunFolder::view(runs, run)?.path()))
    }

    fn at(path: &Path) -> Attached {
        let events = EventReader::new(&path.join(EVENTS));
        let proc = PathBuf::from("/proc");
        Attached { path: path.to_owned(), proc, events, run: Run::default(), stepped: None }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it said last. A line that is being written is read when it is whole; where the events cannot be read, what was
    /// known stays, with the reason.
    pub fn read(&mut self) -> Run {
        let (run, stepped) = (&mut self.run, &mut self.stepped);
        let read = self.events.read_with(|event| take(run, stepped, &event));
        self.run.unreadable = read.err().map(|error| error.to_string());
        let mut run = Run { pid: self.pid(), ..self.run.clone() };
        // Whoever stops cleanly empties the lock file, and says nothing in the events.
        let left = fs::metadata(self.path.join(LOCK_FILE)).is_ok_and(|lock| lock.len() == 0);
        if left && run.ended.is_none() {
            run.ended = Some("nobody trains it now".to_owned());
        }
        run
    }

    /// The process that trains. A killed one leaves its number in the lock file, and the number may be another's by now:
    /// only a process of this program counts.
    fn pid(&self) -> Option<u32> {
        let bytes = fs::read(self.path.join(LOCK_FILE)).ok().filter(|bytes| bytes.len() <= LONGEST_PID)?;
        let pid = std::str::from_utf8(&bytes).ok()?.trim().parse::<u32>().ok()?;
        let name = fs::read_to_string(self.proc.join(pid.to_string()).join("comm")).ok()?;
        name.starts_with("myxtts").then_some(pid)
    }
}

fn take(run: &mut Run, stepped: &mut Option<(u64, f64)>, event: &Event) {
    let field = |name: &str| event.fields.get(name);
    let number = |name: &str| field(name)?.as_f64();
    let stage = || field("stage").and_then(|stage| stage.as_str()).map(str::to_owned);
    run.told = Some(event.time);
    match event.kind.as_str() {
        "stage" => {
            let step = field("from").and_then(|from| from.as_u64());
            let steps = field("steps").and_then(|steps| steps.as_u64());
            *stepped = None;
            *run = Run { stage: stage(), step, steps, told: run.told, ..Run::default() };
        }
        "step" => {
            run.stage = stage().or(run.stage.take());
            run.step = field("step").and_then(|step| step.as_u64()).or(run.step);
            run.steps_per_second = run.step.zip(*stepped).and_then(|(step, (before, time))| {
                let (steps, seconds) = (step.checked_sub(before)?, event.time - time);
                (steps > 0 && seconds > 0.0).then(|| steps as f64 / seconds)
            });
            *stepped = run.step.map(|step| (step, event.time));
            run.clips_per_second = number("clips_per_second");
            (run.busy, run.wait) = (number("busy"), number("wait"));
            run.ended = None;
        }
        "stage_end" => {
            run.ended = field("ended").and_then(|ended| ended.as_str()).map(str::to_owned);
        }
        _ => {}
    }
}
