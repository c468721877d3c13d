//! `prepare`: the content of the store, and that it is a pure function of the corpus.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use myxtts_data::cache::names::{ShardName, shard_of};
use myxtts_data::cache::repair;
use myxtts_data::cache::{CacheError, FindingKind, PrepareOptions, Store, prepare, verify};
use myxtts_data::npy;
use myxtts_data::problem::ProblemKind;
use myxtts_data::record::{RecordError, RecordSource};
use myxtts_data::utterance::Utterance;
use myxtts_run::exit::Exit;
use myxtts_run::lock::FolderLock;
use myxtts_run::progress::Silent;

use super::cache_fixture::{
    Synthetic, assert_same, corpus, files_ending, options, prepared, scratch, snapshot, utterance,
};
use myxtts_data::cache::Featurizer;

#[test]
fn every_record_round_trips_and_every_failure_is_reported() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 90), root.path().join("cache"));
    let report = prepared(&dir, &utterances);
    // Three of each kind in forty: a planted failure, and a missing file.
    assert_eq!((report.records, report.failed, report.computed), (86, 4, 90));
    assert_eq!(report.problems.len(), 4);
    let missing = report.problems.iter().find(|p| p.id.as_deref() == Some("utt-0033")).unwrap();
    assert_eq!((missing.kind, missing.origin.line), (ProblemKind::Missing, Some(34)));

    let store = Store::open(&dir).unwrap();
    assert_eq!(store.len(), 86);
    assert_eq!(store.speakers(), ["speaker 0", "speaker 1", "speaker 2"]);
    assert_eq!(store.languages(), ["en", "fa"]);
    assert_eq!(store.failures().unwrap().len(), 4);
    let synthetic = Synthetic::new();
    for utterance in &utterances {
        let Some(record) = store.find(&utterance.id) else {
            assert!(report.problems.iter().any(|p| p.id.as_ref() == Some(&utterance.id)));
            continue;
        };
        assert_eq!(store.id(record), utterance.id);
        assert_eq!(store.speakers()[store.speaker(record) as usize], utterance.speaker);
        assert_eq!(store.languages()[store.language(record) as usize], utterance.language);
        let features = synthetic.compute(utterance, &std::fs::read(&utterance.audio).unwrap()).unwrap();
        assert_eq!(store.index().seconds(record), features.seconds);
        for (at, (column, wanted)) in store.columns().iter().zip(&features.arrays).enumerate() {
            let rows = store.rows(record, at);
            assert_eq!(rows as usize * column.row_bytes(), wanted.len());
            let mut out = vec![0; wanted.len() + 3 * column.row_bytes()];
            assert_eq!(store.read(record, at, 0, &mut out).unwrap(), rows);
            assert_eq!(&out[..wanted.len()], wanted);
            // Reading in pieces gives the same.
            let mut piece = vec![0; column.row_bytes()];
            for row in 0..rows {
                assert_eq!(store.read(record, at, row, &mut piece).unwrap(), 1);
                assert_eq!(piece, wanted[row as usize * column.row_bytes()..][..column.row_bytes()]);
            }
            assert_eq!(store.read(record, at, rows, &mut piece).unwrap(), 0);
            assert_eq!(store.read(record, at, u32::MAX, &mut piece).unwrap(), 0);
        }
    }
    assert_eq!(store.find("nobody"), None);
    assert!(verify(&dir, Some((&utterances, &Synthetic::new())), 2, &Silent).unwrap().is_ok());
}

