//! `prepare --shard` and `--merge`, as on several machines that share a folder.

use std::process::Stdio;

use predicates::prelude::*;
use predicates::str::contains;

use super::cache::{corpus, json, myxtts, snapshot};

#[test]
fn shards_made_concurrently_merge_to_the_cache_of_one_machine() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 100);
    let alone = root.path().join("alone");
    myxtts(&["prepare", "--cache-dir"], &alone).arg(&corpus).assert().success();
    // There is no vocabulary yet: one process saves it, the others load it.
    let start = |shard: &str| {
        std::process::Command::new(assert_cmd::cargo::cargo_bin("myxtts"))
            .args(["prepare", "--num-workers", "1", "--shard", shard])
            .arg(&corpus)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for child in ["1/3", "2/3", "3/3"].map(start) {
        let output = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("--merge"), "{words}");
    }
    let report = &json(myxtts(&["prepare", "--merge"], &corpus).arg("--quick"))["training"];
    assert_eq!((&report["records"], &report["computed"]), (&100.into(), &0.into()));
    assert!(snapshot(&corpus.join(".myxtts-cache")) == snapshot(&alone), "the merged cache differs");
    myxtts(&["verify"], &corpus).assert().success();
}

#[test]
fn missing_and_invalid_shards_are_named() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 4);
    myxtts(&["prepare", "--merge"], &corpus).assert().code(65).stderr(contains("no shards to merge"));
    let report = json(&mut myxtts(&["prepare", "--shard", "2/2"], &corpus));
    assert_eq!(report["shard"], "2/2");
    myxtts(&["prepare", "--merge"], &corpus)
        .assert()
        .code(65)
        .stderr(contains("1/2 is not finished").and(contains("myxtts prepare --shard 1/2")));
    for wrong in ["3/2", "0/2", "two"] {
        myxtts(&["prepare", "--shard", wrong], &corpus).assert().code(2).stderr(contains("3/16"));
    }
    // As the first task of an array of two.
    let array = [("ID", "0"), ("COUNT", "2"), ("MIN", "0"), ("MAX", "1"), ("STEP", "1")];
    let mut auto = myxtts(&["prepare", "--shard", "auto"], &corpus);
    auto.envs(array.map(|(name, value)| (format!("SLURM_ARRAY_TASK_{name}"), value)));
    auto.assert().success().stderr(contains("shard 1/2: task 0 of Slurm array 0-1"));
    myxtts(&["prepare", "--merge", "--set", "data.cache_columns=tokens"], &corpus)
        .assert()
        .code(65)
        .stderr(contains("other settings").and(contains("1/2")));
    myxtts(&["prepare", "--merge"], &corpus).assert().success().stdout(contains("4 of 4 utterances"));
}
