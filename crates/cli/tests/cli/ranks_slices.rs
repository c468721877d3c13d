//! Several ranks learn bit for bit what one process learns that computes the whole batch as their slices.
//!
//! The reference is one process with as many replicas (`--multi-gpu --simulate-gpus`): the same rows in the same slices, the same
//! dropout, and gradients added in the order of the ranks, (g0 + g1) + g2. One process with the whole batch in one piece computes
//! other shapes, so it differs by rounding, and more with every step. `MYXTTS_STEPS=50` raises the steps of every stage.

use crate::ranks::{model, train, words};
use crate::train::corpus;
use std::fs;
use std::path::Path;

/// Everything that the steps of a run report, except times.
fn steps(folder: &Path, run: &str) -> Vec<serde_json::Value> {
    let log = fs::read_to_string(folder.join("runs").join(run).join("events.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let steps = events.filter(|event| event["kind"] == "step").map(|event| {
        let kept = ["step", "stage", "loss", "gradient", "rate", "numbers"];
        kept.iter().map(|name| event[name].clone()).collect::<serde_json::Value>()
    });
    steps.collect()
}

/// Trains `stages` steps of each stage in one process and as ranks, and compares every step and all weights. Returns the folder
/// and what the ranks printed.
fn assert_equal_bits(ranks: &str, stages: [u64; 3]) -> (tempfile::TempDir, String) {
    let given = std::env::var("MYXTTS_STEPS").ok().map(|steps| [steps.parse().unwrap(); 3]);
    let stages = given.unwrap_or(stages);
    let folder = corpus();
    let (one, several) = (format!("slices-{ranks}"), format!("ranks-{ranks}"));
    let replicas = ["--multi-gpu", "--simulate-gpus", ranks];
    let alone = train(folder.path(), &[], &one, stages, &replicas).output().unwrap();
    assert!(alone.status.success(), "{}", words(&alone));
    let launch = ["launch", "--ranks", ranks, "--"];
    let together = train(folder.path(), &launch, &several, stages, &[]).output().unwrap();
    assert!(together.status.success(), "{}", words(&together));
    let (a, b) = (steps(folder.path(), &one), steps(folder.path(), &several));
    assert_eq!(a.len() as u64, stages.iter().sum::<u64>());
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        assert_eq!(a, b, "report {i} of {ranks} ranks");
    }
    assert_eq!(a.len(), b.len());
    for part in ["dvae", "gpt", "decoder", "speaker"] {
        let same = model(folder.path(), &one, part) == model(folder.path(), &several, part);
        assert!(same, "the {part} of {ranks} ranks differs from that of {ranks} slices in one process");
    }
    let printed = words(&together);
    (folder, printed)
}

#[test]
fn two_ranks_learn_the_bits_of_two_slices_in_one_process() {
    let (folder, printed) = assert_equal_bits("2", [6, 8, 3]);
    for needed in [
        "[rank 0] rank 0 of 2, by RANK and WORLD_SIZE",
        "[rank 1] rank 1 of 2, by RANK and WORLD_SIZE",
        "[rank 0] gpt: the weights of all 2 ranks are the same bits",
        "[rank 0] decoder: the weights of all 2 ranks are the same bits",
        "while gradients were summed",
    ] {
        assert!(printed.contains(needed), "{needed:?} was not printed:\n{printed}");
    }
    // Only rank 0 writes.
    let runs = folder.path().join("runs");
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 2);
    let log = fs::read_to_string(runs.join("ranks-2/events.jsonl")).unwrap();
    assert_eq!(log.matches("\"ranks\"").count(), 3, "one line for each stage:\n{log}");
    let plan = fs::read_to_string(runs.join("ranks-2/plan.json")).unwrap();
    assert!(plan.contains("rank 0 of 2"), "where it trains is not in the plan");
}

#[test]
fn three_ranks_learn_the_bits_of_three_slices_in_one_process() {
    assert_equal_bits("3", [4, 4, 2]);
}
