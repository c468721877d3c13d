//! A disk that becomes full during training: a message and exit 74, no damage, and the resumed run is bit-identical to an undisturbed
//! one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use myxtts_run::checkpoint::Checkpoints;

use super::train::{corpus, done, myxtts, resume};

/// A run that saves after every step.
fn run(folder: &Path, name: &str, more: &[&str]) -> std::process::Command {
    let mut arguments = vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny"];
    for setting in [
        "data.num_workers=1",
        "data.dvae_batch_size=4",
        "training.checkpoint_every=1",
        "training.validate_every=0",
        "training.sample_every=0",
    ] {
        arguments.extend(["--set", setting]);
    }
    arguments.extend(more);
    myxtts(folder, &arguments)
}

fn model(folder: &Path, name: &str, part: &str) -> Vec<u8> {
    fs::read(folder.join("runs").join(name).join(format!("model/{part}.safetensors"))).unwrap()
}

/// Trains with a disk that fails every `every` operations. Returns whether the run finished, and the stage of its newest checkpoint.
/// A failed run must exit with 74 and leave no damaged checkpoint.
fn fails(
    folder: &Path,
    name: &str,
    command: &mut std::process::Command,
    every: u64,
) -> (bool, Option<String>) {
    let output = command.env("MYXTTS_FAIL_WRITE_EVERY", every.to_string()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(0) {
        return (true, None);
    }
    assert_eq!(output.status.code(), Some(74), "every {every}, {name}: {words}");
    assert!(words.contains("no space left"), "every {every}, {name}: {words}");
    let checkpoints = Checkpoints::at(&folder.join("runs").join(name).join("checkpoints"));
    let listing = checkpoints.list().unwrap();
    assert!(listing.damaged.is_empty(), "every {every}: {:?}", listing.damaged);
    for checkpoint in &listing.checkpoints {
        checkpoints.verify(checkpoint).unwrap_or_else(|damage| panic!("every {every}: {damage}"));
    }
    (false, listing.checkpoints.last().map(|newest| newest.meta["stage"].as_str().unwrap().to_owned()))
}

#[test]
fn a_full_disk_during_training_exits_with_a_message_and_loses_nothing() {
    let folder = corpus();
    let folder = folder.path();
    let dvae = ["--stage", "dvae", "--dvae-steps", "6"];
    done(&mut run(folder, "straight", &dvae));
    let straight = model(folder, "straight", "dvae");
    let (mut failed, mut inside) = (0, 0);
    // Fails at another operation each time (create, write, sync, rename, remove), and again after resuming.
    for every in [31, 46, 61, 77, 94, 113] {
        let name = format!("full-{every}");
        let mut command = run(folder, &name, &dvae);
        for _ in 0..3 {
            let (is_done, newest) = fails(folder, &name, &mut command, every);
            if is_done {
                break;
            }
            failed += 1;
            inside += usize::from(newest.is_some());
            command = resume(folder, &name);
        }
        // With free space again.
        done(&mut resume(folder, &name));
        assert!(model(folder, &name, "dvae") == straight, "every {every}: the run is another");
    }
    println!("{failed} full disks, {inside} of them after a checkpoint");
    assert!(failed >= 6 && inside >= 4, "{failed} full disks, {inside} of them after a checkpoint");
}

#[test]
fn a_full_disk_in_any_stage_loses_nothing() {
    let folder = corpus();
    let folder = folder.path();
    let mut all = vec!["--dvae-steps", "1", "--gpt-steps", "2", "--decoder-steps", "2", "--batch-size", "2"];
    all.extend(["--set", "data.decoder_batch_size=1", "--val-fraction", "0"]);
    done(&mut run(folder, "straight", &all));
    let mut stages = BTreeSet::new();
    // In the stages gpt and decoder.
    for every in [115, 190] {
        let name = format!("full-{every}");
        let (is_done, _) = fails(folder, &name, &mut run(folder, &name, &all), every);
        assert!(!is_done, "every {every}: the disk was never full");
        let log = fs::read_to_string(folder.join("runs").join(&name).join("events.jsonl")).unwrap();
        let mut events = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let stage = events.rfind(|event| event["kind"] == "stage").unwrap();
        stages.insert(stage["stage"].as_str().unwrap().to_owned());
        done(&mut resume(folder, &name));
        for part in ["dvae", "gpt", "decoder", "speaker"] {
            let same = model(folder, &name, part) == model(folder, "straight", part);
            assert!(same, "every {every}: {part} differs from the undisturbed run");
        }
    }
    assert!(["gpt", "decoder"].iter().all(|stage| stages.contains(*stage)), "{stages:?}");
}
