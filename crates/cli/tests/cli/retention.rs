//! Which checkpoints a run keeps.

use std::fs;

use serde_json::Value;

use super::train::{corpus, done, myxtts};

/// All stages were compared by one score, whose meaning differs between them.
#[test]
fn the_best_checkpoint_of_a_stage_was_deleted_for_the_score_of_another() {
    let folder = corpus();
    let folder = folder.path();
    let mut arguments = vec!["train", "corpus", "--name", "kept", "--device", "cpu", "--preset", "tiny"];
    for setting in [
        "data.batch_size=2",
        "data.dvae_batch_size=2",
        "data.decoder_batch_size=2",
        "data.num_workers=1",
        "training.dvae_steps=3",
        "training.gpt_steps=3",
        "training.decoder_steps=2",
        "training.checkpoint_every=1",
        "training.validate_every=1",
        "training.keep_checkpoints=1",
        "training.sample_every=0",
    ] {
        arguments.extend(["--set", setting]);
    }
    done(&mut myxtts(folder, &arguments));
    let run = folder.join("runs/kept");
    let log = fs::read_to_string(run.join("events.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    // The best step of each stage, counted over all stages.
    let (mut before, mut best) = (0, Vec::new());
    for end in events.filter(|event| event["kind"] == "stage_end") {
        let of = |field: &str| end[field].as_u64().unwrap_or_else(|| panic!("no {field} in {end}"));
        best.push(before + of("chosen_step"));
        before += of("steps");
    }
    assert_eq!((best.len(), before), (3, 8), "{log}");
    let kept: Vec<String> = fs::read_dir(run.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("step"))
        .collect();
    for step in &best {
        assert!(kept.iter().any(|name| name.ends_with(&format!("-step-{step}"))), "{best:?} of {kept:?}");
    }
    assert!(kept.len() <= best.len() + 1, "one checkpoint of each stage, and the last: {kept:?}");
}
