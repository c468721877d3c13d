//! Children of this program: started with a list of arguments, heard in a file, and outliving the server.

use super::{internal, lock};
use crate::answer::ApiError;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What of a log is shown at most.
const TAIL_BYTES: u64 = 16 << 10;

/// How a child is, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It runs, under this number.
    Running(u32),
    /// It ended with an exit code; none where a signal ended it.
    Ended(Option<i32>),
}

/// The children of this server, by what they are called.
#[derive(Default)]
pub struct Children(Arc<Mutex<HashMap<String, ChildState>>>);

/// What a child is to do.
pub struct ChildSpec<'a> {
    /// Where the program is.
    pub program: &'a Path,
    /// Its arguments, each as it is.
    pub arguments: Vec<String>,
    /// Everything it says goes here; what was there is replaced.
    pub log: PathBuf,
    /// What it prints, apart from what it says.
    pub output: Option<PathBuf>,
}

impl Children {
    /// How a child of that name is; none where this server has not started one.
    pub fn state(&self, name: &str) -> Option<ChildState> {
        lock(&self.0).get(name).copied()
    }

    /// The number of a child that runs.
    pub fn pid(&self, name: &str) -> Option<u32> {
        match self.state(name) {
            Some(ChildState::Running(pid)) => Some(pid),
            _ => None,
        }
    }

    /// Whether a child of that name runs.
    pub fn is_running(&self, name: &str) -> bool {
        self.pid(name).is_some()
    }

    /// The first running child whose name begins so.
    pub fn running(&self, prefix: &str) -> Option<String> {
        let all = lock(&self.0);
        let is_so = |(name, state): &(&String, &ChildState)| {
            name.starts_with(prefix) && matches!(state, ChildState::Running(_))
        };
        all.iter().find(is_so).map(|(name, _)| name.clone())
    }

    /// Starts a child. It is a process group of its own: a signal for the server's terminal is none for a training.
    pub fn start(&self, name: &str, spec: ChildSpec<'_>) -> Result<(), ApiError> {
        let failed = |error: std::io::Error| internal(format!("the program cannot be started: {error}"));
        let make = |path: &Path| {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            File::create(path)
        };
        let log = make(&spec.log).map_err(failed)?;
        let output = match &spec.output {
            Some(path) => make(path).map_err(failed)?,
            None => log.try_clone().map_err(failed)?,
        };
        let mut command = Command::new(spec.program);
        command.args(&spec.arguments).env_remove("MYXTTS_TOKEN");
        command.stdin(Stdio::null()).stdout(output).stderr(log);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut all = lock(&self.0);
        let mut child = command.spawn().map_err(failed)?;
        all.insert(name.to_owned(), ChildState::Running(child.id()));
        drop(all);
        let (all, name) = (self.0.clone(), name.to_owned());
        let waiting = std::thread::Builder::new().name("myxtts-child".to_owned()).spawn(move || {
            let code = child.wait().ok().and_then(|status| status.code());
            lock(&all).insert(name, ChildState::Ended(code));
        });
        waiting.map(|_| ()).map_err(failed)
    }

    /// Waits until a child has ended or something has come true.
    pub fn wait(&self, name: &str, most: Duration, is_so: impl Fn() -> bool) -> Option<ChildState> {
        let begun = Instant::now();
        while self.is_running(name) && !is_so() && begun.elapsed() < most {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.state(name)
    }
}

/// The end of a log; nothing where there is none.
pub fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>((bytes, length > TAIL_BYTES))
    };
    let Ok((bytes, is_cut)) = read() else { return String::new() };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match is_cut {
        true => text.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()),
        false => text,
    }
}

/// The last lines of a log that say something: why a child has failed.
pub fn last_words(path: &Path) -> String {
    let text = tail(path);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from =
        lines.iter().rposition(|line| line.starts_with("error")).unwrap_or(lines.len().saturating_sub(3));
    lines[from..].join("\n")
}
