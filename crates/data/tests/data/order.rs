//! The order of batches: the content of an epoch, and that only seed, epoch and position decide it.

use std::collections::{BTreeMap, BTreeSet};

use myxtts_data::batch::{
    Ladder, Order, Part, Plan, PlanError, Reason, Rows, Rung, Settings, StateError, Tail,
};
use myxtts_data::record::{CONDITIONING_MEL, DVAE_MEL, RecordSource, TOKENS};
use myxtts_run::seed::Seed;
use proptest::prelude::*;

use crate::restores::{Resumable, restores_everywhere};
use crate::synthetic::{Length, Synthetic};

pub fn settings(rows: u32) -> Settings {
    Settings {
        seed: Seed::new(5),
        rows: Rows::Fixed(rows),
        buckets: 4,
        frame_unit: 8,
        token_unit: 4,
        parts: vec![Part::whole(TOKENS), Part::whole(DVAE_MEL), Part::companion(CONDITIONING_MEL, 12)],
        ..Settings::default()
    }
}

pub fn plan_of(source: &Synthetic, settings: Settings) -> Plan {
    Plan::new(source, 0..source.len() as u32, settings).unwrap()
}

/// The first step of an epoch.
pub fn epoch_start(plan: &Plan, epoch: u64) -> u64 {
    plan.worst_steps() + epoch * plan.batches_per_epoch()
}

fn epoch(plan: &Plan, epoch: u64) -> Vec<Vec<Option<u32>>> {
    let start = epoch_start(plan, epoch);
    (start..start + plan.batches_per_epoch()).map(|step| plan.step(step).records().collect()).collect()
}

fn occurrences(plan: &Plan, number: u64) -> BTreeMap<u32, u32> {
    let mut seen = BTreeMap::new();
    for record in epoch(plan, number).into_iter().flatten().flatten() {
        *seen.entry(record).or_insert(0) += 1;
    }
    seen
}

/// Steps of a plan up to an end, saved as a run saves them.
struct Steps<'a> {
    plan: &'a Plan,
    step: u64,
    end: u64,
}

impl Iterator for Steps<'_> {
    type Item = (Option<u64>, usize, Vec<Option<u32>>);

    fn next(&mut self) -> Option<Self::Item> {
        let step = (self.step < self.end).then(|| self.plan.step(self.step))?;
        self.step += 1;
        Some((step.epoch, step.bucket, step.records().collect()))
    }
}

impl Resumable for Steps<'_> {
    type Saved = String;

    fn save(&self) -> String {
        serde_json::to_string(&self.plan.state(self.step)).unwrap()
    }
}

#[test]
fn a_plan_resumes_at_every_step() {
    let source = Synthetic::speech(90);
    for worst_first in [false, true] {
        let plan = plan_of(&source, Settings { worst_first, ..settings(8) });
        let end = epoch_start(&plan, 3);
        restores_everywhere(|saved: Option<String>| {
            let state = saved.map_or(plan.state(0), |text| serde_json::from_str(&text).unwrap());
            Steps { plan: &plan, step: plan.resume(&state).unwrap(), end }
        });
    }
}

#[test]
fn the_order_differs_by_epoch_and_seed_and_is_reproducible() {
    let source = Synthetic::speech(100);
    let plan = plan_of(&source, settings(8));
    assert_ne!(epoch(&plan, 0), epoch(&plan, 1));
    assert_ne!(epoch(&plan, 0), epoch(&plan_of(&source, Settings { seed: Seed::new(6), ..settings(8) }), 0));
    assert_eq!(epoch(&plan, 7), epoch(&plan_of(&source, settings(8)), 7));
}

#[test]
fn validation_is_the_same_every_time_and_holds_every_record_once() {
    let source = Synthetic::speech(101);
    let training = plan_of(&source, settings(8));
    let ladder = Some(training.ladder().clone());
    let short = Settings { tail: Tail::Short, order: Order::Fixed, ladder, ..settings(8) };
    let plan = plan_of(&source, short);
    assert_eq!(epoch(&plan, 0), epoch(&plan, 3));
    assert_eq!(plan.ladder(), training.ladder());
    let seen = occurrences(&plan, 0);
    assert_eq!(seen.len(), 101);
    assert!(seen.values().all(|&times| times == 1));
    // Companions are the same every time too.
    let companions = |number| {
        let step = plan.step(epoch_start(&plan, number));
        let companion = |record: u32| step.companion(record, 0, source.speaker(record as usize), 0);
        step.records().flatten().map(companion).collect::<Vec<_>>()
    };
    assert_eq!(companions(0), companions(2));
}

