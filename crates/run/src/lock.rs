//! One writer per folder, also on file systems that several machines share.
//!
//! Two locks are acquired, one after the other:
//!
//! 1. An operating-system lock on the file `write.lock`. It ends with its process, however that ends, and excludes
//!    other processes of the same machine. On a network file system other machines may not see it: NFS with `nolock`
//!    and Lustre with `localflock` silently keep it local.
//! 2. The file [`OWNER_FILE`], hard-linked into place with its content, which fails on every file system if it exists.
//!    It names machine and process, is rewritten every few seconds as a heartbeat, and excludes other machines.
//!
//! An owner file of this machine is stale once the first lock is free, and is replaced. One of another machine is never
//! replaced on a shared file system: a machine that lost the network for a while would come back and write. The error
//! message names the owner, the time since its last heartbeat and what to do.

mod machine;
mod owner;

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exit::Exit;
use crate::procfs::{self, ProcessStat};
use machine::Machine;
use owner::{Claim, Ownership};

/// Name of the file that is locked.
pub const LOCK_FILE: &str = "write.lock";
/// Name of the file that identifies the writer; exists while the lock is held.
pub const OWNER_FILE: &str = "write.owner";

/// Polling interval while waiting for a lock. A blocking wait could not be interrupted by a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The exclusive right to write in a folder, released on drop.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    file: File,
    ownership: Ownership,
}

/// Why a lock could not be acquired or was lost.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error(
        "{} is in use by {}: wait until it finishes, or stop it, and run the command again",
        folder.display(),
        named(*holder, host.as_deref())
    )]
    Held {
        /// The folder.
        folder: PathBuf,
        /// Id of the other process, if known.
        holder: Option<u32>,
        /// Its host name, if it is another machine.
        host: Option<String>,
    },
    /// Another machine holds the lock, but its heartbeat has stopped.
    #[error(
        "{} is locked by {}, which has sent no heartbeat for {}: if it is still running there, wait for it or stop \
         it; if it is not, remove {} and run the command again",
        folder.display(),
        named(*holder, host.as_deref()),
        duration(*silent_for),
        folder.join(OWNER_FILE).display()
    )]
    Unresponsive {
        /// The folder.
        folder: PathBuf,
        /// Id of the other process, if known.
        holder: Option<u32>,
        /// Its host name, if known.
        host: Option<String>,
        /// Time since its last heartbeat.
        silent_for: Duration,
    },
    /// The owner file was removed or replaced while this process held the lock.
    #[error(
        "this process has lost the lock of {}: {} was removed or replaced, so another process may be writing there; \
         finished work is kept, run the command again when no other process uses the folder",
        folder.display(),
        folder.join(OWNER_FILE).display()
    )]
    Lost {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock file cannot be opened or locked.
    #[error(
        "cannot lock {} (is the folder writable, and on a file system with locks? NFS needs a lock service, Lustre the \
         mount option `flock`)",
        path.display()
    )]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl LockError {
    /// Message for a command that waits for the lock.
    pub fn waiting_message(&self) -> String {
        match self {
            LockError::Held { folder, holder, host } => format!(
                "{} is writing {}: waiting until it finishes (Ctrl-C to cancel)",
                named(*holder, host.as_deref()),
                folder.display()
            ),
            _ => self.to_string(),
        }
    }

    /// Whether the holder has been killed but is still exiting; the lock will then be free soon.
    pub fn is_exiting(&self) -> bool {
        matches!(self, LockError::Held { holder: Some(pid), host: None, .. } if is_exiting(*pid))
    }

    /// Exit code for this error. A lock of another machine may be retried later, as job schedulers do; for a lock of
    /// this machine, where the user has to decide, it is `refused`.
    pub fn exit(&self, refused: Exit) -> Exit {
        match self {
            LockError::Held { host: Some(_), .. } | LockError::Unresponsive { .. } => Exit::Retry,
            LockError::Held { host: None, .. } => refused,
            LockError::Lost { .. } | LockError::Io { .. } => Exit::Io,
        }
    }

    /// Describes the holder, for a message.
    pub fn holder(&self) -> String {
        match self {
            LockError::Held { holder, host, .. } | LockError::Unresponsive { holder, host, .. } => {
                named(*holder, host.as_deref())
            }
            LockError::Lost { .. } | LockError::Io { .. } => named(None, None),
        }
    }
}

/// Whether a process is gone or exiting. Exiting can take seconds for a process with much memory or a GPU.
fn is_exiting(pid: u32) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    if !cfg!(target_os = "linux") || !Path::new("/proc/self").exists() {
        return false;
    }
    let Ok(stat) = std::fs::read_to_string(process.join("stat")) else { return true };
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    let is_exiting = ProcessStat::parse(&stat)
        .is_some_and(|stat| matches!(stat.state, 'Z' | 'X' | 'x') || stat.flags & EXITING != 0);
    let pending = ["SigPnd", "ShdPnd"].into_iter().filter_map(|key| procfs::mask(&status, key));
    is_exiting || pending.into_iter().any(|mask| mask & KILL != 0)
}

