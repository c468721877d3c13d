//! Collated batches: every byte follows from the plan; earlier content of the slab has no effect.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use myxtts_data::batch::{
    BatchError, BatchInfo, Collator, Part, Plan, PlanError, Role, Rows, Settings, Tail,
};
use myxtts_data::record::{CONDITIONING_MEL, DVAE_MEL, RecordSource};
use proptest::prelude::*;

use crate::order::{plan_of, settings};
use crate::synthetic::{Length, Synthetic, speech_lengths};

/// Collates one step into a slab filled with `poison`.
fn collate(collator: &Collator, step: u64, poison: u8) -> (BatchInfo, Vec<u8>) {
    let mut slab = vec![poison; collator.slab_bytes()];
    let info = collator.collate(step, &mut slab).unwrap();
    slab.truncate(info.layout.bytes());
    (info, slab)
}

fn collator(source: &Arc<Synthetic>, settings: Settings, rank: u32, ranks: u32) -> Collator {
    let plan = Arc::new(plan_of(source, settings));
    Collator::new(source.clone(), plan, rank, ranks).unwrap()
}

/// Returns the i32 values of a field.
pub fn numbers(info: &BatchInfo, bytes: &[u8], field: &str) -> Vec<i32> {
    let field = info.layout.field(field).unwrap();
    let bytes = &bytes[field.offset..field.offset + field.bytes];
    bytes.as_chunks::<4>().0.iter().map(|value| i32::from_le_bytes(*value)).collect()
}

/// Returns every row as the bytes of all its fields, independent of the number of ranks.
pub fn rows(info: &BatchInfo, bytes: &[u8]) -> Vec<Vec<u8>> {
    (0..info.layout.rows() as usize)
        .map(|row| {
            let field_row = |field: &myxtts_data::batch::Field| {
                let each = field.bytes / info.layout.rows() as usize;
                bytes[field.offset + row * each..][..each].to_vec()
            };
            info.layout.fields().iter().flat_map(field_row).collect()
        })
        .collect()
}

#[test]
fn a_batch_holds_the_records_of_its_plan_and_padding() {
    let source = Arc::new(Synthetic::speech(60));
    let collator = collator(&source, settings(8), 0, 1);
    let plan = collator.plan().clone();
    let floor = 1e-5f32.ln().to_le_bytes();
    for step in 0..plan.batches_per_epoch() {
        let (info, bytes) = collate(&collator, step, 0xab);
        let records = numbers(&info, &bytes, "record");
        let planned: Vec<i32> = plan.step(step).records().map(|record| record.unwrap() as i32).collect();
        assert_eq!(records, planned);
        for (row, &record) in planned.iter().enumerate() {
            let length = source.length(record as u32);
            for (part, column, rows, name, pad) in
                [(0, 0, length.tokens, "tokens", [0; 4]), (1, 1, length.frames, "dvae_mel", floor)]
            {
                let found = &bytes[info.layout.row_range(part, row as u32)];
                let array = source.array(record as u32, column);
                assert_eq!(&found[..array.len()], array, "{name} of row {row}");
                assert!(found[array.len()..].as_chunks::<4>().0.iter().all(|value| *value == pad));
                assert_eq!(numbers(&info, &bytes, &format!("{name}_rows"))[row], rows as i32);
            }
            // The companion is some window of the right array.
            let companion = numbers(&info, &bytes, "companion")[row] as u32;
            assert_eq!(source.speaker(companion as usize), source.speaker(record as usize));
            let frames = numbers(&info, &bytes, "companion_conditioning_mel_rows")[row] as usize;
            assert_eq!(frames, 12.min(source.length(companion).frames as usize));
            let found = &bytes[info.layout.row_range(2, row as u32)];
            let windows = source.array(companion, 2).windows(frames * 320).step_by(320);
            assert_eq!(windows.filter(|window| *window == &found[..frames * 320]).count(), 1);
            assert_eq!(numbers(&info, &bytes, "speaker")[row], record % 3);
            assert_eq!(numbers(&info, &bytes, "language")[row], record % 2);
        }
        assert_eq!(info.rows_valid, 8);
        assert!((0.0..0.6).contains(&info.padding()), "{}", info.padding());
    }
}

