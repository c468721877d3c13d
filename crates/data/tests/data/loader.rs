//! The loader: the same batches for any timing of its threads, and an error for every failure.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use myxtts_data::batch::{Plan, Settings, State, Tail};
use myxtts_data::cache::{Features, Featurizer, Fingerprint, PrepareOptions, Store, prepare};
use myxtts_data::loader::{Batch, FailureBudget, HostSlab, Loader, LoaderError, Notes, Options, Slab};
use myxtts_data::problem::Problem;
use myxtts_data::record::{CONDITIONING_MEL, Column, DVAE_MEL, RecordSource, TOKENS};
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_run::progress::Silent;
use myxtts_run::seed::Seed;
use proptest::prelude::*;

use crate::batches::{numbers, rows};
use crate::order::{epoch_start, plan_of, settings};
use crate::restores::{Resumable, restores_everywhere};
use crate::synthetic::{Synthetic, speech_lengths};

/// Runs `test` on its own thread and fails instead of hanging if it does not end.
fn finishes<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(test());
    });
    match wait.recv_timeout(Duration::from_secs(120)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it finishes"),
        },
    }
}

fn start(
    source: &Arc<Synthetic>,
    plan: &Arc<Plan>,
    from: &State,
    options: Options,
    slabs: usize,
) -> Loader<HostSlab> {
    // A deadlock must show within this test's timeout.
    let options = Options { stall: options.stall.min(Duration::from_secs(20)), ..options };
    let bytes = plan.slab_bytes(options.ranks).unwrap();
    Loader::start(source.clone(), plan.clone(), from, options, HostSlab::pool(slabs, bytes)).unwrap()
}

fn planned(source: Synthetic, settings: Settings) -> (Arc<Synthetic>, Arc<Plan>) {
    let plan = Arc::new(plan_of(&source, settings));
    (Arc::new(source), plan)
}

/// Step and rows of a batch, as bytes.
type StepBytes = (u64, Vec<Vec<u8>>);

fn step_bytes(batch: &mut Batch<HostSlab>) -> StepBytes {
    let info = batch.info().clone();
    (info.step, rows(&info, batch.bytes()))
}

#[test]
fn eighteen_option_sets_have_one_order() {
    let settings = Settings { worst_first: true, ..settings(8) };
    let mut hashes = Vec::new();
    for workers in [1, 2, 5] {
        for depth in [1, 3, 8] {
            for ranks in [1u32, 2] {
                let shards = [1, 7][(workers + depth) % 2];
                let mut source = Synthetic::sharded(speech_lengths(70), 3, shards);
                source = source.with(|faults| {
                    faults.jitter = true;
                    faults.bad.extend([5, 40]);
                });
                let (source, plan) = planned(source, settings.clone());
                let hash = finishes(move || {
                    let until = epoch_start(&plan, 2) + 3;
                    let mut loaders: Vec<_> = (0..ranks)
                        .map(|rank| {
                            let options = Options {
                                workers,
                                depth,
                                rank,
                                ranks,
                                until: Some(until),
                                ..Options::default()
                            };
                            start(&source, &plan, &plan.state(0), options, depth + 1)
                        })
                        .collect();
                    let mut hasher = blake3::Hasher::new();
                    for step in 0..until {
                        for loader in &mut loaders {
                            let (made, rows) = step_bytes(&mut loader.next().unwrap().unwrap());
                            assert_eq!(made, step);
                            rows.iter().for_each(|row| {
                                hasher.update(row);
                            });
                        }
                    }
                    assert!(loaders.iter_mut().all(|loader| loader.next().is_none()));
                    hasher.finalize()
                });
                hashes.push(((workers, depth, ranks, shards), hash));
            }
        }
    }
    assert_eq!(hashes.len(), 18);
    for (setting, hash) in &hashes {
        assert_eq!(*hash, hashes[0].1, "{setting:?} differs from {:?}", hashes[0].0);
    }
}

/// A loader as an iterator over the bytes of its batches.
struct Bytes(Loader<HostSlab>);

impl Iterator for Bytes {
    type Item = StepBytes;

    fn next(&mut self) -> Option<StepBytes> {
        Some(step_bytes(&mut self.0.next()?.unwrap()))
    }
}

