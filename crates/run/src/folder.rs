//! The run folder: all files of a run, and the lock that allows one process to write there.
//!
//! ```text
//! runs/NAME/
//!   request.json     command-line options that are not settings
//!   from-vocab.json  vocabulary of the base model, for a fine-tuning run
//!   plan.json        every resolved setting; a folder with this file is a run
//!   held-out.json    the validation clips
//!   gemm-*.json      algorithms chosen for matrix products, for resuming with the same ones
//!   codes.bin        audio codes of all clips
//!   events.jsonl     event log
//!   log.txt          messages
//!   checkpoints/     states to resume from
//!   samples/         synthesised samples
//!   tensorboard/     curves, images and audio
//!   write.lock       locked by the process that trains
//!   write.owner      process and machine that hold the lock, while it is held
//! ```

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{CheckpointError, CheckpointStore};
use crate::durable::{self, Appender, Disk, DurableError, fault};
use crate::events::{EventLog, EventReader};
use crate::exit::Exit;
use crate::lock::{FolderLock, LOCK_FILE, LockError, OWNER_FILE};
use crate::plan::Plan;
use crate::tensorboard::{TensorBoard, TensorBoardError};

const PLAN: &str = "plan.json";
/// File with the command-line options of a run that are not part of its plan, read on resume.
pub const REQUEST_FILE: &str = "request.json";
/// File with the vocabulary of the base model; a resumed run uses it even if the base model has changed since.
pub const BASE_VOCABULARY_FILE: &str = "from-vocab.json";
/// File with the validation clips of a run.
pub const HELD_OUT_FILE: &str = "held-out.json";
/// Files that are written before the plan when a run is created.
const INITIAL_FILES: [&str; 2] = [REQUEST_FILE, BASE_VOCABULARY_FILE];
/// Prefix of the files with the chosen algorithms for matrix products; one file per GPU model and library version.
pub const ALGORITHMS: &str = "gemm-";
const EVENTS: &str = "events.jsonl";
const LOG: &str = "log.txt";
const CHECKPOINTS: &str = "checkpoints";
const SAMPLES: &str = "samples";
const TENSORBOARD: &str = "tensorboard";
const FOLDERS: [&str; 3] = [CHECKPOINTS, SAMPLES, TENSORBOARD];
/// Maximum number of names tried for a run without a name.
const MAX_ATTEMPTS: u64 = 1000;

/// Why a run folder cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A run of that name already exists.
    #[error(
        "the run {} already exists: continue it with `--resume {name}`, or choose another name",
        path.display()
    )]
    Exists {
        /// Folder of the existing run.
        path: PathBuf,
        /// Name of the existing run.
        name: String,
    },
    /// The path is something other than a run.
    #[error("{} is not a run and contains {found:?}: choose another name", path.display())]
    Foreign {
        /// The folder or file.
        path: PathBuf,
        /// Name of an unrelated file in it.
        found: String,
    },
    /// There is no folder of that name.
    #[error("there is no run {name} in {}{}", runs.display(), existing(names))]
    Missing {
        /// The name.
        name: String,
        /// Folder of all runs.
        runs: PathBuf,
        /// Existing runs.
        names: Vec<String>,
    },
    /// The folder is not a run.
    #[error("{} is not a run: it has no plan.json{}", path.display(), existing(names))]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// Existing runs.
        names: Vec<String>,
    },
    /// The name is not a portable folder name.
    #[error(
        "{name:?} is not a valid run name: use up to 100 letters, digits, `.`, `_` and `-`, starting \
         with a letter or digit"
    )]
    Name {
        /// The given name.
        name: String,
    },
    /// The plan of a run cannot be parsed.
    #[error("{} is damaged; the run cannot be resumed without it", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// Another process holds the lock.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A disk operation failed.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    /// Exit code for this error.
    pub fn exit(&self) -> Exit {
        match self {
            FolderError::Durable(_) | FolderError::Io { .. } => Exit::Io,
            FolderError::Lock(lock) => lock.exit(Exit::Usage),
            FolderError::Plan { .. } => Exit::BadData,
            FolderError::Exists { .. }
            | FolderError::Foreign { .. }
            | FolderError::Missing { .. }
            | FolderError::NotARun { .. }
            | FolderError::Name { .. } => Exit::Usage,
        }
    }
}