#[test]
fn arrays_are_plain_numpy_files_at_the_reported_locations() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 20), root.path().join("cache"));
    prepared(&dir, &utterances);
    let store = Store::open(&dir).unwrap();
    for record in 0..store.len() {
        for (at, location) in store.array_locations(record).into_iter().enumerate() {
            if location.rows == 0 {
                continue;
            }
            let bytes = std::fs::read(&location.file).unwrap();
            let header = npy::parse_header(&bytes).unwrap();
            assert_eq!(header.descr, location.column.dtype.numpy());
            assert_eq!(header.shape.len(), if location.column.width == 1 { 1 } else { 2 });
            assert_eq!(bytes.len(), header.data_start + header.shape[0] * location.column.row_bytes());
            let row = location.column.row_bytes();
            let start = header.data_start + location.first_row as usize * row;
            let mut out = vec![0; location.rows as usize * row];
            store.read(record, at, 0, &mut out).unwrap();
            assert_eq!(out, bytes[start..start + out.len()]);
        }
    }
}

#[test]
fn the_bytes_do_not_depend_on_workers_or_the_order_of_the_corpus() {
    let root = scratch();
    let mut utterances = corpus(&root.path().join("corpus"), 100);
    let dir = root.path().join("0");
    prepared(&dir, &utterances);
    let wanted = snapshot(&dir);
    for (n, workers) in [1, 3, 16].into_iter().enumerate() {
        utterances.rotate_left(37);
        let dir = root.path().join(format!("{}", n + 1));
        prepare(&dir, &utterances, &Synthetic::new(), &PrepareOptions { workers, ..options() }, &Silent)
            .unwrap();
        assert_same(&dir, &wanted, &format!("{workers} workers"));
    }
}

#[test]
fn a_second_prepare_computes_and_writes_nothing() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    let first = prepared(&dir, &utterances);
    let times = || {
        let mut times: Vec<_> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|e| e.unwrap())
            .filter(|e| e.file_name() != "write.lock")
            .map(|e| (e.file_name(), e.metadata().unwrap().modified().unwrap()))
            .collect();
        times.sort();
        times
    };
    let before = times();
    let second = prepared(&dir, &utterances);
    assert_eq!(times(), before);
    assert_eq!((second.computed, second.copied, second.shards_kept), (0, 0, first.shards));
    assert_eq!(second.fingerprint, first.fingerprint);
    assert_eq!(second.problems, first.problems, "failures are stored with their origins");
}

/// For any change of the corpus, the updated store equals a fresh one, and only what changed is computed.
#[test]
fn an_updated_store_has_the_bytes_of_a_fresh_one_and_computes_only_changes() {
    let root = scratch();
    let folder = root.path().join("corpus");
    let original = corpus(&folder, 60);
    type Change = fn(&mut Vec<Utterance>);
    let changes: [(&str, Change, u64); 8] = [
        ("nothing", |_| {}, 0),
        ("one more", |all| all.push(utterance("new", all[0].audio.clone(), "a new one", 1)), 1),
        ("one less", |all| drop(all.remove(30)), 0),
        ("a text", |all| all[5].text.push('!'), 1),
        ("a speaker", |all| all[6].speaker = "somebody else".into(), 1),
        ("a failure repaired", |all| all[13].text = "good now".into(), 1),
        ("lines moved", |all| all.iter_mut().for_each(|u| u.origin.line = Some(7)), 0),
        // 64 utterances in shards of 8 are the most that 8 shards hold.
        (
            "twice as many shards",
            |all| {
                (60..70).for_each(|n| {
                    let audio = all[0].audio.clone();
                    all.push(utterance(&format!("more-{n}"), audio, "more of it", n));
                })
            },
            10,
        ),
    ];
    for (what, change, cost) in changes {
        let mut changed = original.clone();
        change(&mut changed);
        let (fresh, updated) = (root.path().join(format!("{what} fresh")), root.path().join(what));
        prepared(&fresh, &changed);
        prepared(&updated, &original);
        let report = prepared(&updated, &changed);
        assert_same(&updated, &snapshot(&fresh), what);
        assert_eq!(report.computed, cost, "{what}");
        // And back again.
        prepared(&updated, &original);
        let back = root.path().join(format!("{what} back"));
        prepared(&back, &original);
        assert_same(&updated, &snapshot(&back), what);
    }
}

