//! The folder of a run: everything it keeps on disk, and who may write there.
//!
//! ```text
//! runs/NAME/
//!   request.json   what was asked beside the settings
//!   from-vocab.json  the vocabulary of the model it began from, where it began from one
//!   plan.json      every setting as it was resolved; the folder is a run once this is there
//!   events.jsonl   what happened
//!   log.txt        what was said
//!   checkpoints/   states to go on from
//!   samples/       what the voice sounded like on the way
//!   tensorboard/   curves, pictures and sound
//!   write.lock     held by the process that trains
//!   write.owner    which process of which machine that is, as long as it trains
//! ```

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{CheckpointError, CheckpointStore, Checkpoints};
use crate::durable::{self, Appender, Disk, DurableError, fault};
use crate::events::{EventLog, EventReader};
use crate::exit::Exit;
use crate::lock::{FolderLock, LOCK_FILE, LockError, OWNER_FILE};
use crate::plan::Plan;
use crate::tensorboard::{TensorBoard, TensorBoardError};

const PLAN: &str = "plan.json";
/// What a run was asked beside its plan, for when it goes on.
pub const REQUEST: &str = "request.json";
/// The vocabulary of the model a run began from: it goes on with it, whatever stands in that folder by then.
pub const BASE_VOCABULARY: &str = "from-vocab.json";
/// What a run holds out: clips that it only measures on.
pub const HELD_OUT: &str = "held-out.json";
/// Files that a beginning writes before its plan.
const FIRST: [&str; 2] = [REQUEST, BASE_VOCABULARY];
const EVENTS: &str = "events.jsonl";
const LOG: &str = "log.txt";
const CHECKPOINTS: &str = "checkpoints";
const SAMPLES: &str = "samples";
const TENSORBOARD: &str = "tensorboard";
const FOLDERS: [&str; 3] = [CHECKPOINTS, SAMPLES, TENSORBOARD];
/// Numbers tried for a run without a name, before something else must be wrong.
const MOST_TRIES: u64 = 1000;

/// Why there is no such run, or no right to write in it.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A run of that name is there already.
    #[error(
        "the run {} exists already: `--resume {name}` goes on with it, another name begins a new one",
        path.display()
    )]
    Exists {
        /// Its folder.
        path: PathBuf,
        /// Its name.
        name: String,
    },
    /// Something else has that name.
    #[error("{} is not a run, and holds {found:?}, which is not ours: choose another name", path.display())]
    Foreign {
        /// The folder or file.
        path: PathBuf,
        /// What was found there.
        found: String,
    },
    /// There is no run of that name.
    #[error("{} is not a run: it has no plan.json{}", path.display(), others(names))]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// Runs that there are.
        names: Vec<String>,
    },
    /// The name cannot be that of a folder everywhere.
    #[error(
        "{name:?} cannot be the name of a run: take up to 100 letters, digits, `.`, `_` and `-`, beginning \
         with a letter or digit"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// The plan of a run cannot be read.
    #[error("{} is damaged; without it the run cannot go on", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// Somebody trains there.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A step on the disk failed.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// Something cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    /// The exit code that belongs to it.
    pub fn exit(&self) -> Exit {
        match self {
            FolderError::Durable(_) | FolderError::Io { .. } => Exit::Io,
            FolderError::Lock(lock) => lock.exit(Exit::Usage),
            FolderError::Plan { .. } => Exit::BadData,
            FolderError::Exists { .. }
            | FolderError::Foreign { .. }
            | FolderError::NotARun { .. }
            | FolderError::Name { .. } => Exit::Usage,
        }
    }
}

fn others(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!("; there are {}", names[names.len().saturating_sub(10)..].join(", ")),
    }
}

/// The folder of a run.
pub struct RunFolder {
    path: PathBuf,
    name: String,
    disk: Arc<dyn Disk>,
    /// Held by who writes.
    lock: Option<FolderLock>,
    /// It was not there before.
    is_made: bool,
}

impl RunFolder {
    /// Begins a run in the folder of all runs. Without a name it gets the next number: `run-001`.
    pub fn create(runs: &Path, name: Option<&str>, plan: &Plan) -> Result<Self, FolderError> {
        Self::create_on(fault::disk_of_environment(), runs, name, plan)
    }

    /// [`Self::create`] on a disk of the caller's choice.
    pub fn create_on(
        disk: Arc<dyn Disk>,
        runs: &Path,
        name: Option<&str>,
        plan: &Plan,
    ) -> Result<Self, FolderError> {
        Self::create_with(disk, runs, name, plan, &[])
    }

