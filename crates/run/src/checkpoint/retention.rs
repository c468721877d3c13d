//! Checkpoint retention, as a pure function that can be tested on any history.

use std::collections::{BTreeMap, HashSet};

/// Number of checkpoints to keep in addition to pinned ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Number of newest checkpoints; the newest one is kept even if this is 0.
    pub newest: usize,
    /// Number of best-scored checkpoints per stage; the best one is kept even if this is 0.
    pub best: usize,
}

/// A checkpoint, as far as retention depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetentionCandidate<'a> {
    /// Position in the order of saving.
    pub number: u64,
    /// Stage that saved it; scores of different stages are not comparable.
    pub stage: &'a str,
    /// Validation score, lower is better.
    pub score: Option<f64>,
    /// Whether it must be kept.
    pub pinned: bool,
}

/// Returns the numbers of the checkpoints to delete, in ascending order. Never the newest, the best of a stage or a
/// pinned one.
///
/// Of two equal scores the newer counts as better: it has trained longer.
pub fn expired(history: &[RetentionCandidate<'_>], keep: RetentionPolicy) -> Vec<u64> {
    let mut order: Vec<&RetentionCandidate<'_>> = history.iter().collect();
    order.sort_by_key(|candidate| std::cmp::Reverse(candidate.number));
    let newest = order.iter().take(keep.newest.max(1)).map(|candidate| candidate.number);
    let mut scored: BTreeMap<&str, Vec<(f64, u64)>> = BTreeMap::new();
    for candidate in &order {
        if let Some(score) = candidate.score.filter(|score| score.is_finite()) {
            scored.entry(candidate.stage).or_default().push((score, candidate.number));
        }
    }
    let best = scored.values_mut().flat_map(|of_stage| {
        of_stage.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        of_stage.iter().take(keep.best.max(1)).map(|(_, number)| *number)
    });
    let retained: HashSet<u64> = newest.chain(best).collect();
    let mut expired: Vec<u64> = order
        .iter()
        .filter(|candidate| !candidate.pinned && !retained.contains(&candidate.number))
        .map(|candidate| candidate.number)
        .collect();
    expired.sort_unstable();
    expired
}