/// The kernel's `PF_EXITING` flag.
const EXITING: u64 = 4;
/// SIGKILL in a signal mask.
const KILL: u64 = 1 << 8;

fn named(holder: Option<u32>, host: Option<&str>) -> String {
    let process = holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
    match host {
        Some(host) => format!("{process} on {host}"),
        None => process,
    }
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}

impl FolderLock {
    /// Waits until the lock of a folder is free, without keeping it; `false` if `stop` was set first.
    pub fn wait(folder: &Path, stop: &AtomicBool) -> Result<bool, LockError> {
        while !stop.load(Ordering::Relaxed) {
            match Self::acquire(folder) {
                Ok(_) => return Ok(true),
                Err(LockError::Held { .. }) => std::thread::sleep(POLL_INTERVAL),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Acquires the lock of an existing folder, or returns immediately with its holder.
    pub fn acquire(folder: &Path) -> Result<Self, LockError> {
        Self::acquire_as(folder, Machine::this(), machine::is_shared(folder))
    }

    /// [`Self::acquire`] for a given machine and kind of file system.
    fn acquire_as(folder: &Path, machine: &Machine, is_shared: bool) -> Result<Self, LockError> {
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
                // Best effort: between locking and writing its id, the other process leaves the file empty.
                let _ = (&mut file).take(20).read_to_string(&mut text);
                let host = owner::other_host(folder, machine);
                let (folder, holder) = (folder.to_owned(), text.trim().parse().ok());
                return Err(LockError::Held { folder, holder, host });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let ownership = match Ownership::claim(folder, machine, is_shared) {
            Ok(Claim::Ours(ownership)) => ownership,
            Ok(Claim::Others { owner, silent_for }) => {
                let folder = folder.to_owned();
                let holder = owner.as_ref().map(|owner| owner.pid);
                let host = owner.map(|owner| owner.host);
                return Err(match silent_for {
                    Some(silent_for) => LockError::Unresponsive { folder, holder, host, silent_for },
                    None => LockError::Held { folder, holder, host },
                });
            }
            Err(source) => return Err(LockError::Io { path: folder.join(OWNER_FILE), source }),
        };
        // The process id is for the message above; on a full disk it may be missing.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = writeln!(file, "{}", std::process::id());
        Ok(FolderLock { folder: folder.to_owned(), file, ownership })
    }

    /// Returns an error if this process has lost the lock; to be called before important writes.
    pub fn check(&self) -> Result<(), LockError> {
        match self.ownership.is_lost() {
            true => Err(LockError::Lost { folder: self.folder.clone() }),
            false => Ok(()),
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Truncated, not removed: another process may have opened the file and must lock the same one. Empty, so that
        // the contents of a folder do not depend on the process that wrote them.
        if self.ownership.release() {
            let _ = self.file.set_len(0);
        }
        // Unlocked explicitly, because closing is not enough: a process being spawned by another thread briefly has a
        // copy of every open file, and the lock would last as long as the copy.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(host: &str, boot: &str) -> Machine {
        Machine { host: host.to_owned(), boot: boot.to_owned() }
    }

    /// Leaves the folder in the state of a process killed on that machine.
    fn killed_on(folder: &Path, host: &str, boot: &str) {
        let lock = FolderLock::acquire_as(folder, &machine(host, boot), true).unwrap();
        let owner = std::fs::read(folder.join(OWNER_FILE)).unwrap();
        drop(lock);
        std::fs::write(folder.join(OWNER_FILE), owner).unwrap();
        std::fs::write(folder.join(LOCK_FILE), "4711\n").unwrap();
    }

    fn age(folder: &Path, seconds: u64) {
        let owner = File::options().write(true).open(folder.join(OWNER_FILE)).unwrap();
        owner.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_killed_process_that_the_system_still_holds_is_exiting() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_exiting(child.id()) && !is_exiting(std::process::id()));
        child.kill().unwrap();
        // Not waited for, so it stays in the process table.
        let began = std::time::Instant::now();
        while !is_exiting(child.id()) {
            assert!(began.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "it was gone already");
        child.wait().unwrap();
        assert!(is_exiting(child.id()), "a process that is gone is no holder");
    }

    #[test]
    fn a_lock_is_released_while_another_thread_spawns_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::acquire(folder.path()).unwrap();
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        FolderLock::acquire(folder.path()).unwrap();
        drop(copy);
    }

    #[test]
    fn the_lock_of_a_killed_process_of_this_machine_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for shared in [true, false] {
            killed_on(folder.path(), "node01", "boot 1");
            let lock = FolderLock::acquire_as(folder.path(), &machine("node01", "boot 1"), shared).unwrap();
            lock.check().unwrap();
            drop(lock);
            assert!(!folder.path().join(OWNER_FILE).exists());
            assert_eq!(std::fs::read(folder.path().join(LOCK_FILE)).unwrap(), b"");
        }
    }

    #[test]
    fn a_rebooted_machine_replaces_its_own_lock() {
        let folder = tempfile::tempdir().unwrap();
        // At once on a local disk; on a shared one, where two machines may have the same name, after a time without
        // heartbeat.
        killed_on(folder.path(), "node01", "boot 1");
        let rebooted = machine("node01", "boot 2");
        let held = FolderLock::acquire_as(folder.path(), &rebooted, true).unwrap_err();
        assert!(matches!(held, LockError::Held { .. }), "{held}");
        assert_eq!(held.exit(Exit::Usage), Exit::Retry);
        drop(FolderLock::acquire_as(folder.path(), &rebooted, false).unwrap());
        killed_on(folder.path(), "node01", "boot 1");
        age(folder.path(), 600);
        drop(FolderLock::acquire_as(folder.path(), &rebooted, true).unwrap());
    }

    #[test]
    fn a_lock_of_another_machine_is_refused_with_its_name_and_advice() {
        let folder = tempfile::tempdir().unwrap();
        let other = machine("node02", "boot 2");
        killed_on(folder.path(), "node01", "boot 1");
        let held = FolderLock::acquire_as(folder.path(), &other, true).unwrap_err();
        let process = format!("process {} on node01", std::process::id());
        assert!(matches!(held, LockError::Held { .. }) && held.to_string().contains(&process), "{held}");
        assert!(!held.is_exiting(), "process ids of another machine mean nothing here");
        assert_eq!(held.exit(Exit::Usage), Exit::Retry, "a scheduler may try again");

        age(folder.path(), 600);
        let unresponsive = FolderLock::acquire_as(folder.path(), &other, true).unwrap_err();
        let message = unresponsive.to_string();
        assert!(matches!(unresponsive, LockError::Unresponsive { .. }), "{message}");
        let path = folder.path().join(OWNER_FILE).display().to_string();
        for part in [&process, "10 minutes", "remove", &path] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(unresponsive.exit(Exit::Usage), Exit::Retry);
        // The refusal changed nothing, and following its advice works.
        std::fs::remove_file(folder.path().join(OWNER_FILE)).unwrap();
        drop(FolderLock::acquire_as(folder.path(), &other, true).unwrap());
    }

    #[test]
    fn on_a_local_disk_the_lock_of_an_unresponsive_machine_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        killed_on(folder.path(), "container-1", "boot 1");
        age(folder.path(), 600);
        drop(FolderLock::acquire_as(folder.path(), &machine("container-2", "boot 2"), false).unwrap());
    }

    #[test]
    fn an_unreadable_owner_file_counts_as_held_on_a_shared_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let this = machine("node01", "boot 1");
        for content in ["", "{", "\0\0\0\0"] {
            std::fs::write(folder.path().join(OWNER_FILE), content).unwrap();
            let held = FolderLock::acquire_as(folder.path(), &this, true).unwrap_err();
            assert!(matches!(held, LockError::Held { holder: None, host: None, .. }), "{held}");
            age(folder.path(), 600);
            let unresponsive = FolderLock::acquire_as(folder.path(), &this, true).unwrap_err();
            assert!(matches!(unresponsive, LockError::Unresponsive { holder: None, .. }), "{unresponsive}");
            drop(FolderLock::acquire_as(folder.path(), &this, false).unwrap());
        }
    }

    #[test]
    fn a_lock_whose_owner_file_was_replaced_is_lost_and_keeps_the_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut lock = FolderLock::acquire_as(folder.path(), &machine("node01", "boot 1"), true).unwrap();
        lock.ownership.beat_now();
        lock.check().unwrap();
        let other = r#"{"host":"node02","boot":"boot 2","pid":7,"number":0,"beat":1}"#;
        std::fs::remove_file(folder.path().join(OWNER_FILE)).unwrap();
        std::fs::write(folder.path().join(OWNER_FILE), other).unwrap();
        lock.ownership.beat_now();
        let lost = lock.check().unwrap_err();
        assert!(matches!(lost, LockError::Lost { .. }) && lost.to_string().contains("write.owner"), "{lost}");
        drop(lock);
        assert_eq!(std::fs::read_to_string(folder.path().join(OWNER_FILE)).unwrap(), other);
    }
}