impl Resumable for Bytes {
    type Saved = State;

    fn save(&self) -> State {
        self.0.state()
    }
}

#[test]
fn a_loader_resumes_at_every_step() {
    let (source, plan) = planned(Synthetic::speech(50), Settings { worst_first: true, ..settings(8) });
    finishes(move || {
        restores_everywhere(|saved: Option<State>| {
            let options = Options { workers: 3, until: Some(epoch_start(&plan, 2)), ..Options::default() };
            Bytes(start(&source, &plan, &saved.unwrap_or(plan.state(0)), options, 4))
        });
    });
}

#[test]
fn dropping_the_loader_early_stops_its_threads() {
    // Workers are in different states: making a batch, waiting for a slab, waiting for room.
    let seed = Seed::new(17);
    let (source, plan) = planned(Synthetic::speech(40).with(|faults| faults.jitter = true), settings(4));
    for round in 0..60u64 {
        let draw = |position, bound| 1 + seed.with(round).below(position, bound) as usize;
        let (workers, depth, slabs) = (draw(0, 6), draw(1, 6), draw(2, 6));
        let (taken, held) = (draw(3, 12) - 1, draw(4, slabs as u64) - 1);
        let (source, plan) = (source.clone(), plan.clone());
        finishes(move || {
            let options = Options { workers, depth, ..Options::default() };
            let mut loader = start(&source, &plan, &plan.state(round), options, slabs);
            let mut holding = std::collections::VecDeque::new();
            for step in 0..taken as u64 {
                let batch = loader.next().unwrap().unwrap();
                assert_eq!(batch.info().step, round + step);
                holding.push_back(batch);
                if holding.len() > held {
                    holding.pop_front();
                }
            }
            if round % 2 == 0 {
                drop(loader);
                drop(holding);
            } else {
                drop(holding);
                assert_eq!(loader.close().len(), slabs, "all slabs are returned");
            }
        });
    }
}

#[test]
fn a_panic_reaches_the_consumer_with_its_thread_and_step() {
    let source = Synthetic::speech(40).with(|faults| {
        faults.panics.insert(11);
    });
    let (source, plan) = planned(source, settings(4));
    finishes(move || {
        let options = Options { workers: 3, ..Options::default() };
        let mut loader = start(&source, &plan, &plan.state(0), options, 6);
        let error = loader.find_map(Result::err).unwrap();
        let LoaderError::Panicked { thread, step, clip, message } = &error else { panic!("{error}") };
        assert!(thread.starts_with("batch-"), "{thread}");
        assert_eq!(clip, "the clip clip-0011");
        assert!(message.contains("planted panic at record 11"), "{message}");
        // The record is an own record or a companion of that step, and all steps before it were returned.
        assert_eq!(loader.state().step, *step);
        assert!(loader.next().is_none(), "an error ends the iterator");
    });
}

#[test]
fn an_error_is_returned_at_its_step_however_early_it_happened() {
    // Without companions a record is in one step of the first epoch, or in two if it fills a tail.
    let alone = Settings { parts: settings(4).parts[..2].to_vec(), ..settings(4) };
    let broken = plan_of(&Synthetic::speech(60), alone.clone()).step(5).record(0).unwrap();
    let source = Synthetic::speech(60).with(|faults| {
        faults.io.insert(broken as usize);
    });
    let (source, plan) = planned(source, alone);
    finishes(move || {
        let options = Options { workers: 6, depth: 8, ..Options::default() };
        let mut loader = start(&source, &plan, &plan.state(0), options, 8);
        let steps: Vec<u64> =
            loader.by_ref().map_while(|batch| batch.ok().map(|batch| batch.info().step)).collect();
        let first = (0..).find(|&step| plan.step(step).records().flatten().any(|record| record == broken));
        assert_eq!(steps.len() as u64, first.unwrap());
        assert!(loader.next().is_none());
    });
}

