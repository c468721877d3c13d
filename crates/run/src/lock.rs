//! One writer per folder.
//!
//! The lock is the operating system's, on the file `write.lock`: it ends with its process, however
//! that ends, so there is never a stale one to remove by hand.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Name of the file that is locked.
pub const LOCK_FILE: &str = "write.lock";

/// How often who waits asks. Blocking would be no shorter to write, and would not hear a signal.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The right to write in a folder, held until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
}

/// Why the right to write was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else writes there.
    #[error(
        "{} is being written by {}: wait until it has finished, or stop it, and run the command again",
        folder.display(),
        named(*holder)
    )]
    Held {
        /// The folder.
        folder: PathBuf,
        /// The other process, where it said who it is.
        holder: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {} (is the folder writable, and on a file system with locks?)", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl LockError {
    /// What to say to whoever would rather wait than be refused.
    pub fn waiting(&self) -> String {
        match self {
            LockError::Held { folder, holder } => format!(
                "{} is writing {}: waiting until it has finished (Ctrl-C ends that)",
                named(*holder),
                folder.display()
            ),
            LockError::Io { .. } => self.to_string(),
        }
    }
}

impl LockError {
    /// Whether who holds the lock has been killed, and the system is still taking it down: then it will be free soon.
    pub fn is_dying(&self) -> bool {
        matches!(self, LockError::Held { holder: Some(pid), .. } if is_dying(*pid))
    }

    /// Who holds the lock, for a sentence.
    pub fn holder(&self) -> String {
        match self {
            LockError::Held { holder, .. } => named(*holder),
            LockError::Io { .. } => named(None),
        }
    }
}

/// Whether a process is gone, or has been killed and only has to be taken down: which can take seconds where it has much
/// memory or a GPU.
fn is_dying(pid: u32) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    if !cfg!(target_os = "linux") || !Path::new("/proc/self").exists() {
        return false;
    }
    let Ok(stat) = std::fs::read_to_string(process.join("stat")) else { return true };
    // After the name, which may hold anything: state, six numbers, flags.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next().unwrap_or_default();
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    let killed = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    matches!(state, "Z" | "X" | "x")
        || flags & EXITING != 0
        || killed.into_iter().any(|mask| mask & KILL != 0)
}

/// `PF_EXITING` of the kernel.
const EXITING: u64 = 4;
/// SIGKILL in a mask of signals.
const KILL: u64 = 1 << 8;

fn named(holder: Option<u32>) -> String {
    holder.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

impl FolderLock {
    /// Waits until nobody holds the lock of a folder, and does not take it; `false` where `stop` was raised before.
    pub fn wait(folder: &Path, stop: &AtomicBool) -> Result<bool, LockError> {
        while !stop.load(Ordering::Relaxed) {
            match Self::acquire(folder) {
                Ok(_) => return Ok(true),
                Err(LockError::Held { .. }) => std::thread::sleep(ASK_EVERY),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Takes the lock of a folder that exists, or says at once who has it.
    pub fn acquire(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(LOCK_FILE);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Only a courtesy: between its locking and its writing the file is still empty.
                let _ = (&mut file).take(20).read_to_string(&mut text);
                return Err(LockError::Held { folder: folder.to_owned(), holder: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The number is for the message above; on a full disk it may be missing.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = writeln!(file, "{}", std::process::id());
        Ok(FolderLock { file })
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Emptied, not removed: whoever has opened the file meanwhile must lock the same one. And
        // empty, so that a folder's bytes do not depend on who wrote them.
        let _ = self.file.set_len(0);
        // Said aloud, because closing is not enough: a program being started by another thread has a
        // copy of every open file for a moment, and the lock would last as long as the copy.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_outlived_its_holder_while_another_thread_started_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::acquire(folder.path()).unwrap();
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        FolderLock::acquire(folder.path()).unwrap();
        drop(copy);
    }
}
