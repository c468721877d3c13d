//! The owner file, which names the process and machine that write in a folder.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::OWNER_FILE;
use super::machine::Machine;
use crate::durable;

/// Interval between heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// Time without a heartbeat after which an owner counts as unresponsive.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of an owner file in bytes.
const MAX_BYTES: u64 = 4096;
/// Attempts to claim the file while other machines create and remove it.
const ATTEMPTS: usize = 5;

/// Contents of the file: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) host: String,
    boot: String,
    pub(super) pid: u32,
    /// Index of the lock among those the process has acquired.
    number: u64,
    /// Time of the last heartbeat by the owner's clock, in seconds since 1970.
    beat: u64,
}

impl Owner {
    fn new(machine: &Machine) -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Machine { host, boot } = machine.clone();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Owner { host, boot, pid: std::process::id(), number, beat: 0 }.now()
    }

    fn now(&self) -> Owner {
        let beat = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Owner { beat, ..self.clone() }
    }

    fn is_on(&self, machine: &Machine) -> bool {
        !self.boot.is_empty() && self.boot == machine.boot
    }

    fn is_same_lock(&self, other: &Owner) -> bool {
        let of = |owner: &Owner| Owner { beat: 0, ..owner.clone() };
        of(self) == of(other)
    }

    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Result of claiming a folder.
pub(super) enum Claim {
    Ours(Ownership),
    /// Another process owns it. `silent_for` is the time since its last heartbeat; `None` while heartbeats arrive.
    Others {
        owner: Option<Owner>,
        silent_for: Option<Duration>,
    },
}

/// The owner file of this process, with a heartbeat until it is released.
#[derive(Debug)]
pub(super) struct Ownership {
    heartbeat: Arc<Mutex<Heartbeat>>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Heartbeat {
    path: PathBuf,
    owner: Owner,
    /// Kept open since its creation, so that writes never reach a file that has replaced it.
    file: File,
    is_lost: bool,
}

impl Ownership {
    /// Claims the owner file of a folder. The caller holds the operating-system lock, so no other process of this
    /// machine is claiming it at the same time.
    pub(super) fn claim(folder: &Path, machine: &Machine, is_shared: bool) -> io::Result<Claim> {
        let path = folder.join(OWNER_FILE);
        let own = Owner::new(machine);
        for _ in 0..ATTEMPTS {
            if let Some(file) = create(&path, &own)? {
                return Ok(Claim::Ours(Ownership::begin(path, own, file)));
            }
            let (owner, age) = match read_owner(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read?,
            };
            match judge(owner.as_ref(), age, machine, is_shared) {
                Verdict::Dead => {
                    let file = replace(&path, &own)?;
                    return Ok(Claim::Ours(Ownership::begin(path, own, file)));
                }
                Verdict::Alive => return Ok(Claim::Others { owner, silent_for: None }),
                Verdict::Unresponsive => return Ok(Claim::Others { owner, silent_for: Some(age) }),
            }
        }
        Ok(Claim::Others { owner: None, silent_for: None })
    }

    fn begin(path: PathBuf, owner: Owner, file: File) -> Ownership {
        let heartbeat = Arc::new(Mutex::new(Heartbeat { path, owner, file, is_lost: false }));
        let (stop, stopped) = channel::<()>();
        let shared = heartbeat.clone();
        // Without a thread, other machines see an unresponsive owner, and still refuse to write.
        let thread = std::thread::Builder::new().name("lock".to_owned()).spawn(move || {
            while stopped.recv_timeout(HEARTBEAT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                locked(&shared).beat();
            }
        });
        Ownership { heartbeat, stop: Some(stop), thread: thread.ok() }
    }

    /// Whether the file was removed or replaced, as of the last heartbeat.
    pub(super) fn is_lost(&self) -> bool {
        locked(&self.heartbeat).is_lost
    }

    #[cfg(test)]
    pub(super) fn beat_now(&mut self) {
        locked(&self.heartbeat).beat();
    }

