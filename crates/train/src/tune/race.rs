//! Finds the fastest candidate on a machine whose speed varies.
//!
//! Two cores of a shared machine sometimes compute half as fast as a minute before, which is ten times the effect that tuning
//! has to detect. So the candidates take turns: one segment each, round after round, and a segment is judged by its
//! difference to each other segment of the same round. A slow round affects all candidates alike; a single slow segment
//! has little weight among the other rounds.

use crate::bench::timed_stage::SegmentStep;
use crate::statistics::median;

/// Rows per second of every candidate, as if all had the mean row length and the machine its typical speed. `rounds` has,
/// per round, one segment of every candidate, each of at least one step.
pub fn rates(rounds: &[Vec<Vec<SegmentStep>>]) -> Vec<f64> {
    let cost = Cost::fitted(rounds.iter().flatten().flatten());
    // Logarithm of measured over expected time: twice as slow and twice as fast are equally far from 0.
    let slow: Vec<Vec<f64>> = rounds
        .iter()
        .map(|segments| {
            let slow = |segment: &Vec<SegmentStep>| {
                let (seconds, expected) = segment.iter().fold((0.0, 0.0), |(seconds, expected), step| {
                    (seconds + step.seconds, expected + step.rows * cost.of_row(step.places))
                });
                (seconds / expected).ln()
            };
            segments.iter().map(slow).collect()
        })
        .collect();
    // Pairs within a round are compared, since both share the state of the machine. Compared with the median of a round
    // instead, a candidate would be compared with itself, and one disturbed segment would make all others of its round look
    // fast.
    let ways = rounds.first().map_or(0, Vec::len);
    let apart = |way: usize, other: usize| {
        median(&slow.iter().map(|segments| segments[way] - segments[other]).collect::<Vec<_>>())
    };
    let usual =
        median(&slow.iter().map(|segments| segments.iter().sum::<f64>() / ways as f64).collect::<Vec<_>>());
    (0..ways)
        .map(|way| {
            let own = (0..ways).map(|other| apart(way, other)).sum::<f64>() / ways as f64;
            1.0 / (cost.of_row(cost.mean_places) * (usual + own).exp())
        })
        .collect()
}

/// Expected time of a row: a constant part, such as its conditioning, and a part per position.
struct Cost {
    row: f64,
    place: f64,
    mean_places: f64,
}

impl Cost {
    /// Least squares over the steps of all candidates.
    fn fitted<'a>(steps: impl Iterator<Item = &'a SegmentStep>) -> Cost {
        let points: Vec<(f64, f64)> = steps.map(|step| (step.places, step.seconds / step.rows)).collect();
        let mean =
            |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len().max(1) as f64;
        let (mean_places, mean_seconds) = (mean(|point| point.0), mean(|point| point.1));
        let (spread, both) = points.iter().fold((0.0, 0.0), |(spread, both), (places, seconds)| {
            let away = places - mean_places;
            (spread + away * away, both + away * (seconds - mean_seconds))
        });
        // Longer rows do not take less time, and no time is negative: beyond that, noise was fitted.
        let most = mean_seconds / mean_places.max(1.0);
        let place = if spread > 0.0 { (both / spread).clamp(0.0, most) } else { 0.0 };
        Cost { row: mean_seconds - place * mean_places, place, mean_places }
    }

    fn of_row(&self, places: f64) -> f64 {
        self.row + self.place * places
    }
}

/// Groups candidates that fit into memory together. The first candidate is in every group: the others are compared through
/// it.
pub fn memory_groups<T: Copy>(candidates: &[T], bytes: impl Fn(&T) -> u64, at_most: u64) -> Vec<Vec<T>> {
    let Some((&first, others)) = candidates.split_first() else { return Vec::new() };
    let mut groups = vec![vec![first]];
    let mut taken = bytes(&first);
    for &candidate in others {
        let own = bytes(&candidate);
        if taken.saturating_add(own) > at_most && groups.last().is_some_and(|group| group.len() > 1) {
            groups.push(vec![first]);
            taken = bytes(&first);
        }
        taken = taken.saturating_add(own);
        if let Some(group) = groups.last_mut() {
            group.push(candidate);
        }
    }
    groups
}