#[test]
fn a_hanging_read_is_reported_and_does_not_hang_the_program() {
    let source = Synthetic::speech(8).with(|faults| faults.hangs.extend(0..8));
    let (source, plan) = planned(source, settings(4));
    finishes(move || {
        let options = Options { workers: 1, stall: Duration::from_millis(50), ..Options::default() };
        let mut loader = start(&source, &plan, &plan.state(0), options, 2);
        let error = loader.next().unwrap().err().unwrap();
        assert!(matches!(error, LoaderError::Stalled { step: 0, .. }), "{error}");
        assert!(error.to_string().contains("batch-0 has been making it"), "{error}");
        assert!(error.to_string().contains("at the clip clip-000"), "{error}");
        source.release();
        drop(loader);
    });
}

/// Transient faults with every combination of workers, depth and slabs: the batches equal those of a loader without faults,
/// in order, and the faults are reported.
#[test]
fn a_worker_that_panics_or_hangs_is_replaced_and_the_order_is_unchanged() {
    for (workers, depth, slabs) in [(1, 1, 2), (1, 4, 6), (2, 3, 3), (3, 4, 4), (3, 8, 10)] {
        let (calm, plan) = planned(Synthetic::speech(40), settings(4));
        let (source, _) = planned(
            Synthetic::speech(40).with(|faults| {
                faults.panics_once.extend([5, 31]);
                faults.hangs_once.extend([11, 24]);
            }),
            settings(4),
        );
        let room = format!("{workers} workers, {depth} ahead, {slabs} slabs");
        let notes = finishes(move || {
            let until = Some(epoch_start(&plan, 2));
            let options =
                Options { workers, depth, until, hang: Duration::from_millis(100), ..Options::default() };
            let notes = options.notes.clone();
            let mut expected = start(
                &calm,
                &plan,
                &plan.state(0),
                Options { notes: Notes::default(), ..options.clone() },
                4,
            );
            // One extra slab for each thread that hangs with one, and at least as many as are waited for.
            let mut loader = start(&source, &plan, &plan.state(0), options, slabs + 1);
            for batch in expected.by_ref() {
                let made = loader.next().unwrap_or_else(|| panic!("{room}: ended early"));
                let mut made = made.unwrap_or_else(|error| panic!("{room}: {error}"));
                assert!(
                    step_bytes(&mut made) == step_bytes(&mut batch.unwrap()),
                    "{room}: {}",
                    made.info().step
                );
            }
            assert!(loader.next().is_none(), "{room}");
            source.release();
            // The abandoned threads find that they were replaced.
            drop(loader);
            notes.take()
        });
        let reported = notes.join("\n");
        for expected in [
            "panicked at step",
            "the clip clip-0005",
            "the clip clip-0031: planted",
            "the clip clip-0011 for",
            "the clip clip-0024",
        ] {
            assert!(reported.contains(expected), "{expected}: {reported}");
        }
    }
}

#[test]
fn a_worker_that_hangs_with_the_only_slab_is_reported() {
    let source = Synthetic::speech(20).with(|faults| faults.hangs_once.extend(0..20));
    let (source, plan) = planned(source, settings(4));
    finishes(move || {
        let (stall, hang) = (Duration::from_millis(120), Duration::from_millis(30));
        let options = Options { workers: 1, stall, hang, ..Options::default() };
        let mut loader = start(&source, &plan, &plan.state(0), options, 1);
        let error = loader.next().unwrap().err().unwrap().to_string();
        assert!(error.contains("before that batch-0 has been at the clip clip-00"), "{error}");
        source.release();
        drop(loader);
    });
}

#[test]
fn a_bad_record_is_reported_once() {
    let source = Synthetic::speech(30).with(|faults| faults.bad.extend([7]));
    let (source, plan) = planned(source, settings(4));
    finishes(move || {
        let options = Options { until: Some(epoch_start(&plan, 3)), ..Options::default() };
        let notes = options.notes.clone();
        let loader = start(&source, &plan, &plan.state(0), options, 4);
        assert!(loader.map(Result::unwrap).count() > 20);
        let reported = notes.take();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].contains("clip-0007") && reported[0].contains("another clip"), "{reported:?}");
    });
}

#[test]
fn a_consumer_that_holds_every_slab_gets_an_error() {
    let (source, plan) = planned(Synthetic::speech(20), settings(4));
    finishes(move || {
        let options = Options { stall: Duration::from_millis(50), ..Options::default() };
        let mut loader = start(&source, &plan, &plan.state(0), options, 2);
        let held: Vec<_> = loader.by_ref().take(2).map(Result::unwrap).collect();
        let error = loader.next().unwrap().err().unwrap();
        assert!(error.to_string().contains("the consumer holds all 2 slabs"), "{error}");
        drop(held);
    });
}

