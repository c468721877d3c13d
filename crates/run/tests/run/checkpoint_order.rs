//! Order of writes and syncs, which killing a process cannot test. A disk that records its operations is used instead.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use myxtts_run::checkpoint::{CheckpointStore, RetentionPolicy};
use myxtts_run::durable::{Disk, DiskFile, OsDisk};
use serde_json::json;

use super::checkpoint::scratch;

#[derive(Clone, Debug, PartialEq)]
enum Operation {
    Write(PathBuf),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    SyncFolder(PathBuf),
    Remove(PathBuf),
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Operation>>>);

impl Recorder {
    fn record(&self, operation: Operation) {
        self.0.lock().unwrap().push(operation);
    }
}

struct RecordedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    recorder: Recorder,
}

impl DiskFile for RecordedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.recorder.record(Operation::Write(self.path.clone()));
        self.file.write(bytes)
    }
    fn seek(&mut self, position: u64) -> io::Result<()> {
        self.file.seek(position)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.recorder.record(Operation::Sync(self.path.clone()));
        Ok(())
    }
}

impl Disk for Recorder {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RecordedFile {
            file: OsDisk.create(path)?,
            path: path.to_owned(),
            recorder: self.clone(),
        }))
    }
    fn extend(&self, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
        OsDisk.extend(path, length)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.record(Operation::Rename(from.to_owned(), to.to_owned()));
        OsDisk.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.record(Operation::Remove(path.to_owned()));
        OsDisk.remove(path)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.record(Operation::Remove(path.to_owned()));
        OsDisk.remove_folder(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        OsDisk.create_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.record(Operation::SyncFolder(path.to_owned()));
        Ok(())
    }
}

#[test]
fn data_is_synced_before_it_is_relied_upon() {
    let root = scratch();
    let recorder = Recorder::default();
    let mut store = CheckpointStore::open_on(Arc::new(recorder.clone()), root.path()).unwrap();
    recorder.0.lock().unwrap().clear();
    let saved = store.save(1, &[("weights", &[1; 200_000]), ("moments", &[2; 10])], json!({}), None).unwrap();
    let operations = std::mem::take(&mut *recorder.0.lock().unwrap());

    let position = |wanted: &dyn Fn(&Operation) -> bool| {
        operations.iter().position(wanted).expect("the operation was recorded")
    };
    let folder = root.path().join(saved.name());
    let commit = position(&|operation| matches!(operation, Operation::Rename(_, to) if *to == folder));
    let Operation::Rename(unfinished, _) = &operations[commit] else { unreachable!() };
    // Every file is written, synced and renamed, and not touched again; its name is synced before the commit.
    let mut files = 0;
    for (at, operation) in operations.iter().enumerate() {
        let Operation::Rename(from, to) = operation else { continue };
        if at == commit {
            continue;
        }
        files += 1;
        let synced = position(&|operation| *operation == Operation::Sync(from.clone()));
        let last_write = operations
            .iter()
            .rposition(|operation| *operation == Operation::Write(from.clone()))
            .expect("it was written");
        assert!(last_write < synced && synced < at && at < commit, "{to:?}: {operations:?}");
        let named = operations[at..commit].contains(&Operation::SyncFolder(unfinished.clone()));
        assert!(named, "the name {to:?} was not on the device at the commit: {operations:?}");
    }
    assert_eq!(files, 3, "two blobs and the manifest");
    let manifest =
        position(&|operation| matches!(operation, Operation::Rename(_, to) if to.ends_with("manifest")));
    assert!(
        operations[manifest..commit].iter().all(|operation| !matches!(operation, Operation::Write(_))),
        "the manifest comes last"
    );
    assert_eq!(
        operations[commit + 1..],
        [Operation::SyncFolder(root.path().to_owned())],
        "acknowledged only after this"
    );

    // Deletion: first the name, synced, then the content.
    store.save(2, &[("weights", b"x")], json!({}), None).unwrap();
    recorder.0.lock().unwrap().clear();
    assert_eq!(store.prune(RetentionPolicy { newest: 1, best: 0 }).unwrap(), [saved.name()]);
    let operations = recorder.0.lock().unwrap().clone();
    assert!(matches!(&operations[0], Operation::Rename(from, _) if *from == folder), "{operations:?}");
    assert_eq!(operations[1], Operation::SyncFolder(root.path().to_owned()));
    assert!(
        operations.len() == 6
            && operations[2..].iter().all(|operation| matches!(operation, Operation::Remove(_))),
        "{operations:?}"
    );
}
