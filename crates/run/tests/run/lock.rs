//! One writer per folder.

use myxtts_run::lock::{FolderLock, LOCK_FILE, LockError, OWNER_FILE};

#[test]
fn the_error_names_the_process_that_holds_the_lock() {
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
fn a_released_lock_leaves_an_empty_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(LOCK_FILE), "99999999 left by a dead process").unwrap();
    drop(FolderLock::acquire(folder.path()).unwrap());
    assert_eq!(std::fs::read(folder.path().join(LOCK_FILE)).unwrap(), b"");
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = FolderLock::acquire(&folder.path().join("nowhere")).unwrap_err();
    assert!(matches!(&error, LockError::Io { .. }) && error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn waiting_ends_with_the_lock_or_a_stop_and_acquires_nothing() {
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

#[test]
fn the_owner_file_exists_while_the_lock_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let held = FolderLock::acquire(folder.path()).unwrap();
    let owner = std::fs::read_to_string(folder.path().join(OWNER_FILE)).unwrap();
    let owner: serde_json::Value = serde_json::from_str(&owner).unwrap();
    assert_eq!(owner["pid"], std::process::id());
    assert!(
        owner["host"].as_str().is_some_and(|host| !host.is_empty()) && owner["beat"].as_u64() > Some(0),
        "{owner}"
    );
    held.check().unwrap();
    drop(held);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [LOCK_FILE]);
}

/// Started by the test below: locks the given folder and waits to be killed.
#[test]
fn child_that_locks() {
    let Some(folder) = std::env::var_os("MYXTTS_TEST_LOCK_CHILD") else { return };
    let _held = FolderLock::acquire(std::path::Path::new(&folder)).unwrap();
    std::fs::write(std::path::Path::new(&folder).join("locked"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn the_lock_of_a_killed_process_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let name = concat!(module_path!(), "::child_that_locks").split_once("::").unwrap().1;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1"])
        .env("MYXTTS_TEST_LOCK_CHILD", folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !folder.path().join("locked").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let error = FolderLock::acquire(folder.path()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}:", child.id())), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(folder.path().join(OWNER_FILE).exists(), "a killed process cannot remove it");
    drop(FolderLock::acquire(folder.path()).unwrap());
    assert!(!folder.path().join(OWNER_FILE).exists());
}