fn existing(names: &[String]) -> String {
    match names {
        [] => "; there are no other runs in it: --runs-dir names another folder of runs".to_owned(),
        names => format!("; existing runs: {}", names[names.len().saturating_sub(10)..].join(", ")),
    }
}

/// The folder of a run, open for writing or only for reading.
pub struct RunFolder {
    path: PathBuf,
    name: String,
    disk: Arc<dyn Disk>,
    /// `None` when opened for reading.
    lock: Option<FolderLock>,
    /// Whether this value created the folder.
    is_new: bool,
}

impl RunFolder {
    /// Creates a run in the folder of all runs. Without a name it gets the next free number: `run-001`.
    pub fn create(runs: &Path, name: Option<&str>, plan: &Plan) -> Result<Self, FolderError> {
        Self::create_on(fault::disk_from_env(), runs, name, plan)
    }

    /// [`Self::create`] on the given disk.
    pub fn create_on(
        disk: Arc<dyn Disk>,
        runs: &Path,
        name: Option<&str>,
        plan: &Plan,
    ) -> Result<Self, FolderError> {
        Self::create_with(disk, runs, name, plan, &[])
    }

    /// [`Self::create_on`] with initial files, [`REQUEST_FILE`] and [`BASE_VOCABULARY_FILE`]. They are written before
    /// the plan, so that a folder with a plan has everything needed to resume.
    pub fn create_with(
        disk: Arc<dyn Disk>,
        runs: &Path,
        name: Option<&str>,
        plan: &Plan,
        files: &[(&str, &[u8])],
    ) -> Result<Self, FolderError> {
        if let Some(name) = name {
            return Self::begin(disk, runs, check_name(name)?, plan, files);
        }
        durable::create_folder(&*disk, runs)?;
        // Numbers rather than dates: they are short to type, and the folder has a creation time.
        let entries = entries(runs)?;
        let numbers = entries.iter().filter_map(|name| name.strip_prefix("run-")?.parse::<u64>().ok());
        let mut next = numbers.max().map_or(1, |last| last.saturating_add(1));
        for _ in 0..MAX_ATTEMPTS {
            let name = format!("run-{next:03}");
            match Self::begin(disk.clone(), runs, &name, plan, files) {
                // Created by another process since the folder was read.
                Err(
                    FolderError::Exists { .. }
                    | FolderError::Lock(LockError::Held { .. } | LockError::Unresponsive { .. }),
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
        files: &[(&str, &[u8])],
    ) -> Result<Self, FolderError> {
        let path = runs.join(name);
        let exists = || FolderError::Exists { path: path.clone(), name: name.to_owned() };
        if path.join(PLAN).exists() {
            return Err(exists());
        }
        let is_new = !path.exists();
        if !is_new {
            // Only leftovers of an interrupted creation may be reused.
            let ours = |entry: &str| {
                let folder = path.join(entry);
                entry == LOCK_FILE
                    || entry == OWNER_FILE
                    || INITIAL_FILES.contains(&entry)
                    || durable::is_unfinished(entry)
                    || FOLDERS.contains(&entry) && entries(&folder).is_ok_and(|inside| inside.is_empty())
            };
            if let Some(found) = entries(&path)?.into_iter().find(|entry| !ours(entry)) {
                return Err(FolderError::Foreign { path, found });
            }
        }
        durable::create_folder(&*disk, &path)?;
        let lock = FolderLock::acquire(&path)?;
        // Two processes may get this far; the lock lets the first one finish.
        if path.join(PLAN).exists() {
            return Err(exists());
        }
        durable::remove_unfinished(&*disk, &path)?;
        for folder in FOLDERS {
            durable::create_folder(&*disk, &path.join(folder))?;
        }
        for old in INITIAL_FILES.iter().filter(|old| files.iter().all(|(name, _)| name != *old)) {
            durable::remove(&*disk, &path.join(old))?;
        }
        for (name, bytes) in files {
            durable::write_with(&*disk, &path.join(name), bytes)?;
        }
        durable::write_with(&*disk, &path.join(PLAN), plan.to_json().as_bytes())?;
        Ok(RunFolder { path, name: name.to_owned(), disk, lock: Some(lock), is_new })
    }

    /// Opens a run for writing and returns it with its stored plan.
    pub fn resume(runs: &Path, name: &str) -> Result<(Self, Plan), FolderError> {
        let mut run = Self::view(runs, name)?;
        run.lock = Some(FolderLock::acquire(&run.path)?);
        durable::remove_unfinished(&*run.disk, &run.path)?;
        for folder in FOLDERS {
            durable::create_folder(&*run.disk, &run.path.join(folder))?;
        }
        let plan = run.plan()?;
        Ok((run, plan))
    }

    /// Opens a run for reading; another process may be training it.
    pub fn view(runs: &Path, name: &str) -> Result<Self, FolderError> {
        let path = runs.join(check_name(name)?);
        if !path.join(PLAN).is_file() {
            let names = Self::list(runs)?;
            return Err(match path.exists() {
                true => FolderError::NotARun { path, names },
                false => FolderError::Missing { name: name.to_owned(), runs: runs.to_owned(), names },
            });
        }
        let (name, disk) = (name.to_owned(), fault::disk_from_env());
        Ok(RunFolder { path, name, disk, lock: None, is_new: false })
    }

    /// Removes the folder again, so that the name of a rejected run stays free. Only if this value created it, no stage
    /// has started, and it contains nothing but initial files. Returns whether it was removed.
    pub fn rollback(self) -> Result<bool, FolderError> {
        if !self.is_new || !self.is_bare()? {
            return Ok(false);
        }
        // The plan is removed late: if interrupted before, the folder is still a valid run. Then the initial files, which
        // the next creation would reuse. The lock comes last: until then no other process can create a run of the
        // same name.
        let last =
            |name: &str| [PLAN, LOCK_FILE, OWNER_FILE].contains(&name) || INITIAL_FILES.contains(&name);
        for name in entries(&self.path)?.iter().filter(|name| !last(name)) {
            let path = self.path.join(name);
            match FOLDERS.contains(&name.as_str()) {
                true => durable::remove_folder(&*self.disk, &path)?,
                false => durable::remove(&*self.disk, &path)?,
            }
        }
        for name in [&[PLAN][..], &INITIAL_FILES, &[OWNER_FILE, LOCK_FILE]].concat() {
            durable::remove(&*self.disk, &self.path.join(name))?;
        }
        match self.disk.remove_folder(&self.path) {
            // Another process has just created a run there.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            removed => removed.map_err(DurableError::at("remove", &self.path))?,
        }
        Ok(true)
    }

    /// Whether the folder contains only what exists before the first stage.
    fn is_bare(&self) -> Result<bool, FolderError> {
        let ours = |name: &str| match name {
            // TensorBoard files are created before the first curve.
            PLAN | EVENTS | LOG | LOCK_FILE | OWNER_FILE | TENSORBOARD | REQUEST_FILE
            | BASE_VOCABULARY_FILE | HELD_OUT_FILE => true,
            CHECKPOINTS | SAMPLES => entries(&self.path.join(name)).is_ok_and(|inside| inside.is_empty()),
            name => durable::is_unfinished(name),
        };
        let events =
            self.events().read().map_err(|source| FolderError::Io { path: self.path.clone(), source })?;
        let started = events.iter().any(|event| event.kind == "stage");
        Ok(!started && entries(&self.path)?.iter().all(|name| ours(name)))
    }

    /// Whether a folder is a run.
    pub fn is_run(path: &Path) -> bool {
        path.join(PLAN).is_file()
    }

    /// Names of all runs in alphabetical order; empty if the folder does not exist.
    pub fn list(runs: &Path) -> Result<Vec<String>, FolderError> {
        let mut names = entries(runs)?;
        names.retain(|name| check_name(name).is_ok() && runs.join(name).join(PLAN).is_file());
        names.sort();
        Ok(names)
    }

    /// Name of the run.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Folder of synthesised samples and their images.
    pub fn samples(&self) -> PathBuf {
        self.path.join(SAMPLES)
    }

    /// The stored plan.
    pub fn plan(&self) -> Result<Plan, FolderError> {
        let path = self.path.join(PLAN);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| FolderError::Io { path: path.clone(), source })?;
        Plan::from_json(&text).map_err(|source| FolderError::Plan { path, source })
    }

    /// Replaces the stored plan, when everything that the settings depend on is known or a resumed run changes them.
    pub fn replace_plan(&self, plan: &Plan) -> Result<(), FolderError> {
        self.assert_writing();
        Ok(durable::write_with(&*self.disk, &self.path.join(PLAN), plan.to_json().as_bytes())?)
    }

    /// Keeps a table of chosen algorithms, whose name begins with [`ALGORITHMS`]; writes only if it changed.
    pub fn keep_algorithms(&self, name: &str, table: &[u8]) -> Result<(), FolderError> {
        self.assert_writing();
        let path = self.path.join(name);
        match std::fs::read(&path) {
            Ok(kept) if kept == table => Ok(()),
            _ => Ok(durable::write_with(&*self.disk, &path, table)?),
        }
    }

    /// The tables of algorithms that were kept. One that cannot be read is left out; its algorithms are chosen again.
    pub fn algorithms(&self) -> Vec<Vec<u8>> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with(ALGORITHMS) && name.ends_with(".json")
        });
        paths.sort();
        paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
    }

    /// Its checkpoints, for writing.
    pub fn checkpoint_store(&self) -> Result<CheckpointStore, CheckpointError> {
        self.assert_writing();
        CheckpointStore::open_on(self.disk.clone(), &self.path.join(CHECKPOINTS))
    }

    /// Its event log, for reading.
    pub fn events(&self) -> EventReader {
        EventReader::new(&self.path.join(EVENTS))
    }

    /// Its event log, for writing.
    pub fn event_log(&self) -> Result<EventLog, DurableError> {
        self.assert_writing();
        EventLog::open_on(self.disk.clone(), &self.path.join(EVENTS))
    }

    /// Its message log, for appending lines.
    pub fn log(&self) -> Result<Appender, DurableError> {
        self.assert_writing();
        Appender::open_lines(self.disk.clone(), &self.path.join(LOG)).map(|(log, _)| log)
    }

    /// Its TensorBoard log. `resumed` is the first step that a resumed run will write again.
    pub fn tensorboard(&self, resumed: Option<u64>) -> Result<TensorBoard, TensorBoardError> {
        self.assert_writing();
        TensorBoard::open_on(self.disk.clone(), &self.path.join(TENSORBOARD), resumed)
    }

    fn assert_writing(&self) {
        assert!(self.lock.is_some(), "the run {} was opened for reading", self.name);
    }
}

fn check_name(name: &str) -> Result<&str, FolderError> {
    let fits = (1..=100).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits { Ok(name) } else { Err(FolderError::Name { name: name.to_owned() }) }
}

/// Names in a folder; empty if it does not exist. Names that are not UTF-8 are included, lossily converted.
fn entries(folder: &Path) -> Result<Vec<String>, FolderError> {
    let failed = |source| FolderError::Io { path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    entries.map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())).collect()
}
