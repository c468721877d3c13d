//! Child processes of the server: started with an argument list, logged to a file, and surviving the server.

use super::{internal, lock};
use crate::response::ApiError;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum bytes of a log that are shown.
const TAIL_BYTES: u64 = 16 << 10;

/// State of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// Running, with this process id.
    Running(u32),
    /// Ended with an exit code; `None` if killed by a signal.
    Ended(Option<i32>),
}

/// Child processes of this server, by name.
#[derive(Default)]
pub struct Children(Arc<Mutex<HashMap<String, ChildState>>>);

/// What to start.
pub struct ChildSpec<'a> {
    /// Path of the program.
    pub program: &'a Path,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// File for its messages; replaced if it exists.
    pub log: PathBuf,
    /// File for its standard output; `None` to log it with the messages.
    pub output: Option<PathBuf>,
}

impl Children {
    /// State of a child; `None` if this server has not started it.
    pub fn state(&self, name: &str) -> Option<ChildState> {
        lock(&self.0).get(name).copied()
    }

    /// Process id of a running child.
    pub fn pid(&self, name: &str) -> Option<u32> {
        match self.state(name) {
            Some(ChildState::Running(pid)) => Some(pid),
            _ => None,
        }
    }

    /// Whether a child is running.
    pub fn is_running(&self, name: &str) -> bool {
        self.pid(name).is_some()
    }

    /// Name of a running child with the given prefix.
    pub fn running(&self, prefix: &str) -> Option<String> {
        let all = lock(&self.0);
        let is_match = |(name, state): &(&String, &ChildState)| {
            name.starts_with(prefix) && matches!(state, ChildState::Running(_))
        };
        all.iter().find(is_match).map(|(name, _)| name.clone())
    }

    /// Starts a child in its own process group, so that signals of the server's terminal do not reach it.
    pub fn start(&self, name: &str, spec: ChildSpec<'_>) -> Result<(), ApiError> {
        let failed = |error: std::io::Error| internal(format!("the program cannot be started: {error}"));
        let create = |path: &Path| {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            File::create(path)
        };
        let log = create(&spec.log).map_err(failed)?;
        let output = match &spec.output {
            Some(path) => create(path).map_err(failed)?,
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
        let waiter = std::thread::Builder::new().name("myxtts-child".to_owned()).spawn(move || {
            let code = child.wait().ok().and_then(|status| status.code());
            lock(&all).insert(name, ChildState::Ended(code));
        });
        waiter.map(|_| ()).map_err(failed)
    }

    /// Waits until a child has ended, a condition holds, or the timeout is reached.
    pub fn wait(&self, name: &str, timeout: Duration, condition: impl Fn() -> bool) -> Option<ChildState> {
        let start = Instant::now();
        while self.is_running(name) && !condition() && start.elapsed() < timeout {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.state(name)
    }
}

/// End of a log; empty if it does not exist.
pub fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>((bytes, length > TAIL_BYTES))
    };
    let Ok((bytes, is_truncated)) = read() else { return String::new() };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match is_truncated {
        true => text.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()),
        false => text,
    }
}

/// The last error message of a log, else its last three lines: why a child failed.
pub fn failure_excerpt(path: &Path) -> String {
    let text = tail(path);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from =
        lines.iter().rposition(|line| line.starts_with("error")).unwrap_or(lines.len().saturating_sub(3));
    lines[from..].join("\n")
}