#[test]
fn bad_records_are_tolerated_up_to_the_budget_and_then_reported() {
    let run = |bad: std::ops::Range<usize>, probation| {
        let source = Synthetic::speech(100).with(|faults| faults.bad.extend(bad));
        let (source, plan) = planned(source, settings(10));
        finishes(move || {
            let budget = FailureBudget { rate: 0.05, probation };
            let until = Some(epoch_start(&plan, 3));
            let options = Options { workers: 3, budget, until, ..Options::default() };
            let notes = options.notes.clone();
            let mut loader = start(&source, &plan, &plan.state(0), options, 5);
            let error = loader.find_map(Result::err);
            (error.map(|error| error.to_string()), notes.take().len(), loader.state().step)
        })
    };
    let (error, named, _) = run(0..2, 100);
    assert_eq!((error, named), (None, 2));
    let (error, _, step) = run(0..20, 100);
    let error = error.unwrap();
    assert!(error.contains("clip-00") && error.contains("5.0 %"), "{error}");
    assert!(step >= 4, "probation ended before 100 records were read: step {step}");
    // Not a matter of timing: always at the same step.
    assert_eq!(run(0..20, 100).2, step);
    assert_eq!(run(0..20, 1_000_000).0, None);
}

#[test]
fn stats_report_the_waits() {
    let (source, plan) = planned(Synthetic::speech(40), settings(4));
    finishes(move || {
        let options = Options { until: Some(20), ..Options::default() };
        let mut loader = start(&source, &plan, &plan.state(0), options, 4);
        assert_eq!(loader.by_ref().filter(Result::is_ok).count(), 20);
        let stats = loader.stats();
        assert_eq!((stats.batches, stats.get_wait.count, stats.collate.count), (20, 20, 20));
        assert!((0.0..=1.0).contains(&stats.readiness));
        assert!(stats.read.p50 <= stats.collate.max && stats.collate.p50 > 0.0);
        assert!(stats.first_batch > 0.0);
        serde_json::to_string(&stats).unwrap();
    });
}

#[test]
fn invalid_options_are_errors_with_a_reason() {
    let (source, plan) = planned(Synthetic::speech(40), Settings { tail: Tail::Short, ..settings(6) });
    let start_error = |options: Options, slabs: Vec<HostSlab>| {
        let loader = Loader::start(source.clone(), plan.clone(), &plan.state(0), options, slabs);
        loader.err().unwrap().to_string()
    };
    let bytes = plan.slab_bytes(1).unwrap();
    let slabs = || HostSlab::pool(2, bytes);
    assert!(start_error(Options { workers: 0, ..Options::default() }, slabs()).contains("0 workers"));
    assert!(start_error(Options { depth: 0, ..Options::default() }, slabs()).contains("0 batches ahead"));
    assert!(start_error(Options::default(), vec![]).contains("no slab"));
    assert!(start_error(Options::default(), HostSlab::pool(2, bytes / 2)).contains("the largest batch"));
    assert!(start_error(Options { ranks: 4, ..Options::default() }, slabs()).contains("6 rows"));
    assert!(
        start_error(Options { rank: 2, ranks: 2, ..Options::default() }, slabs()).contains("count from 0")
    );
    let other = plan_of(&source, settings(3));
    let loader = Loader::start(source.clone(), plan.clone(), &other.state(0), Options::default(), slabs());
    assert!(loader.err().unwrap().to_string().contains("batch size was 3 rows, is 6 rows"));
}

proptest! {
    // A case that deadlocks takes long, so shrink only a few times.
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 2, ..ProptestConfig::default() })]

    #[test]
    fn no_configuration_deadlocks_or_changes_the_order(
        workers in 1usize..7, depth in 1usize..7, slabs in 1usize..7, first in 0u64..100, count in 1u64..30,
        jitter: bool,
    ) {
        let (source, plan) =
            planned(Synthetic::speech(30).with(|faults| faults.jitter = jitter), settings(3));
        let steps = finishes(move || {
            let options = Options { workers, depth, until: Some(first + count), ..Options::default() };
            let loader = start(&source, &plan, &plan.state(first), options, slabs);
            loader.map(|batch| batch.unwrap().info().step).collect::<Vec<_>>()
        });
        prop_assert!(steps.into_iter().eq(first..first + count));
    }
}