#[test]
fn one_more_utterance_rewrites_one_shard() {
    let root = scratch();
    let (mut utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    prepared(&dir, &utterances);
    let before = snapshot(&dir);
    utterances.push(utterance("new", utterances[0].audio.clone(), "a new one", 1));
    let report = prepared(&dir, &utterances);
    assert_eq!((report.shards, report.shards_kept), (8, 7));
    for name in snapshot(&dir).keys().filter(|name| !before.contains_key(*name)) {
        assert_eq!(ShardName::parse(name).unwrap().0.shard, shard_of("new", 8), "{name}");
    }
}

#[test]
fn another_recipe_rebuilds_everything() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 30), root.path().join("cache"));
    prepared(&dir, &utterances);
    let other = Synthetic { version: 2, ..Synthetic::new() };
    let report = verify(&dir, Some((&utterances, &other)), 1, &Silent).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].kind, FindingKind::Recipe);
    assert_eq!(prepare(&dir, &utterances, &other, &options(), &Silent).unwrap().computed, 30);
    let fresh = root.path().join("fresh");
    prepare(&fresh, &utterances, &other, &options(), &Silent).unwrap();
    assert_same(&dir, &snapshot(&fresh), "version 2");
}

#[test]
fn a_changed_audio_file_is_detected_and_only_its_record_is_computed() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    prepared(&dir, &utterances);
    // The same length: only the content differs.
    let mut bytes = std::fs::read(&utterances[4].audio).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&utterances[4].audio, bytes).unwrap();
    std::fs::write(&utterances[33].audio, b"not missing any more").unwrap();
    let findings = verify(&dir, Some((&utterances, &Synthetic::new())), 2, &Silent).unwrap().findings;
    let mut ids: Vec<_> = findings.iter().map(|f| (f.kind, f.id.clone().unwrap())).collect();
    ids.sort();
    let changed = FindingKind::SourceChanged;
    assert_eq!(ids, [(changed, "utt-0004".to_owned()), (changed, "utt-0033".to_owned())]);
    assert_eq!(repair(&dir, &utterances, &Synthetic::new(), &options(), &Silent).unwrap().computed, 2);
    let fresh = root.path().join("fresh");
    prepared(&fresh, &utterances);
    assert_same(&dir, &snapshot(&fresh), "changed source");
}

#[test]
fn a_panic_and_arrays_of_the_wrong_shape_are_problems_of_their_utterance() {
    let root = scratch();
    let (mut utterances, dir) = (corpus(&root.path().join("corpus"), 12), root.path().join("cache"));
    utterances[3].text = "PANIC".into();
    utterances[4].text = "ODD".into();
    let report = prepared(&dir, &utterances);
    assert_eq!((report.records, report.failed), (10, 2));
    let detail = |id: &str| {
        let problem = report.problems.iter().find(|p| p.id.as_deref() == Some(id)).unwrap();
        assert_eq!(problem.kind, ProblemKind::Corrupt);
        problem.detail.clone()
    };
    assert!(detail("utt-0003").contains("planted panic"));
    assert!(detail("utt-0004").contains("bytes of waveform in rows of 2"));
}

#[test]
fn an_id_declared_twice_is_used_once_and_reported() {
    let root = scratch();
    let (mut utterances, dir) = (corpus(&root.path().join("corpus"), 10), root.path().join("cache"));
    let mut again = utterances[2].clone();
    again.text = "something else".into();
    again.origin.line = Some(99);
    utterances.push(again);
    let report = prepared(&dir, &utterances);
    assert_eq!((report.records, report.failed), (10, 1));
    let problem = &report.problems[0];
    assert_eq!((problem.kind, problem.origin.line), (ProblemKind::DuplicateId, Some(99)));
    assert!(problem.detail.contains("metadata.csv:3"), "{}", problem.detail);
}