#[test]
fn the_worst_batches_come_first_and_do_not_change_the_rest() {
    let source = Synthetic::speech(120);
    let plain = plan_of(&source, settings(8));
    let plan = plan_of(&source, Settings { worst_first: true, ..settings(8) });
    let shapes = plan.worst_steps();
    assert_eq!(shapes, plan.buckets().len() as u64);
    for step in 0..shapes {
        let worst = plan.step(step);
        assert_eq!(worst.bucket as u64, shapes - 1 - step, "largest shape first");
        assert_eq!(worst.epoch, None);
        let rung = plan.buckets()[worst.bucket].rung.frames;
        let below = worst.bucket.checked_sub(1).map_or(0, |i| plan.buckets()[i].rung.frames);
        let mut bucket: Vec<u32> = (0..120).map(|record| source.length(record).frames).collect();
        bucket.retain(|frames| (below + 1..=rung).contains(frames));
        bucket.sort_unstable_by(|a, b| b.cmp(a));
        let found: Vec<u32> = worst.records().map(|record| source.length(record.unwrap()).frames).collect();
        assert_eq!(found, bucket[..8]);
    }
    for step in 0..epoch_start(&plain, 2) {
        let (with, without) = (plan.step(shapes + step), plain.step(step));
        assert!(with.records().eq(without.records()));
        assert_eq!((with.epoch, with.position), (without.epoch, without.position));
    }
}

#[test]
fn a_companion_has_the_same_speaker_and_changes_with_the_epoch() {
    let source = Synthetic::speech(60);
    let plan = plan_of(&source, settings(8));
    let mut companions = BTreeSet::new();
    for number in 0..40 {
        let step = plan.step(epoch_start(&plan, number));
        let companion = step.companion(7, 0, source.speaker(7), 0);
        assert_eq!(
            companion,
            plan.step(epoch_start(&plan, number) + 1).companion(7, 0, source.speaker(7), 0)
        );
        assert!(companion != 7 && source.speaker(companion as usize) == source.speaker(7));
        companions.insert(companion);
    }
    assert!(companions.len() > 10, "{companions:?}");
}

#[test]
fn excluded_records_are_reported() {
    let length = |frames, tokens| Length { frames, tokens };
    let lengths =
        vec![length(10, 5), length(0, 5), length(99, 5), length(10, 0), length(10, 99), length(12, 6)];
    let source = Synthetic::new(lengths, 1);
    let limits = Settings { max_frames: Some(50), max_tokens: Some(40), ..settings(2) };
    let plan = plan_of(&source, limits.clone());
    let reasons: Vec<(u32, Reason)> = plan.excluded().iter().map(|out| (out.record, out.reason)).collect();
    assert_eq!(
        reasons,
        [
            (1, Reason::NoFrames),
            (2, Reason::TooManyFrames { frames: 99, limit: 50 }),
            (3, Reason::NoTokens),
            (4, Reason::TooManyTokens { tokens: 99, limit: 40 }),
        ]
    );
    assert_eq!(plan.records() + plan.excluded().len(), source.len());

    let ladder = Ladder::new(vec![Rung { frames: 11, tokens: 8 }]).unwrap();
    let plan = plan_of(&source, Settings { ladder: Some(ladder), ..limits.clone() });
    assert_eq!(plan.excluded().last().unwrap().reason, Reason::NoShape { frames: 12, tokens: 6 });

    let error = Plan::new(&source, [1, 2], limits).unwrap_err();
    assert!(matches!(error, PlanError::NoRecords { given: 2, excluded: 2, .. }), "{error}");
}

#[test]
fn invalid_settings_are_errors_with_a_reason() {
    let source = Synthetic::speech(20);
    let plan_error = |settings| Plan::new(&source, 0..20, settings).unwrap_err().to_string();
    assert!(plan_error(settings(0)).contains("0 rows"));
    assert!(plan_error(Settings { buckets: 0, ..settings(4) }).contains("buckets is 0"));
    assert!(
        plan_error(Settings { parts: vec![Part::whole(CONDITIONING_MEL)], ..settings(4) }).contains("window")
    );
    assert!(
        plan_error(Settings { parts: vec![Part::window(DVAE_MEL, 0)], ..settings(4) }).contains("0 rows")
    );
    let unknown = myxtts_data::record::WAVEFORM;
    assert!(
        plan_error(Settings { parts: vec![Part::window(unknown, 9)], ..settings(4) }).contains("waveform")
    );
    let dropped = plan_error(Settings { tail: Tail::Drop, ..settings(64) });
    assert!(dropped.contains("20 records, batches of 64"), "{dropped}");
    let error = Plan::new(&source, [20], settings(4)).unwrap_err().to_string();
    assert!(error.contains("record 20"), "{error}");
    let error = plan_of(&source, settings(6)).layouts(4).unwrap_err();
    assert_eq!(error, PlanError::UnevenRanks { rows: 6, ranks: 4 });
}

