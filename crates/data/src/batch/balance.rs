//! Balance between speakers and languages: how often a record occurs in an epoch.
//!
//! A group is the records of one speaker in one language. With temperature T a group of n records is weighted as n^(1/T): 1
//! leaves a corpus unchanged, and the higher T, the more equal all groups are. The largest group is unchanged; records of
//! the others are repeated. No record is dropped, so every record occurs in every epoch.

use std::collections::BTreeMap;

use myxtts_run::seed::Seed;

use crate::record::RecordSource;

/// Maximum repetitions of a record per epoch: with more, a few clips would be memorised before the model has seen the rest.
pub const MAX_REPEATS: u32 = 8;

/// Returns how often a record of a group of `count` occurs if the largest group has `largest`.
pub fn repeat_factor(count: u64, largest: u64, temperature: f64) -> f64 {
    let ratio = largest as f64 / count.max(1) as f64;
    let exact = ratio.powf(1.0 - 1.0 / temperature).clamp(1.0, f64::from(MAX_REPEATS));
    // The last bit of a power differs between machines, and the order must not: 16 bits are the same everywhere.
    (exact * 65536.0).round() / 65536.0
}

/// Returns how often each of `records` occurs in an epoch, the same in all epochs; `None` if each occurs once.
///
/// All records of a group are repeated by the whole part of its factor. A sampled subset is repeated once more, so that the
/// group as a whole has its weight.
pub fn repeats(source: &dyn RecordSource, records: &[u32], temperature: f64, seed: Seed) -> Option<Vec<u32>> {
    if temperature <= 1.0 {
        return None;
    }
    let mut groups: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for (position, &record) in records.iter().enumerate() {
        let record = record as usize;
        groups.entry((source.speaker(record), source.language(record))).or_default().push(position);
    }
    let largest = groups.values().map(Vec::len).max().unwrap_or(0);
    if groups.values().all(|group| group.len() == largest) {
        return None;
    }
    let seed = seed.derive("balance");
    let mut repeats = vec![1; records.len()];
    for mut group in groups.into_values() {
        let factor = repeat_factor(group.len() as u64, largest as u64, temperature);
        let once_more = (factor.fract() * group.len() as f64).round() as usize;
        // Sampled by record number and not by position, so that another selection samples the same for it.
        group.sort_by_cached_key(|&position| (seed.at(records[position].into()), position));
        for (rank, position) in group.into_iter().enumerate() {
            repeats[position] = factor as u32 + u32::from(rank < once_more);
        }
    }
    Some(repeats)
}
