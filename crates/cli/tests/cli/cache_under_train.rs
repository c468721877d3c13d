//! A cache that is damaged while a run trains on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::train::{corpus, myxtts, resume};

/// The numpy files below a folder.
fn arrays(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(arrays(&path));
        } else if path.extension().is_some_and(|extension| extension == "npy") {
            found.push(path);
        }
    }
    found
}

/// The system ended it with SIGBUS, without a word and without a checkpoint.
#[test]
fn a_cache_truncated_under_a_running_train_ended_it_with_a_signal() {
    let folder = corpus();
    let folder = folder.path();
    let mut arguments =
        vec!["train", "corpus", "--name", "cut", "--device", "cpu", "--preset", "tiny", "--stage", "dvae"];
    for setting in [
        "training.dvae_steps=100000",
        "training.checkpoint_every=2",
        "training.validate_every=0",
        "training.sample_every=0",
        "data.num_workers=1",
    ] {
        arguments.extend(["--set", setting]);
    }
    let mut child = myxtts(folder, &arguments).spawn().unwrap();
    let start = Instant::now();
    let log = folder.join("runs/cut/events.jsonl");
    while !fs::read_to_string(&log).is_ok_and(|log| log.contains(r#""kind":"checkpoint""#)) {
        assert!(start.elapsed() < Duration::from_secs(120), "nothing happens");
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let files = arrays(&folder.join("corpus/.myxtts-cache"));
    assert!(!files.is_empty());
    for file in &files {
        fs::File::options().write(true).open(file).unwrap().set_len(0).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{words}");
    for expected in ["truncated", ".npy", "is saved", "--resume cut", "verify --fix"] {
        assert!(words.contains(expected), "nothing of {expected:?} in:\n{words}");
    }
    // What the message says brings it back.
    let fixed =
        myxtts(folder, &["verify", "corpus", "--fix", "--set", "data.num_workers=1"]).output().unwrap();
    assert_eq!(fixed.status.code(), Some(0), "{}", String::from_utf8_lossy(&fixed.stderr));
    let steps = words.split("is saved").next().unwrap().rsplit(' ').nth(1).unwrap().parse::<u64>().unwrap();
    let output = resume(folder, "cut").args(["--dvae-steps", &(steps + 2).to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