#[test]
fn a_state_of_another_plan_is_an_error_that_names_the_difference() {
    let source = Synthetic::speech(80);
    let plan = plan_of(&source, settings(8));
    let state = plan.state(12);
    assert_eq!(plan.resume(&state), Ok(12));

    let other = Synthetic::speech(81);
    let plan_error = plan_of(&other, settings(8)).resume(&state);
    assert!(matches!(plan_error, Err(StateError::Dataset { .. })), "{plan_error:?}");

    let plan_error = plan_of(&source, Settings { seed: Seed::new(6), ..settings(4) }).resume(&state);
    let Err(StateError::Settings { differences }) = plan_error else { panic!("{plan_error:?}") };
    assert!(differences.contains(&"batch size was 8 rows, is 4 rows".to_owned()), "{differences:?}");
    assert!(differences.contains(&"seed was 5, is 6".to_owned()), "{differences:?}");

    let plan = Plan::new(&source, 1..80, Settings { ladder: Some(plan.ladder().clone()), ..settings(8) });
    let plan_error = plan.unwrap().resume(&state);
    assert!(matches!(plan_error, Err(StateError::Records { .. })), "{plan_error:?}");
}

#[test]
fn fewer_records_than_a_batch_still_give_one_batch() {
    let source = Synthetic::speech(3);
    let plan = plan_of(&source, settings(8));
    assert_eq!(plan.batches_per_epoch(), 1);
    let seen = occurrences(&plan, 0);
    assert_eq!(seen.len(), 3);
    assert_eq!(seen.values().sum::<u32>(), 8);
}

#[test]
fn repeated_and_unordered_records_are_a_set() {
    let source = Synthetic::speech(40);
    let plan = Plan::new(&source, (0..40).rev().chain(0..40), settings(4)).unwrap();
    assert_eq!(plan.state(0), plan_of(&source, settings(4)).state(0));
}

fn lengths() -> impl Strategy<Value = Vec<Length>> {
    // A mix of clusters, outliers and uniform lengths.
    let length = prop_oneof![4 => 1u32..60, 1 => Just(30u32), 1 => 200u32..400]
        .prop_flat_map(|frames| (Just(frames), 1..=frames))
        .prop_map(|(frames, tokens)| Length { frames, tokens });
    proptest::collection::vec(length, 1..150)
}

fn rows() -> impl Strategy<Value = Rows> {
    let budget = (1u64..2000, proptest::option::of(1u32..500), 1u32..5)
        .prop_map(|(frames, quadratic, multiple)| Rows::Budget { frames, quadratic, multiple });
    prop_oneof![(1u32..20).prop_map(Rows::Fixed), budget]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_record_occurs_as_often_as_the_tail_says(
        lengths in lengths(), rows in rows(), seed: u64, number in 0u64..1 << 40, buckets in 1u32..9,
        shuffled: bool, worst_first: bool,
    ) {
        let source = Synthetic::unread(lengths.clone(), 2);
        let order = if shuffled { Order::Shuffled } else { Order::Fixed };
        let all = Settings { seed: Seed::new(seed), rows, buckets, order, worst_first, ..settings(1) };
        for tail in [Tail::Fill, Tail::Drop, Tail::Short] {
            let plan = match Plan::new(&source, 0..lengths.len() as u32, Settings { tail, ..all.clone() }) {
                Ok(plan) => plan,
                Err(error) => {
                    let none = matches!(error, PlanError::NoBatches { .. });
                    prop_assert!(tail == Tail::Drop && none, "{}", error);
                    continue;
                }
            };
            prop_assert!(plan.buckets().len() <= buckets as usize);
            let seen = occurrences(&plan, number);
            let most = seen.values().copied().max().unwrap_or(0);
            // The ladder guarantees each shape one batch of records if there are that many in total.
            let whole = plan.buckets().iter().all(|bucket| bucket.records >= bucket.rows);
            prop_assert!(whole || plan.buckets().len() == 1);
            match tail {
                Tail::Fill => {
                    prop_assert_eq!(seen.len(), lengths.len());
                    prop_assert!(!whole || most <= 2, "{} times", most);
                }
                Tail::Drop => {
                    prop_assert!(most <= 1);
                    let dropped = lengths.len() - seen.len();
                    prop_assert!(dropped <= plan.buckets().iter().map(|b| b.rows as usize - 1).sum());
                }
                Tail::Short => {
                    prop_assert_eq!(seen.len(), lengths.len());
                    prop_assert_eq!(most, 1);
                }
            }
            // Every record is in a shape that has room for it.
            for step in epoch_start(&plan, number)..epoch_start(&plan, number + 1) {
                let step = plan.step(step);
                let rung = plan.buckets()[step.bucket].rung;
                for record in step.records().flatten() {
                    let length = source.length(record);
                    prop_assert!(length.frames <= rung.frames && length.tokens <= rung.tokens);
                }
            }
        }
    }
}
