//! Which checkpoints may go: a pure function, so that it can be tried on any history.

use std::collections::{BTreeMap, HashSet};

/// How many checkpoints are kept beside those that are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The newest so many; the newest of all is kept even where this is 0.
    pub newest: usize,
    /// Of every stage those with the best so many scores; the best of each is kept even where this is 0.
    pub best: usize,
}

/// What the policy knows of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept<'a> {
    /// Its place in the order of saving.
    pub number: u64,
    /// The stage it was saved by: scores of different stages measure different things.
    pub stage: &'a str,
    /// How good it is, lower being better.
    pub score: Option<f64>,
    /// Whether a person wants it kept.
    pub pinned: bool,
}

/// Numbers of the checkpoints that may be deleted, in order. Never the newest, the best of a stage or a pinned one.
///
/// Of two with the same score the newer counts as better: it has seen more.
pub fn retain(history: &[Kept<'_>], keep: Keep) -> Vec<u64> {
    let mut order: Vec<&Kept<'_>> = history.iter().collect();
    order.sort_by_key(|kept| std::cmp::Reverse(kept.number));
    let newest = order.iter().take(keep.newest.max(1)).map(|kept| kept.number);
    let mut scored: BTreeMap<&str, Vec<(f64, u64)>> = BTreeMap::new();
    for kept in &order {
        if let Some(score) = kept.score.filter(|score| score.is_finite()) {
            scored.entry(kept.stage).or_default().push((score, kept.number));
        }
    }
    let best = scored.values_mut().flat_map(|of_stage| {
        of_stage.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        of_stage.iter().take(keep.best.max(1)).map(|(_, number)| *number)
    });
    let safe: HashSet<u64> = newest.chain(best).collect();
    let mut gone: Vec<u64> = order
        .iter()
        .filter(|kept| !kept.pinned && !safe.contains(&kept.number))
        .map(|kept| kept.number)
        .collect();
    gone.sort_unstable();
    gone
}
