//! What no kill of a process can show: that everything is on the device before it is relied upon. A disk
//! that writes down its steps is asked instead.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use myxtts_run::checkpoint::{CheckpointStore, Keep};
use myxtts_run::durable::{Disk, DiskFile, Os};
use serde_json::json;

use super::checkpoint::scratch;

#[derive(Clone, Debug, PartialEq)]
enum Did {
    Write(PathBuf),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    SyncFolder(PathBuf),
    Remove(PathBuf),
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Did>>>);

impl Recorder {
    fn did(&self, did: Did) {
        self.0.lock().unwrap().push(did);
    }
}

struct RecordedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    recorder: Recorder,
}

impl DiskFile for RecordedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.recorder.did(Did::Write(self.path.clone()));
        self.file.write(bytes)
    }
    fn seek(&mut self, position: u64) -> io::Result<()> {
        self.file.seek(position)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.recorder.did(Did::Sync(self.path.clone()));
        Ok(())
    }
}

impl Disk for Recorder {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RecordedFile { file: Os.create(path)?, path: path.to_owned(), recorder: self.clone() }))
    }
    fn extend(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        Os.extend(path, length)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.did(Did::Rename(from.to_owned(), to.to_owned()));
        Os.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.did(Did::Remove(path.to_owned()));
        Os.remove(path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.did(Did::Remove(path.to_owned()));
        Os.remove_folder(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        Os.create_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.did(Did::SyncFolder(path.to_owned()));
        Ok(())
    }
}

#[test]
fn nothing_is_relied_upon_before_it_is_on_the_device() {
    let root = scratch();
    let recorder = Recorder::default();
    let mut store = CheckpointStore::open_on(Arc::new(recorder.clone()), root.path()).unwrap();
    recorder.0.lock().unwrap().clear();
    let saved = store.save(1, &[("weights", &[1; 200_000]), ("moments", &[2; 10])], json!({}), None).unwrap();
    let did = std::mem::take(&mut *recorder.0.lock().unwrap());

    let place = |wanted: &dyn Fn(&Did) -> bool| did.iter().position(wanted).expect("it was done");
    let folder = root.path().join(saved.name());
    let commit = place(&|did| matches!(did, Did::Rename(_, to) if *to == folder));
    let Did::Rename(unfinished, _) = &did[commit] else { unreachable!() };
    // Every file: written, synced, named, and not touched again; and its name synced before the commit.
    let mut files = 0;
    for (at, step) in did.iter().enumerate() {
        let Did::Rename(from, to) = step else { continue };
        if at == commit {
            continue;
        }
        files += 1;
        let synced = place(&|did| *did == Did::Sync(from.clone()));
        let last_write =
            did.iter().rposition(|did| *did == Did::Write(from.clone())).expect("it was written");
        assert!(last_write < synced && synced < at && at < commit, "{to:?}: {did:?}");
        let named = did[at..commit].contains(&Did::SyncFolder(unfinished.clone()));
        assert!(named, "the name {to:?} was not on the device at the commit: {did:?}");
    }
    assert_eq!(files, 3, "two parts and the manifest");
    let manifest = place(&|did| matches!(did, Did::Rename(_, to) if to.ends_with("manifest")));
    assert!(did[manifest..commit].iter().all(|did| !matches!(did, Did::Write(_))), "the manifest comes last");
    assert_eq!(did[commit + 1..], [Did::SyncFolder(root.path().to_owned())], "acknowledged after this alone");

    // And away: the name first, on the device, then the bytes.
    store.save(2, &[("weights", b"x")], json!({}), None).unwrap();
    recorder.0.lock().unwrap().clear();
    assert_eq!(store.tidy(Keep { newest: 1, best: 0 }).unwrap(), [saved.name()]);
    let did = recorder.0.lock().unwrap().clone();
    assert!(matches!(&did[0], Did::Rename(from, _) if *from == folder), "{did:?}");
    assert_eq!(did[1], Did::SyncFolder(root.path().to_owned()));
    assert!(did.len() == 6 && did[2..].iter().all(|did| matches!(did, Did::Remove(_))), "{did:?}");
}
