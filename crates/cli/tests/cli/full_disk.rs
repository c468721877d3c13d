//! A disk that is full in the middle of training: a message and exit 74, nothing damaged, and gone on with the run is the
//! undisturbed one to the last bit.

use std::fs;
use std::path::Path;

use myxtts_run::checkpoint::Checkpoints;

use super::train::{corpus, done, myxtts, resume};

fn run(folder: &Path, name: &str) -> std::process::Command {
    let mut arguments = vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny"];
    arguments.extend(["--stage", "dvae"]);
    for setting in [
        "data.num_workers=1",
        "data.dvae_batch_size=4",
        "training.dvae_steps=6",
        "training.checkpoint_every=1",
        "training.validate_every=0",
        "training.sample_every=0",
    ] {
        arguments.extend(["--set", setting]);
    }
    myxtts(folder, &arguments)
}

fn model(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join("runs").join(name).join("model/dvae.safetensors")).unwrap()
}

#[test]
fn a_disk_that_is_full_while_a_run_trains_is_a_message_and_costs_nothing() {
    let folder = corpus();
    let folder = folder.path();
    done(&mut run(folder, "straight"));
    let straight = model(folder, "straight");
    let (mut failed, mut inside) = (0, 0);
    // At another place each time: files made, written, synced, named, removed; and again while it goes on.
    for every in [31, 46, 61, 77, 94, 113] {
        let name = format!("full-{every}");
        let mut command = run(folder, &name);
        for attempt in 0..3 {
            let output = command.env("MYXTTS_FAIL_WRITE_EVERY", every.to_string()).output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(0) {
                break;
            }
            failed += 1;
            assert_eq!(output.status.code(), Some(74), "every {every}, attempt {attempt}: {words}");
            assert!(words.contains("no space is left"), "every {every}, attempt {attempt}: {words}");
            let checkpoints = Checkpoints::at(&folder.join("runs").join(&name).join("checkpoints"));
            let listing = checkpoints.list().unwrap();
            assert!(listing.damaged.is_empty(), "every {every}: {:?}", listing.damaged);
            for checkpoint in &listing.checkpoints {
                checkpoints.verify(checkpoint).unwrap_or_else(|damage| panic!("every {every}: {damage}"));
            }
            inside += usize::from(!listing.checkpoints.is_empty());
            command = resume(folder, &name);
        }
        // With room again.
        done(&mut resume(folder, &name));
        assert!(model(folder, &name) == straight, "every {every}: the run is another");
    }
    println!("{failed} full disks, {inside} of them after a checkpoint");
    assert!(failed >= 6 && inside >= 4, "{failed} full disks, {inside} of them after a checkpoint");
}