    /// Releases the folder; `false` if this process had lost it.
    pub(super) fn release(&mut self) -> bool {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut heartbeat = locked(&self.heartbeat);
        heartbeat.check_loss();
        if !heartbeat.is_lost {
            let _ = std::fs::remove_file(&heartbeat.path);
        }
        !heartbeat.is_lost
    }
}

fn locked(heartbeat: &Mutex<Heartbeat>) -> std::sync::MutexGuard<'_, Heartbeat> {
    heartbeat.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Heartbeat {
    /// Rewrites the file if it still belongs to this process. A disk that is temporarily full or unreachable does not
    /// count as a loss.
    fn beat(&mut self) {
        self.check_loss();
        if !self.is_lost {
            let line = self.owner.now().line();
            let _ = self
                .file
                .rewind()
                .and_then(|()| self.file.write_all(&line))
                .and_then(|()| self.file.sync_data());
        }
    }

    fn check_loss(&mut self) {
        self.is_lost |= match read_owner(&self.path) {
            Ok((Some(owner), _)) => !owner.is_same_lock(&self.owner),
            // Our own file, created on a full disk.
            Ok((None, _)) => false,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
    }
}

/// State of the owner as judged by a machine that wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Dead,
    Alive,
    Unresponsive,
}

/// `age` is the time since the file was written. Clocks of machines may differ: that changes the message of a refusal
/// on a shared file system, but never the refusal itself.
fn judge(owner: Option<&Owner>, age: Duration, machine: &Machine, is_shared: bool) -> Verdict {
    // The caller holds the operating-system lock of this machine, so the process that wrote the file no longer does.
    let is_here = owner.map_or(!is_shared, |owner| owner.is_on(machine));
    let is_rebooted = owner.is_some_and(|owner| owner.host == machine.host);
    match age < HEARTBEAT_TIMEOUT {
        _ if is_here || is_rebooted && !is_shared => Verdict::Dead,
        true => Verdict::Alive,
        false if is_rebooted || !is_shared => Verdict::Dead,
        false => Verdict::Unresponsive,
    }
}

/// Host name in the owner file, if it is not that of `machine`.
pub(super) fn other_host(folder: &Path, machine: &Machine) -> Option<String> {
    let (owner, _) = read_owner(&folder.join(OWNER_FILE)).ok()?;
    owner.filter(|owner| !owner.is_on(machine) && owner.host != machine.host).map(|owner| owner.host)
}

/// Contents of an owner file, if they can be parsed, and the time since it was written.
fn read_owner(path: &Path) -> io::Result<(Option<Owner>, Duration)> {
    let mut file = File::open(path)?;
    let written = file.metadata()?.modified()?;
    let mut bytes = Vec::new();
    (&mut file).take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes).ok(), written.elapsed().unwrap_or_default()))
}

/// Creates the file with its content; `None` if it exists. Creating a hard link is atomic on every file system that
/// supports them.
fn create(path: &Path, owner: &Owner) -> io::Result<Option<File>> {
    let (draft, file) = draft(path, owner)?;
    let linked = match std::fs::hard_link(&draft, path) {
        Ok(()) => Ok(Some(file)),
        // A server that repeats a request reports that the link exists: it may be ours.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(is_linked(&file).then_some(file)),
        // A file system without hard links: create the file, then write it.
        Err(_) => match File::options().read(true).write(true).create_new(true).open(path) {
            Ok(mut file) => {
                let _ = file.write_all(&owner.now().line()).and_then(|()| file.sync_data());
                Ok(Some(file))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        },
    };
    let _ = std::fs::remove_file(&draft);
    linked
}

/// Replaces the file of a dead process with that of this process.
fn replace(path: &Path, owner: &Owner) -> io::Result<File> {
    let (draft, file) = draft(path, owner)?;
    std::fs::rename(&draft, path).inspect_err(|_| drop(std::fs::remove_file(&draft)))?;
    Ok(file)
}

/// Writes the file under a temporary name. Processes of two machines may have the same id, so the machine is part of
/// it.
fn draft(path: &Path, owner: &Owner) -> io::Result<(PathBuf, File)> {
    let print = blake3::hash(format!("{}\n{}", owner.host, owner.boot).as_bytes()).to_hex();
    let draft = durable::unfinished_name(&path.with_file_name(format!("{OWNER_FILE}-{}", &print[..12])));
    // A file of that name was left by a dead process with the same id.
    let _ = std::fs::remove_file(&draft);
    let mut file = File::options().read(true).write(true).create_new(true).open(&draft)?;
    // On a full disk it stays empty, which other processes treat as held.
    let _ = file.write_all(&owner.now().line()).and_then(|()| file.sync_data());
    Ok((draft, file))
}

#[cfg(unix)]
fn is_linked(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|about| about.nlink() == 2)
}

#[cfg(not(unix))]
fn is_linked(_file: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a file system where operating-system locks are local to each machine: only the owner file decides.
    #[test]
    fn one_of_many_machines_claiming_at_once_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let claim = |n: usize| {
                let machine = Machine { host: format!("node{n}"), boot: format!("boot {n} {round}") };
                match Ownership::claim(folder.path(), &machine, true).unwrap() {
                    Claim::Ours(ownership) => Some((n, ownership)),
                    Claim::Others { .. } => None,
                }
            };
            let mut winners: Vec<(usize, Ownership)> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..8).map(|n| scope.spawn(move || claim(n))).collect();
                all.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(winners.len(), 1, "round {round}");
            let (n, ownership) = &mut winners[0];
            let (owner, _) = read_owner(&folder.path().join(OWNER_FILE)).unwrap();
            assert_eq!(owner.unwrap().host, format!("node{n}"));
            assert!(ownership.release());
            let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    #[test]
    fn a_heartbeat_renews_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { host: "node01".into(), boot: "boot 1".into() };
        let Claim::Ours(mut ownership) = Ownership::claim(folder.path(), &machine, true).unwrap() else {
            panic!()
        };
        let path = folder.path().join(OWNER_FILE);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(600)).unwrap();
        assert!(read_owner(&path).unwrap().1 > HEARTBEAT_TIMEOUT);
        ownership.beat_now();
        let (owner, age) = read_owner(&path).unwrap();
        assert!(age < HEARTBEAT_TIMEOUT && owner.unwrap().is_on(&machine));
    }
}
