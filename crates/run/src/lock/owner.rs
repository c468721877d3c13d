//! The file that says which process of which machine writes in a folder.

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

/// How often an owner shows that it is alive.
const BEAT_EVERY: Duration = Duration::from_secs(15);
/// One that has not for this long may be gone.
const SILENT_AFTER: Duration = Duration::from_secs(60);
/// More than this is no owner file of ours.
const LONGEST: u64 = 4096;
/// Times that a file which came and went meanwhile is looked at again.
const TRIES: usize = 5;

/// Who writes, as it stands in the file: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) host: String,
    boot: String,
    pub(super) pid: u32,
    /// Which of the locks that the process has taken.
    number: u64,
    /// Seconds since 1970 by its clock, when it last wrote this.
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

/// What came of asking for a folder.
pub(super) enum Claim {
    Ours(Ownership),
    /// Another has it; `silent` is how long it has not been heard of, where that is long.
    Others {
        owner: Option<Owner>,
        silent: Option<Duration>,
    },
}

/// An owner file of this process, kept alive until it is released.
#[derive(Debug)]
pub(super) struct Ownership {
    beating: Arc<Mutex<Beating>>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Beating {
    path: PathBuf,
    owner: Owner,
    /// Open since it was made: what is written to it never reaches a file that has replaced it.
    file: File,
    is_lost: bool,
}

impl Ownership {
    /// Takes the owner file of a folder. The caller holds the operating system's lock, so no other process of this machine is
    /// between its asking and its taking.
    pub(super) fn claim(folder: &Path, machine: &Machine, is_shared: bool) -> io::Result<Claim> {
        let path = folder.join(OWNER_FILE);
        let own = Owner::new(machine);
        for _ in 0..TRIES {
            if let Some(file) = create(&path, &own)? {
                return Ok(Claim::Ours(Ownership::begin(path, own, file)));
            }
            let (owner, age) = match look(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                looked => looked?,
            };
            match judge(owner.as_ref(), age, machine, is_shared) {
                Verdict::Dead => {
                    let file = replace(&path, &own)?;
                    return Ok(Claim::Ours(Ownership::begin(path, own, file)));
                }
                Verdict::Alive => return Ok(Claim::Others { owner, silent: None }),
                Verdict::Silent => return Ok(Claim::Others { owner, silent: Some(age) }),
            }
        }
        Ok(Claim::Others { owner: None, silent: None })
    }

    fn begin(path: PathBuf, owner: Owner, file: File) -> Ownership {
        let beating = Arc::new(Mutex::new(Beating { path, owner, file, is_lost: false }));
        let (stop, stopped) = channel::<()>();
        let shared = beating.clone();
        // Where no thread can be had, others see an owner that is silent, and refuse all the same.
        let thread = std::thread::Builder::new().name("lock".to_owned()).spawn(move || {
            while stopped.recv_timeout(BEAT_EVERY) == Err(RecvTimeoutError::Timeout) {
                locked(&shared).beat();
            }
        });
        Ownership { beating, stop: Some(stop), thread: thread.ok() }
    }

    /// Whether the file was removed or replaced since it was taken, as far as the last beat saw.
    pub(super) fn is_lost(&self) -> bool {
        locked(&self.beating).is_lost
    }

    #[cfg(test)]
    pub(super) fn beat_now(&mut self) {
        locked(&self.beating).beat();
    }