    /// [`Self::create_on`] with the first files of a run, [`REQUEST`] and [`BASE_VOCABULARY`]: they are there before the
    /// plan, so that a folder that is a run has all that it takes to go on.
    pub fn create_with(
        disk: Arc<dyn Disk>,
        runs: &Path,
        name: Option<&str>,
        plan: &Plan,
        first: &[(&str, &[u8])],
    ) -> Result<Self, FolderError> {
        if let Some(name) = name {
            return Self::begin(disk, runs, check_name(name)?, plan, first);
        }
        durable::create_folder(&*disk, runs)?;
        // No date in the name: numbers are short to type, and the folder knows when it was made.
        let entries = entries(runs)?;
        let numbers = entries.iter().filter_map(|name| name.strip_prefix("run-")?.parse::<u64>().ok());
        let mut next = numbers.max().map_or(1, |last| last.saturating_add(1));
        for _ in 0..MOST_TRIES {
            let name = format!("run-{next:03}");
            match Self::begin(disk.clone(), runs, &name, plan, first) {
                // Begun by another process since the folder was read.
                Err(
                    FolderError::Exists { .. }
                    | FolderError::Lock(LockError::Held { .. } | LockError::Silent { .. }),
                ) => next += 1,
                other => return other,
            }
        }
        let (path, name) = (runs.join(format!("run-{next:03}")), format!("run-{next:03}"));
        Err(FolderError::Exists { path, name })
    }

    fn begin(
        disk: Arc<dyn Disk>,
        runs: &Path,
        name: &str,
        plan: &Plan,
        first: &[(&str, &[u8])],
    ) -> Result<Self, FolderError> {
        let path = runs.join(name);
        let exists = || FolderError::Exists { path: path.clone(), name: name.to_owned() };
        if path.join(PLAN).exists() {
            return Err(exists());
        }
        let is_made = !path.exists();
        if !is_made {
            // What a beginning that was cut off leaves may be taken over, and nothing else.
            let ours = |entry: &str| {
                let folder = path.join(entry);
                entry == LOCK_FILE
                    || entry == OWNER_FILE
                    || FIRST.contains(&entry)
                    || durable::is_unfinished(entry)
                    || FOLDERS.contains(&entry) && entries(&folder).is_ok_and(|inside| inside.is_empty())
            };
            if let Some(found) = entries(&path)?.into_iter().find(|entry| !ours(entry)) {
                return Err(FolderError::Foreign { path, found });
            }
        }
        durable::create_folder(&*disk, &path)?;
        let lock = FolderLock::acquire(&path)?;
        // Two may have come this far; the lock lets the first one finish.
        if path.join(PLAN).exists() {
            return Err(exists());
        }
        durable::sweep(&*disk, &path)?;
        for folder in FOLDERS {
            durable::create_folder(&*disk, &path.join(folder))?;
        }
        for old in FIRST.iter().filter(|old| first.iter().all(|(name, _)| name != *old)) {
            durable::remove(&*disk, &path.join(old))?;
        }
        for (name, bytes) in first {
            durable::write_with(&*disk, &path.join(name), bytes)?;
        }
        durable::write_with(&*disk, &path.join(PLAN), plan.to_json().as_bytes())?;
        Ok(RunFolder { path, name: name.to_owned(), disk, lock: Some(lock), is_made })
    }

    /// Opens a run to go on with it, and the plan it was begun with.
    pub fn resume(runs: &Path, name: &str) -> Result<(Self, Plan), FolderError> {
        Self::resume_on(fault::disk_of_environment(), runs, name)
    }

    /// [`Self::resume`] on a disk of the caller's choice.
    pub fn resume_on(disk: Arc<dyn Disk>, runs: &Path, name: &str) -> Result<(Self, Plan), FolderError> {
        let mut run = Self::view(runs, name)?;
        run.lock = Some(FolderLock::acquire(&run.path)?);
        run.disk = disk;
        durable::sweep(&*run.disk, &run.path)?;
        for folder in FOLDERS {
            durable::create_folder(&*run.disk, &run.path.join(folder))?;
        }
        let plan = run.plan()?;
        Ok((run, plan))
    }

    /// Opens a run to look at it, while another process may train.
    pub fn view(runs: &Path, name: &str) -> Result<Self, FolderError> {
        let path = runs.join(check_name(name)?);
        if !path.join(PLAN).is_file() {
            return Err(FolderError::NotARun { path, names: Self::list(runs)? });
        }
        let (name, disk) = (name.to_owned(), fault::disk_of_environment());
        Ok(RunFolder { path, name, disk, lock: None, is_made: false })
    }