#[test]
fn a_run_over_its_budget_stops_with_a_report_and_resumes_with_a_larger_budget() {
    let root = scratch();
    let (mut utterances, dir) = (corpus(&root.path().join("corpus"), 80), root.path().join("cache"));
    for utterance in utterances.iter_mut().skip(20) {
        utterance.text = "FAIL".into();
    }
    let strict = PrepareOptions { failure_budget: 0.5, ..options() };
    let error = prepare(&dir, &utterances, &Synthetic::new(), &strict, &Silent).unwrap_err();
    assert_eq!(error.exit(), Exit::BadData);
    let CacheError::OverBudget { failed, total: 80, problems, .. } = error else { panic!("{error}") };
    assert!(failed > 40 && problems.len() > 10);
    assert!(matches!(Store::open(&dir), Err(CacheError::NoStore { .. })));
    let seals = files_ending(&dir, ".seal").len() as u64;
    let lenient = PrepareOptions { failure_budget: 1.0, ..options() };
    let report = prepare(&dir, &utterances, &Synthetic::new(), &lenient, &Silent).unwrap();
    assert_eq!(report.shards_kept, seals, "finished shards are kept");
}

#[test]
fn only_one_process_can_write_a_store() {
    let root = scratch();
    let utterances = corpus(&root.path().join("corpus"), 10);
    let _held = FolderLock::acquire(root.path()).unwrap();
    let error = prepare(root.path(), &utterances, &Synthetic::new(), &options(), &Silent).unwrap_err();
    assert_eq!(error.exit(), Exit::Io);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
}

#[test]
fn after_a_stop_request_the_next_run_finishes() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 50), root.path().join("cache"));
    let stopped = PrepareOptions { stop: Arc::new(AtomicBool::new(true)), ..options() };
    let error = prepare(&dir, &utterances, &Synthetic::new(), &stopped, &Silent).unwrap_err();
    assert_eq!(error.exit(), Exit::Stopped);
    prepared(&dir, &utterances);
    assert!(verify(&dir, None, 1, &Silent).unwrap().is_ok());
}

#[test]
fn a_reader_that_opened_before_a_rebuild_never_sees_other_data() {
    let root = scratch();
    let (mut utterances, dir) = (corpus(&root.path().join("corpus"), 60), root.path().join("cache"));
    prepared(&dir, &utterances);
    let store = Store::open(&dir).unwrap();
    let read = |store: &Store, id: &str| {
        let record = store.find(id).unwrap();
        let mut out = vec![0; store.rows(record, 0) as usize * 4];
        store.read(record, 0, 0, &mut out).map(|_| out)
    };
    // One shard was read before the rebuild, another was not.
    let (mapped, unmapped) = ("utt-0001", "utt-0002");
    assert_ne!(shard_of(mapped, 8), shard_of(unmapped, 8));
    let before = read(&store, mapped).unwrap();
    for n in [1, 2] {
        utterances[n].text = "changed".into();
    }
    prepared(&dir, &utterances);
    assert_eq!(read(&store, mapped).unwrap(), before);
    let Err(RecordError::Bad(problem)) = read(&store, unmapped) else { panic!("other data") };
    assert!(problem.detail.contains("open it again"), "{problem}");
    assert_ne!(read(&Store::open(&dir).unwrap(), mapped).unwrap(), before);
}

#[test]
fn unrelated_files_are_left_alone() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 20), root.path().join("cache"));
    prepared(&dir, &utterances);
    let theirs = ["notes.txt", "shard-of-mine.npy", "x.1-2.tmp", "shard-0000of0004.seal"];
    for name in theirs {
        std::fs::write(dir.join(name), "mine").unwrap();
    }
    prepared(&dir, &utterances[..10]);
    for name in theirs {
        assert!(dir.join(name).exists(), "{name}");
    }
}

#[test]
fn an_empty_corpus_is_an_empty_store() {
    let root = scratch();
    prepared(root.path(), &[]);
    assert!(Store::open(root.path()).unwrap().is_empty());
    assert!(verify(root.path(), Some((&[], &Synthetic::new())), 1, &Silent).unwrap().is_ok());
}