/// The loader works with any kind of memory.
#[test]
fn any_memory_can_be_a_slab() {
    struct Odd(Box<[u8]>);
    impl Slab for Odd {
        fn bytes(&mut self) -> &mut [u8] {
            // Deliberately unaligned.
            &mut self.0[1..]
        }
    }
    let (source, plan) = planned(Synthetic::speech(20), settings(4));
    finishes(move || {
        let slabs = (0..3).map(|_| Odd(vec![0; plan.slab_bytes(1).unwrap() + 1].into()));
        let options = Options { until: Some(6), ..Options::default() };
        let odd =
            Loader::start(source.clone(), plan.clone(), &plan.state(0), options.clone(), slabs).unwrap();
        let plain = start(&source, &plan, &plan.state(0), options, 3);
        for (odd, plain) in odd.zip(plain) {
            assert!(odd.unwrap().bytes() == plain.unwrap().bytes());
        }
    });
}

/// Mels whose length and values follow from the text.
struct TextMels;

impl Featurizer for TextMels {
    fn columns(&self) -> &[Column] {
        &[TOKENS, DVAE_MEL, CONDITIONING_MEL]
    }

    fn fingerprint(&self) -> [u8; 32] {
        Fingerprint::new("spoken").finish()
    }

    fn compute(&self, utterance: &Utterance, _: &[u8]) -> Result<Features, Problem> {
        let frames = 3 * utterance.text.len();
        let tokens = utterance.text.bytes().flat_map(|letter| i32::from(letter).to_le_bytes()).collect();
        let mel: Vec<u8> = (0..frames * 80).flat_map(|i| (i as f32).to_le_bytes()).collect();
        Ok(Features { arrays: vec![tokens, mel.clone(), mel], seconds: 1.0 })
    }
}

#[test]
fn the_loader_reads_a_prepared_cache() {
    let folder = tempfile::tempdir().unwrap();
    let audio = folder.path().join("sound");
    std::fs::write(&audio, b"sound").unwrap();
    let utterance = |i: usize| Utterance {
        id: format!("u{i}"),
        audio: audio.clone(),
        text: "a".repeat(1 + i % 17),
        speaker: format!("s{}", i % 3),
        language: "en".into(),
        origin: Origin { file: "list".into(), line: None },
    };
    let utterances: Vec<Utterance> = (0..50).map(utterance).collect();
    let cache = folder.path().join("cache");
    let options = PrepareOptions { workers: 1, ..PrepareOptions::default() };
    prepare(&cache, &utterances, &TextMels, &options, &Silent).unwrap();

    let store: Arc<dyn RecordSource> = Arc::new(Store::open(&cache).unwrap());
    let plan = Arc::new(Plan::new(&*store, 0..50, settings(8)).unwrap());
    let slabs = HostSlab::pool(3, plan.slab_bytes(1).unwrap());
    let options = Options { until: Some(epoch_start(&plan, 1)), ..Options::default() };
    let loader = Loader::start(store.clone(), plan.clone(), &plan.state(0), options, slabs).unwrap();
    let mut found = std::collections::BTreeSet::new();
    for batch in loader {
        let mut batch = batch.unwrap();
        let info = batch.info().clone();
        let bytes = batch.bytes();
        let frames = numbers(&info, bytes, "dvae_mel_rows");
        for (row, record) in numbers(&info, bytes, "record").into_iter().enumerate() {
            let id = store.id(record as usize);
            let number: usize = id[1..].parse().unwrap();
            assert_eq!(frames[row] as usize, 3 * (1 + number % 17), "{id}");
            let mel = &bytes[info.layout.row_range(1, row as u32)];
            assert!(
                mel[..frames[row] as usize * 320]
                    .as_chunks()
                    .0
                    .iter()
                    .enumerate()
                    .all(|(i, value)| f32::from_le_bytes(*value) == i as f32)
            );
            found.insert(number);
        }
    }
    assert_eq!(found.len(), 50);
}