#[test]
fn windows_start_at_every_position() {
    let lengths = vec![Length { frames: 40, tokens: 3 }; 8];
    let source = Arc::new(Synthetic::new(lengths, 1));
    let parts = vec![Part::window(DVAE_MEL, 38)];
    let collator = collator(&source, Settings { parts, ..settings(8) }, 0, 1);
    let mut starts = [0u32; 3];
    for step in 0..60 {
        let (info, bytes) = collate(&collator, step, 1);
        for (row, record) in numbers(&info, &bytes, "record").into_iter().enumerate() {
            let array = source.array(record as u32, 1);
            let found = &bytes[info.layout.row_range(0, row as u32)];
            let start = (0..3).find(|start| &array[start * 320..][..38 * 320] == found).unwrap();
            starts[start] += 1;
        }
    }
    assert!(starts.iter().all(|&n| (120..200).contains(&n)), "{starts:?}");
}

/// With one clip per speaker, at most half of it conditions, and the batch reports which half: it must not be the target.
#[test]
fn a_single_record_is_its_own_companion_and_the_half_used_is_reported() {
    let lengths = [9, 14, 40, 1].map(|frames| Length { frames, tokens: 3 }).to_vec();
    let source = Arc::new(Synthetic::new(lengths, 4));
    let collator = collator(&source, Settings { buckets: 1, ..settings(4) }, 0, 1);
    let mut firsts = std::collections::BTreeSet::new();
    for step in 0..40 {
        let (info, bytes) = collate(&collator, step, 0x77);
        let records = numbers(&info, &bytes, "record");
        assert_eq!(numbers(&info, &bytes, "companion"), records);
        assert_eq!(info.own_companions.len(), 4);
        for own in &info.own_companions {
            let record = records[own.row as usize] as u32;
            let frames = source.length(record).frames;
            assert_eq!((own.part, own.rows), (2, (frames / 2).clamp(1, 12)), "{frames} frames");
            assert_eq!(
                numbers(&info, &bytes, "companion_conditioning_mel_rows")[own.row as usize],
                own.rows as i32
            );
            let found = &bytes[info.layout.row_range(2, own.row)];
            let taken = &source.array(record, 2)[own.first as usize * 320..][..own.rows as usize * 320];
            assert!(&found[..taken.len()] == taken, "row {} is not from {}", own.row, own.first);
            let floor = 1e-5f32.ln().to_le_bytes();
            assert!(found[taken.len()..].as_chunks::<4>().0.iter().all(|value| *value == floor));
            if frames == 14 {
                firsts.insert(own.first);
            }
        }
    }
    assert_eq!(firsts.into_iter().collect::<Vec<_>>(), (0..=7).collect::<Vec<_>>(), "every half occurs");
    let others = Arc::new(Synthetic::speech(60));
    let plan = Arc::new(plan_of(&others, settings(8)));
    let collator = Collator::new(others, plan, 0, 1).unwrap();
    assert!((0..8).all(|step| collate(&collator, step, 0).0.own_companions.is_empty()));
}

#[test]
fn previous_contents_of_a_slab_are_overwritten() {
    let source = Arc::new(Synthetic::speech(50));
    for tail in [Tail::Fill, Tail::Short] {
        let collator = collator(&source, Settings { tail, ..settings(7) }, 0, 1);
        for step in 0..2 * collator.plan().batches_per_epoch() {
            let (_, clean) = collate(&collator, step, 0);
            for poison in [0x5a, 0xff] {
                assert!(collate(&collator, step, poison).1 == clean, "step {step} shows {poison:#x}");
            }
        }
    }
}

#[test]
fn ranks_share_a_batch_without_changing_it() {
    let source = Arc::new(Synthetic::speech(77));
    for tail in [Tail::Fill, Tail::Short] {
        for rows_wanted in [Rows::Fixed(8), Rows::Budget { frames: 300, quadratic: Some(50), multiple: 4 }] {
            let settings = Settings { tail, rows: rows_wanted, ..settings(8) };
            let whole = collator(&source, settings.clone(), 0, 1);
            for ranks in [1, 2, 4] {
                let shares: Vec<Collator> =
                    (0..ranks).map(|rank| collator(&source, settings.clone(), rank, ranks)).collect();
                for step in 0..whole.plan().batches_per_epoch() + 3 {
                    let (info, bytes) = collate(&whole, step, 9);
                    let merged: Vec<Vec<u8>> = (shares.iter())
                        .flat_map(|share| {
                            let (info, bytes) = collate(share, step, 7);
                            rows(&info, &bytes)
                        })
                        .collect();
                    assert!(merged == rows(&info, &bytes), "{ranks} ranks, step {step}");
                }
            }
        }
    }
}

