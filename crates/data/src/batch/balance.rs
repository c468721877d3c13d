//! Balance between speakers and languages: how often a record stands in an epoch.
//!
//! A group is what one speaker says in one language. With temperature T a group of n records counts as n^(1/T): 1 leaves
//! a corpus as it is, and the higher T, the more alike all groups count. The largest group stands as it is; the records
//! of the others come more than once. Nothing is left out, so every record is met in every epoch.

use std::collections::BTreeMap;

use myxtts_run::seed::Seed;

use crate::record::RecordSource;

/// A record comes at most so often in an epoch: oftener, a few clips would be learnt by heart before the rest is heard.
pub const MOST: u32 = 8;

/// How often a record of a group of `count` comes, where the largest group has `largest`.
pub fn factor(count: u64, largest: u64, temperature: f64) -> f64 {
    let ratio = largest as f64 / count.max(1) as f64;
    let exact = ratio.powf(1.0 - 1.0 / temperature).clamp(1.0, f64::from(MOST));
    // The last bit of a power differs between machines, and an order must not: 16 bits are the same everywhere.
    (exact * 65536.0).round() / 65536.0
}

/// How often each of `records` comes in an epoch, the same in all epochs; none where each comes once.
///
/// All records of a group come as often as its factor's whole part says, and some of them, by their draw, once more: so
/// many that the group as a whole has its share.
pub fn times(source: &dyn RecordSource, records: &[u32], temperature: f64, seed: Seed) -> Option<Vec<u32>> {
    if temperature <= 1.0 {
        return None;
    }
    let mut groups: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for (place, &record) in records.iter().enumerate() {
        let record = record as usize;
        groups.entry((source.speaker(record), source.language(record))).or_default().push(place);
    }
    let largest = groups.values().map(Vec::len).max().unwrap_or(0);
    if groups.values().all(|group| group.len() == largest) {
        return None;
    }
    let seed = seed.derive("balance");
    let mut times = vec![1; records.len()];
    for mut group in groups.into_values() {
        let factor = factor(group.len() as u64, largest as u64, temperature);
        let once_more = (factor.fract() * group.len() as f64).round() as usize;
        // By the record's number and not its place: another selection draws the same for it.
        group.sort_by_cached_key(|&place| (seed.at(records[place].into()), place));
        for (rank, place) in group.into_iter().enumerate() {
            times[place] = factor as u32 + u32::from(rank < once_more);
        }
    }
    Some(times)
}
