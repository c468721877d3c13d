//! One writer per folder, whoever it is.

use myxtts_run::lock::{FolderLock, LOCK_FILE, LockError};

#[test]
fn the_second_writer_is_told_who_the_first_is() {
    let folder = tempfile::tempdir().unwrap();
    let first = FolderLock::acquire(folder.path()).unwrap();
    let error = FolderLock::acquire(folder.path()).unwrap_err();
    assert!(
        matches!(error, LockError::Held { holder: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("process {}", std::process::id())));
    drop(first);
    FolderLock::acquire(folder.path()).unwrap();
}

#[test]
fn a_lock_leaves_an_empty_file_whatever_stood_in_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(LOCK_FILE), "99999999 left by the dead").unwrap();
    drop(FolderLock::acquire(folder.path()).unwrap());
    assert_eq!(std::fs::read(folder.path().join(LOCK_FILE)).unwrap(), b"");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = FolderLock::acquire(&folder.path().join("nowhere")).unwrap_err();
    assert!(matches!(&error, LockError::Io { .. }) && error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn waiting_ends_with_the_lock_or_with_a_stop_and_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    assert!(FolderLock::wait(folder.path(), &stop).unwrap());
    let held = FolderLock::acquire(folder.path()).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| FolderLock::wait(folder.path(), &stop).unwrap());
        drop(held);
        assert!(waiting.join().unwrap());
    });
    let _held = FolderLock::acquire(folder.path()).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(!FolderLock::wait(folder.path(), &stop).unwrap());
}