#[test]
fn a_short_batch_reports_its_valid_rows() {
    let source = Arc::new(Synthetic::speech(13));
    let settings = Settings { tail: Tail::Short, buckets: 1, ..settings(8) };
    let whole = collator(&source, settings.clone(), 0, 1);
    let steps: Vec<_> = (0..2).map(|step| collate(&whole, step, 3)).collect();
    let mut valid: Vec<u32> = steps.iter().map(|(info, _)| info.rows_valid).collect();
    valid.sort_unstable();
    assert_eq!(valid, [5, 8]);
    let (info, bytes) = steps.iter().find(|(info, _)| info.rows_valid == 5).unwrap();
    assert_eq!(&numbers(info, bytes, "record")[5..], [-1; 3]);
    assert_eq!(&numbers(info, bytes, "dvae_mel_rows")[5..], [0; 3]);
    let last_rank = collator(&source, settings, 1, 2);
    let valid = collate(&last_rank, info.step, 3).0.rows_valid;
    assert_eq!(valid, 1, "rows 4 to 7, of which one is valid");
}

#[test]
fn lengths_reported_too_long_are_corrected() {
    let source = Arc::new(Synthetic::speech(40).reporting_longer(9));
    let collator = collator(&source, settings(4), 0, 1);
    for step in 0..collator.plan().batches_per_epoch() {
        let (info, bytes) = collate(&collator, step, 0xee);
        let companions = numbers(&info, &bytes, "companion");
        for (row, &record) in numbers(&info, &bytes, "record").iter().enumerate() {
            let frames = source.length(record as u32).frames;
            assert_eq!(numbers(&info, &bytes, "dvae_mel_rows")[row], frames as i32);
            let whole = source.length(companions[row] as u32).frames;
            assert_eq!(numbers(&info, &bytes, "companion_conditioning_mel_rows")[row], whole.min(12) as i32);
        }
    }
}

#[test]
fn a_bad_record_is_replaced_by_one_of_its_bucket_and_reported() {
    let bad = [3usize, 17, 31];
    let source = Arc::new(Synthetic::speech(60).with(|faults| faults.bad.extend(bad)));
    let collator = collator(&source, settings(8), 0, 1);
    let mut named = std::collections::BTreeSet::new();
    for step in 0..collator.plan().batches_per_epoch() {
        let (info, bytes) = collate(&collator, step, 0x11);
        assert!(collate(&collator, step, 0x22).1 == bytes, "the substitute must be deterministic");
        let records = numbers(&info, &bytes, "record");
        assert!(records.iter().all(|record| !bad.contains(&(*record as usize))));
        assert!(numbers(&info, &bytes, "companion").iter().all(|record| !bad.contains(&(*record as usize))));
        for substitution in &info.substitutions {
            assert!(substitution.problem.to_string().contains(&source.id(substitution.record as usize)));
            if substitution.role == Role::Own {
                assert_eq!(records[substitution.row as usize], substitution.by as i32);
                named.insert(substitution.record as usize);
                let (there, here) =
                    (source.length(substitution.by), collator.plan().buckets()[info.bucket].rung);
                assert!(there.frames <= here.frames);
            }
        }
    }
    assert_eq!(named.into_iter().collect::<Vec<_>>(), bad);
}

#[test]
fn a_record_without_a_readable_companion_is_bad() {
    // Every record has its own speaker, and one conditioning mel is damaged.
    let source = Synthetic::new(speech_lengths(20), 20).with(|faults| {
        faults.bad_conditioning.insert(4);
    });
    let source = Arc::new(source);
    let collator = collator(&source, settings(20), 0, 1);
    let (info, bytes) = collate(&collator, 0, 0);
    assert!(!numbers(&info, &bytes, "record").contains(&4));
    assert_eq!(info.substitutions.len(), 1);
    assert_eq!((info.substitutions[0].record, info.substitutions[0].role), (4, Role::Own));
}

