//! Retention as a pure function: 100,000 random histories, in which saves, pins and deletions follow
//! each other as they do in a run.

use myxtts_run::checkpoint::{Keep, Kept, retain};
use myxtts_run::seed::Seed;

const STAGES: [&str; 2] = ["dvae", "gpt"];

/// What must hold after every step, said without sorting anything.
fn assert_safe(history: &[Kept<'_>], keep: Keep, gone: &[u64]) {
    let is_gone = |kept: &&Kept<'_>| gone.contains(&kept.number);
    let finite = |kept: &Kept<'_>| kept.score.filter(|score| score.is_finite());
    for kept in history.iter().filter(is_gone) {
        assert!(!kept.pinned);
        let newer = history.iter().filter(|other| other.number > kept.number).count();
        assert!(newer >= keep.newest.max(1), "one of the newest was deleted: {history:?} {keep:?} {gone:?}");
        if let Some(score) = finite(kept) {
            let better = history
                .iter()
                .filter(|other| other.stage == kept.stage)
                .filter(|other| {
                    finite(other)
                        .is_some_and(|theirs| theirs < score || theirs == score && other.number > kept.number)
                })
                .count();
            assert!(better >= keep.best.max(1), "one of the best was deleted: {history:?} {keep:?} {gone:?}");
        }
    }
    // And no hoarding: what is left has a reason.
    let left = history.iter().filter(|kept| !gone.contains(&kept.number) && !kept.pinned).count();
    let most = keep.newest.max(1) + STAGES.len() * keep.best.max(1);
    assert!(left <= most, "{left} kept: {history:?} {keep:?}");
    assert!(gone.iter().all(|number| history.iter().any(|kept| kept.number == *number)));
}

#[test]
fn a_hundred_thousand_random_histories() {
    let seed = Seed::new(4).derive("histories");
    let mut deleted = 0u64;
    for n in 0..100_000 {
        let (run, mut at) = (seed.with(n), 0);
        let mut draw = |bound| {
            at += 1;
            run.below(at, bound)
        };
        let keep = Keep { newest: draw(4) as usize, best: draw(4) as usize };
        let mut history: Vec<Kept<'_>> = Vec::new();
        let mut number = 0;
        for _ in 0..draw(20) {
            match draw(5) {
                0 if !history.is_empty() => {
                    let one = draw(history.len() as u64) as usize;
                    history[one].pinned = !history[one].pinned;
                }
                _ => {
                    number += 1 + draw(3);
                    // Few different scores, so that equal ones are frequent.
                    let score = match draw(9) {
                        0 => None,
                        1 => Some(f64::NAN),
                        2 => Some(f64::NEG_INFINITY),
                        some => Some(some as f64 - 5.0),
                    };
                    let stage = STAGES[draw(2) as usize];
                    history.push(Kept { number, stage, score, pinned: false });
                    // The order in which a folder is read must not matter.
                    let place = draw(history.len() as u64) as usize;
                    let last = history.len() - 1;
                    history.swap(place, last);
                }
            }
            if draw(2) == 0 {
                let gone = retain(&history, keep);
                assert_safe(&history, keep, &gone);
                deleted += gone.len() as u64;
                history.retain(|kept| !gone.contains(&kept.number));
                assert_eq!(retain(&history, keep), [0; 0], "deleting twice deletes no more");
            }
        }
    }
    assert!(deleted > 100_000, "only {deleted} were deleted: the test tries nothing");
}

#[test]
fn the_best_of_a_stage_outlives_lower_scores_of_another() {
    // Once one best was kept of all: a DVAE's score of 0.1 deleted the best GPT, whose scores are around 5.
    let kept = |number, stage, score| Kept { number, stage, score, pinned: false };
    let history = [
        kept(1, "dvae", Some(0.2)),
        kept(2, "dvae", Some(0.1)),
        kept(3, "gpt", Some(5.3)),
        kept(4, "gpt", Some(5.9)),
        kept(5, "gpt", Some(6.4)),
    ];
    assert_eq!(retain(&history, Keep { newest: 1, best: 1 }), [1, 4]);
}
