//! Balance between speakers and languages: the weights, that no record is lost, and what must not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myxtts_data::batch::balance::{MAX_REPEATS, repeat_factor};
use myxtts_data::batch::{Collator, Order, Part, Plan, Rows, Settings, StateError, Tail};
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_run::seed::Seed;
use proptest::prelude::*;

use crate::batches::numbers;
use crate::order::{epoch_start, plan_of, settings};
use crate::synthetic::{Synthetic, speech_lengths};

/// Records of groups of these sizes, taken in turn while a group has any left.
fn groups(sizes: &[usize]) -> Vec<(u32, u32)> {
    let mut groups = Vec::new();
    for turn in 0..*sizes.iter().max().unwrap() {
        let here = (0..sizes.len()).filter(|&group| turn < sizes[group]);
        // A speaker of two languages is two groups.
        groups.extend(here.map(|group| (group as u32 / 2, group as u32 % 2)));
    }
    groups
}

fn source(sizes: &[usize]) -> Synthetic {
    let groups = groups(sizes);
    Synthetic::new(speech_lengths(groups.len()), sizes.len() as u32).grouped(groups)
}

fn balanced(rows: u32, balance: f64) -> Settings {
    Settings { balance, ..settings(rows) }
}

fn epoch(plan: &Plan, number: u64) -> Vec<u32> {
    (epoch_start(plan, number)..epoch_start(plan, number + 1))
        .flat_map(|step| plan.step(step).records().flatten().collect::<Vec<_>>())
        .collect()
}

/// Every byte of two epochs.
fn bytes(source: &Arc<Synthetic>, settings: Settings) -> Vec<Vec<u8>> {
    let plan = Arc::new(plan_of(source, settings));
    let collator = Collator::new(source.clone(), plan.clone(), 0, 1).unwrap();
    let mut slab = vec![0; collator.slab_bytes()];
    (0..epoch_start(&plan, 2))
        .map(|step| {
            let info = collator.collate(step, &mut slab).unwrap();
            slab[..info.layout.bytes()].to_vec()
        })
        .collect()
}

#[test]
fn one_group_and_equal_groups_are_unchanged_by_balance() {
    for sizes in [&[50][..], &[20, 20, 20]] {
        let source = Arc::new(source(sizes));
        for worst_first in [false, true] {
            let plain = Settings { worst_first, ..settings(8) };
            let hot = Settings { balance: 100.0, ..plain.clone() };
            assert!(bytes(&source, plain) == bytes(&source, hot), "{sizes:?}");
        }
    }
    let uneven = Arc::new(source(&[50, 5]));
    assert!(bytes(&uneven, settings(8)) == bytes(&uneven, balanced(8, 1.0)));
    assert!(bytes(&uneven, settings(8)) != bytes(&uneven, balanced(8, 2.0)));
}

#[test]
fn a_repeated_record_gets_another_window_and_another_companion() {
    let source = Arc::new(source(&[64, 1, 2]));
    let parts = vec![Part::window(DVAE_MEL, 2), settings(8).parts[2]];
    let settings = Settings { parts, buckets: 1, ..balanced(8, 100.0) };
    let plan = Arc::new(plan_of(&source, settings));
    let collator = Collator::new(source.clone(), plan.clone(), 0, 1).unwrap();
    let mut slab = vec![0; collator.slab_bytes()];
    let mut conditioning: BTreeMap<i32, BTreeSet<(i32, Vec<u8>)>> = BTreeMap::new();
    for step in 0..epoch_start(&plan, 1) {
        let info = collator.collate(step, &mut slab).unwrap();
        let companions = numbers(&info, &slab, "companion");
        for (row, record) in numbers(&info, &slab, "record").into_iter().enumerate() {
            let window = slab[info.layout.row_range(0, row as u32)].to_vec();
            conditioning.entry(record).or_default().insert((companions[row], window));
        }
    }
    let often: Vec<usize> = (0..64 + 3)
        .filter(|&record| source.speaker(record) > 0 || source.language(record) > 0)
        .map(|record| conditioning[&(record as i32)].len())
        .collect();
    assert_eq!(often.len(), 3);
    assert!(often.iter().all(|&different| different >= 3), "{often:?}");
    // Companions are still sampled from records that occur once each.
    assert!(conditioning.values().flatten().all(|(companion, _)| *companion >= 0));
}

#[test]
fn another_temperature_is_another_order() {
    let source = source(&[40, 4]);
    let state = plan_of(&source, balanced(8, 2.0)).state(3);
    let resumed = plan_of(&source, balanced(8, 3.0)).resume(&state);
    let Err(StateError::Settings { differences }) = resumed else { panic!("{resumed:?}") };
    assert_eq!(differences, ["balance temperature was 2, is 3"]);
    assert!(Plan::new(&source, 0..44, balanced(8, 0.5)).unwrap_err().to_string().contains("at least 1"));
    assert!(Plan::new(&source, 0..44, balanced(8, f64::NAN)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn weights_follow_the_temperature_and_no_record_is_lost(
        sizes in proptest::collection::vec(1usize..200, 1..6), temperature in 1.0f64..6.0, seed: u64,
        rows in 1u32..12, shuffled: bool,
    ) {
        let groups = groups(&sizes);
        let lengths = speech_lengths(groups.len());
        let source = Synthetic::unread(lengths, sizes.len() as u32).grouped(groups);
        let order = if shuffled { Order::Shuffled } else { Order::Fixed };
        let settings = Settings {
            seed: Seed::new(seed), order, rows: Rows::Fixed(rows), ..balanced(rows, temperature)
        };
        // Without filled tails, the repetitions are exactly those of balance.
        let exact = plan_of(&source, Settings { tail: Tail::Short, ..settings.clone() });
        let seen = epoch(&exact, 3);
        let largest = *sizes.iter().max().unwrap() as u64;
        let mut once = vec![0u32; source.len()];
        seen.iter().for_each(|&record| once[record as usize] += 1);
        prop_assert!(once.iter().all(|&times| (1..=MAX_REPEATS).contains(&times)));
        for (group, &size) in sizes.iter().enumerate() {
            let of = |record: usize| {
                (source.speaker(record), source.language(record)) == (group as u32 / 2, group as u32 % 2)
            };
            let times: Vec<u32> = (0..source.len()).filter(|&record| of(record)).map(|r| once[r]).collect();
            let (n, all) = (size as f64, largest as f64);
            let wanted = (all * (n / all).powf(1.0 / temperature)).min(n * f64::from(MAX_REPEATS));
            let total = f64::from(times.iter().sum::<u32>());
            prop_assert!((total - wanted).abs() <= 0.51, "{} of {} for {}", total, wanted, size);
            // Within a group the repetitions differ by at most one.
            prop_assert!(times.iter().max().unwrap() - times.iter().min().unwrap() <= 1);
            prop_assert!(size as u64 != largest || total == n, "the largest group is unchanged");
        }
        prop_assert_eq!(exact.records() + exact.repeated(), seen.len());
        let filled: BTreeSet<u32> = epoch(&plan_of(&source, settings), 5).into_iter().collect();
        prop_assert_eq!(filled.len(), source.len());
    }
}

#[test]
fn repeat_factors_follow_the_formula() {
    assert_eq!(repeat_factor(100, 100, 5.0), 1.0);
    assert_eq!(repeat_factor(25, 100, 2.0), 2.0);
    assert_eq!(repeat_factor(25, 100, 1.0), 1.0);
    assert_eq!(repeat_factor(1, 1_000_000, 2.0), 8.0);
}
