//! One writer per folder, on one machine and on file systems that several machines share.
//!
//! Two locks are taken, one after the other:
//!
//! 1. The operating system's, on the file `write.lock`. It ends with its process, however that ends, and decides between
//!    processes of one machine. On a network file system it may or may not be seen by other machines: NFS with `nolock`
//!    and Lustre with `localflock` keep it to themselves and say nothing.
//! 2. The file [`OWNER_FILE`], linked into place with its content, which fails where it exists on every file system. It names
//!    machine and process, and is written again every few seconds. It decides between machines.
//!
//! An owner file of this machine is stale once the first lock is free, and is taken over. One of another machine is not
//! taken over on a shared file system: a machine that lost the network for a while would come back and write. The
//! message says whose it is, how long it has been silent and what to do.

mod machine;
mod owner;

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exit::Exit;
use machine::Machine;
use owner::{Claim, Ownership};

/// Name of the file that is locked.
pub const LOCK_FILE: &str = "write.lock";
/// Name of the file that says who writes; there as long as somebody does.
pub const OWNER_FILE: &str = "write.owner";

/// How often who waits asks. Blocking would be no shorter to write, and would not hear a signal.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The right to write in a folder, held until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    file: File,
    ownership: Ownership,
}

/// Why the right to write was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else writes there.
    #[error(
        "{} is being written by {}: wait until it has finished, or stop it, and run the command again",
        folder.display(),
        named(*holder, host.as_deref())
    )]
    Held {
        /// The folder.
        folder: PathBuf,
        /// The other process, where it said who it is.
        holder: Option<u32>,
        /// Its machine, where that is another one.
        host: Option<String>,
    },
    /// Another machine has the right to write, and has not been heard of for a while.
    #[error(
        "{} is locked by {}, which has given no sign of life for {}: if it is still running there, wait for it or stop \
         it; if it is gone, remove {} and run the command again",
        folder.display(),
        named(*holder, host.as_deref()),
        duration(*silent),
        folder.join(OWNER_FILE).display()
    )]
    Silent {
        /// The folder.
        folder: PathBuf,
        /// The other process, where it said who it is.
        holder: Option<u32>,
        /// Its machine, where it said so.
        host: Option<String>,
        /// Time since it last wrote its owner file.
        silent: Duration,
    },
    /// The owner file was removed or replaced while this process held the lock.
    #[error(
        "this process has lost the lock of {}: {} was removed or replaced, so another process may be writing there; \
         what was finished is kept, run the command again when nobody else writes",
        folder.display(),
        folder.join(OWNER_FILE).display()
    )]
    Lost {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock file cannot be used.
    #[error(
        "cannot lock {} (is the folder writable, and on a file system with locks? NFS needs a lock service, Lustre the \
         mount option `flock`)",
        path.display()
    )]
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
            LockError::Held { folder, holder, host } => format!(
                "{} is writing {}: waiting until it has finished (Ctrl-C ends that)",
                named(*holder, host.as_deref()),
                folder.display()
            ),
            _ => self.to_string(),
        }
    }

    /// Whether who holds the lock has been killed, and the system is still taking it down: then it will be free soon.
    pub fn is_dying(&self) -> bool {
        matches!(self, LockError::Held { holder: Some(pid), host: None, .. } if is_dying(*pid))
    }

    /// The exit code that belongs to it. A lock of another machine is worth a later try, which a scheduler makes by itself; with
    /// one of this machine a person has something to decide, which `refused` says.
    pub fn exit(&self, refused: Exit) -> Exit {
        match self {
            LockError::Held { host: Some(_), .. } | LockError::Silent { .. } => Exit::Retry,
            LockError::Held { host: None, .. } => refused,
            LockError::Lost { .. } | LockError::Io { .. } => Exit::Io,
        }
    }

    /// Who holds the lock, for a sentence.
    pub fn holder(&self) -> String {
        match self {
            LockError::Held { holder, host, .. } | LockError::Silent { holder, host, .. } => {
                named(*holder, host.as_deref())
            }
            LockError::Lost { .. } | LockError::Io { .. } => named(None, None),
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
        Self::acquire_as(folder, Machine::this(), machine::is_shared(folder))
    }

    /// [`Self::acquire`] by a machine, on a file system that others share or not.
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
                // Only a courtesy: between its locking and its writing the file is still empty.
                let _ = (&mut file).take(20).read_to_string(&mut text);
                let host = owner::other_host(folder, machine);
                let (folder, holder) = (folder.to_owned(), text.trim().parse().ok());
                return Err(LockError::Held { folder, holder, host });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let ownership = match Ownership::claim(folder, machine, is_shared) {
            Ok(Claim::Ours(ownership)) => ownership,
            Ok(Claim::Others { owner, silent }) => {
                let folder = folder.to_owned();
                let holder = owner.as_ref().map(|owner| owner.pid);
                let host = owner.map(|owner| owner.host);
                return Err(match silent {
                    Some(silent) => LockError::Silent { folder, holder, host, silent },
                    None => LockError::Held { folder, holder, host },
                });
            }
            Err(source) => return Err(LockError::Io { path: folder.join(OWNER_FILE), source }),
        };
        // The number is for the message above; on a full disk it may be missing.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = writeln!(file, "{}", std::process::id());
        Ok(FolderLock { folder: folder.to_owned(), file, ownership })
    }

    /// Whether the lock is still this process's: to be asked before something is written that counts.
    pub fn check(&self) -> Result<(), LockError> {
        match self.ownership.is_lost() {
            true => Err(LockError::Lost { folder: self.folder.clone() }),
            false => Ok(()),
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Emptied, not removed: whoever has opened the file meanwhile must lock the same one. And
        // empty, so that a folder's bytes do not depend on who wrote them.
        if self.ownership.release() {
            let _ = self.file.set_len(0);
        }
        // Said aloud, because closing is not enough: a program being started by another thread has a
        // copy of every open file for a moment, and the lock would last as long as the copy.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(host: &str, boot: &str) -> Machine {
        Machine { host: host.to_owned(), boot: boot.to_owned() }
    }

    /// Leaves the folder as a process of that machine would that was killed.
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

    #[test]
    fn a_lock_outlived_its_holder_while_another_thread_started_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::acquire(folder.path()).unwrap();
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        FolderLock::acquire(folder.path()).unwrap();
        drop(copy);
    }

    #[test]
    fn what_a_killed_process_of_this_machine_left_is_taken_over_at_once() {
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
    fn a_machine_that_was_started_again_takes_its_own_lock_over() {
        let folder = tempfile::tempdir().unwrap();
        // On a disk of its own at once; on a shared one, where two machines may have the same name, after a silence.
        killed_on(folder.path(), "node01", "boot 1");
        let again = machine("node01", "boot 2");
        let held = FolderLock::acquire_as(folder.path(), &again, true).unwrap_err();
        assert!(matches!(held, LockError::Held { .. }), "{held}");
        assert_eq!(held.exit(Exit::Usage), Exit::Retry);
        drop(FolderLock::acquire_as(folder.path(), &again, false).unwrap());
        killed_on(folder.path(), "node01", "boot 1");
        age(folder.path(), 600);
        drop(FolderLock::acquire_as(folder.path(), &again, true).unwrap());
    }

    #[test]
    fn a_lock_of_another_machine_is_refused_with_its_name_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let other = machine("node02", "boot 2");
        killed_on(folder.path(), "node01", "boot 1");
        let held = FolderLock::acquire_as(folder.path(), &other, true).unwrap_err();
        let process = format!("process {} on node01", std::process::id());
        assert!(matches!(held, LockError::Held { .. }) && held.to_string().contains(&process), "{held}");
        assert!(!held.is_dying(), "numbers of processes mean nothing on another machine");
        assert_eq!(held.exit(Exit::Usage), Exit::Retry, "a scheduler may try again");

        age(folder.path(), 600);
        let silent = FolderLock::acquire_as(folder.path(), &other, true).unwrap_err();
        let words = silent.to_string();
        assert!(matches!(silent, LockError::Silent { .. }), "{words}");
        let path = folder.path().join(OWNER_FILE).display().to_string();
        for part in [&process, "10 minutes", "remove", &path] {
            assert!(words.contains(part), "{words}");
        }
        assert_eq!(silent.exit(Exit::Usage), Exit::Retry);
        // The refusal took nothing: the file is as it was, and doing as it says helps.
        std::fs::remove_file(folder.path().join(OWNER_FILE)).unwrap();
        drop(FolderLock::acquire_as(folder.path(), &other, true).unwrap());
    }

    #[test]
    fn a_disk_of_its_own_does_not_wait_for_another_machine_that_is_silent() {
        let folder = tempfile::tempdir().unwrap();
        killed_on(folder.path(), "container-1", "boot 1");
        age(folder.path(), 600);
        drop(FolderLock::acquire_as(folder.path(), &machine("container-2", "boot 2"), false).unwrap());
    }

    #[test]
    fn an_owner_file_without_a_word_is_somebodys_on_a_shared_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let me = machine("node01", "boot 1");
        for content in ["", "{", "\0\0\0\0"] {
            std::fs::write(folder.path().join(OWNER_FILE), content).unwrap();
            let held = FolderLock::acquire_as(folder.path(), &me, true).unwrap_err();
            assert!(matches!(held, LockError::Held { holder: None, host: None, .. }), "{held}");
            age(folder.path(), 600);
            let silent = FolderLock::acquire_as(folder.path(), &me, true).unwrap_err();
            assert!(matches!(silent, LockError::Silent { holder: None, .. }), "{silent}");
            drop(FolderLock::acquire_as(folder.path(), &me, false).unwrap());
        }
    }

    #[test]
    fn a_lock_whose_owner_file_was_replaced_is_lost_and_leaves_the_new_one_alone() {
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