#[test]
fn a_bucket_of_bad_records_is_an_error_that_names_them() {
    let source = Arc::new(Synthetic::speech(5).with(|faults| faults.bad.extend(0..5)));
    let collator = collator(&source, settings(2), 0, 1);
    let mut slab = vec![0; collator.slab_bytes()];
    let error = collator.collate(0, &mut slab).unwrap_err();
    assert!(matches!(&error, BatchError::NoSubstitute { problems, .. } if problems.len() >= 2), "{error}");
    assert!(error.to_string().contains("clip-000"), "{error}");
}

#[test]
fn failing_storage_does_not_make_a_record_bad() {
    let source = Arc::new(Synthetic::speech(5).with(|faults| faults.io.extend(0..5)));
    let collator = collator(&source, settings(2), 0, 1);
    let mut slab = vec![0; collator.slab_bytes()];
    let error = collator.collate(0, &mut slab).unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert!(matches!(error, BatchError::Read { step: 0, .. }));
}

#[test]
fn a_slab_too_small_and_another_source_are_errors() {
    let source = Arc::new(Synthetic::speech(30));
    let collator = collator(&source, settings(4), 0, 1);
    let error = collator.collate(0, &mut [0; 100]).unwrap_err();
    assert!(matches!(error, BatchError::SlabTooSmall { given: 100, .. }), "{error}");
    let other = Arc::new(Synthetic::speech(31));
    let error = Collator::new(other, collator.plan().clone(), 0, 1).err();
    assert_eq!(error, Some(PlanError::OtherSource));
}

#[test]
fn opening_at_step_1_000_000_costs_the_same_as_at_step_0() {
    // Work is counted, not timed: lengths queried, arrays read.
    let lengths = vec![Length { frames: 20, tokens: 6 }; 200];
    let work = |step: u64| {
        let source = Arc::new(Synthetic::new(lengths.clone(), 3));
        let collator = collator(&source, settings(8), 0, 1);
        collate(&collator, step, 0);
        (source.length_queries.load(Relaxed), source.reads.load(Relaxed))
    };
    let (queries, read) = work(0);
    assert_eq!(read, 8 * 3);
    for step in [1, 1_000_000, 1 << 50] {
        assert_eq!(work(step), (queries, read), "step {step}");
    }
}

#[test]
fn parts_can_be_chosen_freely() {
    let source = Arc::new(Synthetic::speech(20));
    let parts = vec![Part::whole(DVAE_MEL), Part::window(CONDITIONING_MEL, 4)];
    let collator = collator(&source, Settings { parts, ..settings(4) }, 0, 1);
    let (info, bytes) = collate(&collator, 0, 0);
    assert_eq!(info.layout.rung().tokens, 0);
    assert_eq!(numbers(&info, &bytes, "companion"), [-1; 4]);
    assert!(info.layout.field("tokens").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn used_bytes_match_the_lengths(count in 1usize..60, rows in 1u32..9, step in 0u64..1000) {
        let source = Arc::new(Synthetic::speech(count));
        let collator = collator(&source, settings(rows), 0, 1);
        let (info, bytes) = collate(&collator, step, 0x33);
        let sum = |field: &str| numbers(&info, &bytes, field).iter().sum::<i32>() as u64;
        let frames = sum("dvae_mel_rows") + sum("companion_conditioning_mel_rows");
        prop_assert_eq!(info.used_bytes, 320 * frames + 4 * sum("tokens_rows"));
    }
}

#[test]
fn a_plan_of_a_million_records_queries_only_lengths() {
    let lengths = (0..1_000_000u32).map(|i| Length { frames: 50 + i % 800, tokens: 5 + i % 190 });
    let source = Synthetic::unread(lengths.collect(), 1000);
    let plan = Plan::new(&source, 0..1_000_000, Settings::default()).unwrap();
    assert_eq!(plan.records(), 1_000_000);
    // At most two queries of each record's two lengths; nothing else is read from the source.
    assert!(source.length_queries.load(Relaxed) <= 4_000_000);
    assert_eq!(source.reads.load(Relaxed), 0);
}