    /// Gives the folder up; `false` where it was no longer this process's.
    pub(super) fn release(&mut self) -> bool {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut beating = locked(&self.beating);
        beating.look();
        if !beating.is_lost {
            let _ = std::fs::remove_file(&beating.path);
        }
        !beating.is_lost
    }
}

fn locked(beating: &Mutex<Beating>) -> std::sync::MutexGuard<'_, Beating> {
    beating.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Beating {
    /// Writes the file again, if it is still this process's. A disk that is full or out of reach for a while is no loss.
    fn beat(&mut self) {
        self.look();
        if !self.is_lost {
            let line = self.owner.now().line();
            let _ = self
                .file
                .rewind()
                .and_then(|()| self.file.write_all(&line))
                .and_then(|()| self.file.sync_data());
        }
    }

    fn look(&mut self) {
        self.is_lost |= match look(&self.path) {
            Ok((Some(owner), _)) => !owner.is_same_lock(&self.owner),
            // Ours, on a disk that was full when it was made.
            Ok((None, _)) => false,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
    }
}

/// What an owner file means to a machine that would like to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Dead,
    Alive,
    Silent,
}

/// `age` is the time since the file was written. Clocks of machines may differ by it: that changes the words of a refusal on a
/// shared file system, and never that it is one.
fn judge(owner: Option<&Owner>, age: Duration, machine: &Machine, is_shared: bool) -> Verdict {
    // The operating system's lock of this machine is held by who asks, so who wrote this does not any more.
    let is_here = owner.map_or(!is_shared, |owner| owner.is_on(machine));
    let is_restarted = owner.is_some_and(|owner| owner.host == machine.host);
    match age < SILENT_AFTER {
        _ if is_here || is_restarted && !is_shared => Verdict::Dead,
        true => Verdict::Alive,
        false if is_restarted || !is_shared => Verdict::Dead,
        false => Verdict::Silent,
    }
}

/// The machine that an owner file names, where that is another than `machine`.
pub(super) fn other_host(folder: &Path, machine: &Machine) -> Option<String> {
    let (owner, _) = look(&folder.join(OWNER_FILE)).ok()?;
    owner.filter(|owner| !owner.is_on(machine) && owner.host != machine.host).map(|owner| owner.host)
}

/// What stands in an owner file, if that can be read, and how long ago it was written.
fn look(path: &Path) -> io::Result<(Option<Owner>, Duration)> {
    let mut file = File::open(path)?;
    let written = file.metadata()?.modified()?;
    let mut bytes = Vec::new();
    (&mut file).take(LONGEST).read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes).ok(), written.elapsed().unwrap_or_default()))
}

/// Makes the file with its content, or nothing where it exists. A link is atomic on every file system that has them.
fn create(path: &Path, owner: &Owner) -> io::Result<Option<File>> {
    let (draft, file) = draft(path, owner)?;
    let linked = match std::fs::hard_link(&draft, path) {
        Ok(()) => Ok(Some(file)),
        // A server that answers a repeated question says that the link exists: it may be ours.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(is_linked(&file).then_some(file)),
        // A file system without links: made first and written then.
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

/// Puts a file of this process in the place of a dead one's.
fn replace(path: &Path, owner: &Owner) -> io::Result<File> {
    let (draft, file) = draft(path, owner)?;
    std::fs::rename(&draft, path).inspect_err(|_| drop(std::fs::remove_file(&draft)))?;
    Ok(file)
}

/// The file under a name of its own. Processes of two machines may have the same number, so the machine is in the name.
fn draft(path: &Path, owner: &Owner) -> io::Result<(PathBuf, File)> {
    let print = blake3::hash(format!("{}\n{}", owner.host, owner.boot).as_bytes()).to_hex();
    let draft = durable::unfinished_name(&path.with_file_name(format!("{OWNER_FILE}-{}", &print[..12])));
    // One of that name is of a dead process which had the same number.
    let _ = std::fs::remove_file(&draft);
    let mut file = File::options().read(true).write(true).create_new(true).open(&draft)?;
    // On a full disk it stays empty, which others take for somebody's.
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

    /// As on a file system that keeps the operating system's locks to each machine: only the owner file decides.
    #[test]
    fn of_many_machines_that_ask_at_once_one_is_given_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let ask = |n: usize| {
                let machine = Machine { host: format!("node{n}"), boot: format!("boot {n} {round}") };
                match Ownership::claim(folder.path(), &machine, true).unwrap() {
                    Claim::Ours(ownership) => Some((n, ownership)),
                    Claim::Others { .. } => None,
                }
            };
            let mut winners: Vec<(usize, Ownership)> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..8).map(|n| scope.spawn(move || ask(n))).collect();
                all.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(winners.len(), 1, "round {round}");
            let (n, ownership) = &mut winners[0];
            let (owner, _) = look(&folder.path().join(OWNER_FILE)).unwrap();
            assert_eq!(owner.unwrap().host, format!("node{n}"));
            assert!(ownership.release());
            let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    #[test]
    fn a_beat_makes_a_file_young_again() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { host: "node01".into(), boot: "boot 1".into() };
        let Claim::Ours(mut ownership) = Ownership::claim(folder.path(), &machine, true).unwrap() else {
            panic!()
        };
        let path = folder.path().join(OWNER_FILE);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(600)).unwrap();
        assert!(look(&path).unwrap().1 > SILENT_AFTER);
        ownership.beat_now();
        let (owner, age) = look(&path).unwrap();
        assert!(age < SILENT_AFTER && owner.unwrap().is_on(&machine));
    }
}