    /// Takes the folder away again, so that the name of a run that was refused is free: only where this very value made
    /// it, no stage has begun, and nothing is in it but what a beginning writes. Says whether it is gone.
    pub fn take_back(self) -> Result<bool, FolderError> {
        if !self.is_made || !self.is_bare()? {
            return Ok(false);
        }
        // The plan late: cut off before, this is a run that can be named and removed. Then the first files, which a next
        // beginning takes over as well. The lock last: until then nobody else
        // begins one of the same name.
        let last = |name: &str| [PLAN, LOCK_FILE, OWNER_FILE].contains(&name) || FIRST.contains(&name);
        for name in entries(&self.path)?.iter().filter(|name| !last(name)) {
            let path = self.path.join(name);
            match FOLDERS.contains(&name.as_str()) {
                true => durable::remove_folder(&*self.disk, &path)?,
                false => durable::remove(&*self.disk, &path)?,
            }
        }
        for name in [&[PLAN][..], &FIRST, &[OWNER_FILE, LOCK_FILE]].concat() {
            durable::remove(&*self.disk, &self.path.join(name))?;
        }
        match self.disk.remove_folder(&self.path) {
            // Somebody has begun one just now: it is his.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            removed => removed.map_err(DurableError::at("remove", &self.path))?,
        }
        Ok(true)
    }

    /// Nothing but what is there before the first stage begins.
    fn is_bare(&self) -> Result<bool, FolderError> {
        let ours = |name: &str| match name {
            // Files for curves are made before there is one.
            PLAN | EVENTS | LOG | LOCK_FILE | OWNER_FILE | TENSORBOARD | REQUEST | BASE_VOCABULARY
            | HELD_OUT => true,
            CHECKPOINTS | SAMPLES => entries(&self.path.join(name)).is_ok_and(|inside| inside.is_empty()),
            name => durable::is_unfinished(name),
        };
        let events =
            self.events().read().map_err(|source| FolderError::Io { path: self.path.clone(), source })?;
        let begun = events.iter().any(|event| event.kind == "stage");
        Ok(!begun && entries(&self.path)?.iter().all(|name| ours(name)))
    }

    /// Whether a folder is a run.
    pub fn is_run(path: &Path) -> bool {
        path.join(PLAN).is_file()
    }

    /// Names of all runs, in alphabetical order. A folder that is not there holds none.
    pub fn list(runs: &Path) -> Result<Vec<String>, FolderError> {
        let mut names = entries(runs)?;
        names.retain(|name| check_name(name).is_ok() && runs.join(name).join(PLAN).is_file());
        names.sort();
        Ok(names)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where spoken samples and their pictures go.
    pub fn samples(&self) -> PathBuf {
        self.path.join(SAMPLES)
    }

    /// The plan it was begun with.
    pub fn plan(&self) -> Result<Plan, FolderError> {
        let path = self.path.join(PLAN);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| FolderError::Io { path: path.clone(), source })?;
        Plan::from_json(&text).map_err(|source| FolderError::Plan { path, source })
    }

    /// Puts another plan in the place of the one it was begun with: before its first step, when all is known that the
    /// settings depend on.
    pub fn settle(&self, plan: &Plan) -> Result<(), FolderError> {
        self.assert_writing();
        Ok(durable::write_with(&*self.disk, &self.path.join(PLAN), plan.to_json().as_bytes())?)
    }

    /// Its checkpoints, to be read.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::at(&self.path.join(CHECKPOINTS))
    }

    /// Its checkpoints, to be written.
    pub fn checkpoint_store(&self) -> Result<CheckpointStore, CheckpointError> {
        self.assert_writing();
        CheckpointStore::open_on(self.disk.clone(), &self.path.join(CHECKPOINTS))
    }

    /// What happened, to be read.
    pub fn events(&self) -> EventReader {
        EventReader::new(&self.path.join(EVENTS))
    }

    /// What happens, to be written.
    pub fn event_log(&self) -> Result<EventLog, DurableError> {
        self.assert_writing();
        EventLog::open_on(self.disk.clone(), &self.path.join(EVENTS))
    }

    /// What is said, to be written line by line.
    pub fn log(&self) -> Result<Appender, DurableError> {
        self.assert_writing();
        Appender::open_lines(self.disk.clone(), &self.path.join(LOG)).map(|(log, _)| log)
    }

    /// Curves for TensorBoard. `resumed` is the first step that will be told again, where the run goes on.
    pub fn tensorboard(&self, resumed: Option<u64>) -> Result<TensorBoard, TensorBoardError> {
        self.assert_writing();
        TensorBoard::open_on(self.disk.clone(), &self.path.join(TENSORBOARD), resumed)
    }

    fn assert_writing(&self) {
        assert!(self.lock.is_some(), "the run {} was opened to be looked at", self.name);
    }
}

fn check_name(name: &str) -> Result<&str, FolderError> {
    let fits = (1..=100).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits { Ok(name) } else { Err(FolderError::Name { name: name.to_owned() }) }
}

/// Names in a folder; none where it is not there. One that is no text is none of ours, but is there.
fn entries(folder: &Path) -> Result<Vec<String>, FolderError> {
    let failed = |source| FolderError::Io { path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    entries.map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())).collect()
}
