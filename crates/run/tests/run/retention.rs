//! Retention, tested on 100,000 random histories of saves, pins and deletions.

use myxtts_run::checkpoint::{RetentionCandidate, RetentionPolicy, expired};
use myxtts_run::seed::Seed;

const STAGES: [&str; 2] = ["dvae", "gpt"];

/// Invariants after every deletion, checked without sorting.
fn assert_invariants(history: &[RetentionCandidate<'_>], policy: RetentionPolicy, deleted: &[u64]) {
    let is_deleted = |candidate: &&RetentionCandidate<'_>| deleted.contains(&candidate.number);
    let finite = |candidate: &RetentionCandidate<'_>| candidate.score.filter(|score| score.is_finite());
    for candidate in history.iter().filter(is_deleted) {
        assert!(!candidate.pinned);
        let newer = history.iter().filter(|other| other.number > candidate.number).count();
        assert!(
            newer >= policy.newest.max(1),
            "one of the newest was deleted: {history:?} {policy:?} {deleted:?}"
        );
        if let Some(score) = finite(candidate) {
            let better = history
                .iter()
                .filter(|other| other.stage == candidate.stage)
                .filter(|other| {
                    finite(other).is_some_and(|theirs| {
                        theirs < score || theirs == score && other.number > candidate.number
                    })
                })
                .count();
            assert!(
                better >= policy.best.max(1),
                "one of the best was deleted: {history:?} {policy:?} {deleted:?}"
            );
        }
    }
    // No unnecessary checkpoints are kept.
    let left =
        history.iter().filter(|candidate| !deleted.contains(&candidate.number) && !candidate.pinned).count();
    let limit = policy.newest.max(1) + STAGES.len() * policy.best.max(1);
    assert!(left <= limit, "{left} kept: {history:?} {policy:?}");
    assert!(deleted.iter().all(|number| history.iter().any(|candidate| candidate.number == *number)));
}

#[test]
fn invariants_hold_for_random_histories() {
    let seed = Seed::new(4).derive("histories");
    let mut deleted = 0u64;
    for n in 0..100_000 {
        let (run, mut at) = (seed.with(n), 0);
        let mut sample = |bound| {
            at += 1;
            run.below(at, bound)
        };
        let policy = RetentionPolicy { newest: sample(4) as usize, best: sample(4) as usize };
        let mut history: Vec<RetentionCandidate<'_>> = Vec::new();
        let mut number = 0;
        for _ in 0..sample(20) {
            match sample(5) {
                0 if !history.is_empty() => {
                    let one = sample(history.len() as u64) as usize;
                    history[one].pinned = !history[one].pinned;
                }
                _ => {
                    number += 1 + sample(3);
                    // Few different scores, so that equal ones are frequent.
                    let score = match sample(9) {
                        0 => None,
                        1 => Some(f64::NAN),
                        2 => Some(f64::NEG_INFINITY),
                        some => Some(some as f64 - 5.0),
                    };
                    let stage = STAGES[sample(2) as usize];
                    history.push(RetentionCandidate { number, stage, score, pinned: false });
                    // The order in which a folder is read must not matter.
                    let position = sample(history.len() as u64) as usize;
                    let last = history.len() - 1;
                    history.swap(position, last);
                }
            }
            if sample(2) == 0 {
                let numbers = expired(&history, policy);
                assert_invariants(&history, policy, &numbers);
                deleted += numbers.len() as u64;
                history.retain(|candidate| !numbers.contains(&candidate.number));
                assert_eq!(expired(&history, policy), [0; 0], "a second pass deletes nothing");
            }
        }
    }
    assert!(deleted > 100_000, "only {deleted} were deleted: the test covers too little");
}

#[test]
fn the_best_of_a_stage_outlives_lower_scores_of_another() {
    // Regression: with one best for all stages, a DVAE score of 0.1 deleted the best GPT, whose scores are around 5.
    let candidate = |number, stage, score| RetentionCandidate { number, stage, score, pinned: false };
    let history = [
        candidate(1, "dvae", Some(0.2)),
        candidate(2, "dvae", Some(0.1)),
        candidate(3, "gpt", Some(5.3)),
        candidate(4, "gpt", Some(5.9)),
        candidate(5, "gpt", Some(6.4)),
    ];
    assert_eq!(expired(&history, RetentionPolicy { newest: 1, best: 1 }), [1, 4]);
}
