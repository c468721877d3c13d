//! Who is fastest on a machine that is not equally fast at all times.
//!
//! Two cores of a shared machine were seen to compute half as fast as a minute before, which is ten times what tuning is to
//! find. So the ways to run a stage take turns: a segment each, round after round, and a segment counts by how far it was from each of
//! the others of its round. What slows a whole round down says nothing of any of them; what hits one segment alone is outvoted
//! by the segments of the other rounds.

use crate::bench::timed_stage::SegmentStep;
use crate::statistics::median;

/// Rows a second of every way, as if all of them had met rows of the mean length on the machine as it mostly was.
/// `rounds` has for every round a segment of every way, each of one step at least.
pub fn rates(rounds: &[Vec<Vec<SegmentStep>>]) -> Vec<f64> {
    let cost = Cost::fitted(rounds.iter().flatten().flatten());
    // How much longer than expected, as a logarithm: twice as slow and twice as fast are equally far.
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
    // Two of a round against each other: whatever the machine did in it is in both. Against the middle of a round instead, a
    // way would be compared with itself, and a segment that something ran into would make all others of its round look fast.
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

/// What a row is expected to take: something for itself, as its conditioning, and something for every place.
struct Cost {
    row: f64,
    place: f64,
    mean_places: f64,
}

impl Cost {
    /// Least squares over the steps of all ways.
    fn fitted<'a>(steps: impl Iterator<Item = &'a SegmentStep>) -> Cost {
        let points: Vec<(f64, f64)> = steps.map(|step| (step.places, step.seconds / step.rows)).collect();
        let mean =
            |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len().max(1) as f64;
        let (mean_places, mean_seconds) = (mean(|point| point.0), mean(|point| point.1));
        let (spread, both) = points.iter().fold((0.0, 0.0), |(spread, both), (places, seconds)| {
            let away = places - mean_places;
            (spread + away * away, both + away * (seconds - mean_seconds))
        });
        // Longer rows do not take less, and none takes less than nothing: beyond that it is noise that was fitted.
        let most = mean_seconds / mean_places.max(1.0);
        let place = if spread > 0.0 { (both / spread).clamp(0.0, most) } else { 0.0 };
        Cost { row: mean_seconds - place * mean_places, place, mean_places }
    }

    fn of_row(&self, places: f64) -> f64 {
        self.row + self.place * places
    }
}

/// Ways that fit into memory beside each other, raced together. The first takes part in every race: the others are compared
/// through it.
pub fn heats<T: Copy>(ways: &[T], bytes: impl Fn(&T) -> u64, at_most: u64) -> Vec<Vec<T>> {
    let Some((&first, others)) = ways.split_first() else { return Vec::new() };
    let mut heats = vec![vec![first]];
    let mut taken = bytes(&first);
    for &way in others {
        let own = bytes(&way);
        if taken.saturating_add(own) > at_most && heats.last().is_some_and(|heat| heat.len() > 1) {
            heats.push(vec![first]);
            taken = bytes(&first);
        }
        taken = taken.saturating_add(own);
        if let Some(heat) = heats.last_mut() {
            heat.push(way);
        }
    }
    heats
}
