//! Damage is detected: every bit and every length of index, seals and headers, and any bit of the rest.

use std::path::Path;

use myxtts_data::cache::fingerprint::Hash;
use myxtts_data::cache::index::{self, Index, IndexBuilder, IndexEntry};
use myxtts_data::cache::names::{shard_of, sort_key};
use myxtts_data::cache::seal::{self, StoredColumn};
use myxtts_data::cache::{FindingKind, Store, repair, verify};
use myxtts_data::problem::ProblemKind;
use myxtts_data::record::{RecordError, RecordSource, TOKENS, WAVEFORM};
use myxtts_run::progress::Silent;
use myxtts_run::seed::Seed;
use proptest::prelude::*;

use super::cache_fixture::{
    Synthetic, assert_same, corpus, files_ending, options, prepared, scratch, snapshot,
};

/// Passes a file's bytes with every single bit flipped in turn, truncated to every length, and one byte too long.
fn every_damage(bytes: &[u8], mut seen: impl FnMut(&[u8], &str)) {
    let mut work = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        work[bit / 8] ^= 1 << (bit % 8);
        seen(&work, &format!("bit {bit}"));
        work[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..bytes.len() {
        seen(&bytes[..length], &format!("cut to {length}"));
    }
    work.push(0);
    seen(&work, "one byte more");
}

#[test]
fn every_bit_and_every_length_of_index_and_seal_is_checked() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 14), root.path().join("cache"));
    prepared(&dir, &utterances);
    let index = std::fs::read(dir.join("index.bin")).unwrap();
    index::parse(&index).unwrap();
    every_damage(&index, |bytes, what| assert!(index::parse(bytes).is_err(), "index, {what}"));
    for path in files_ending(&dir, ".seal") {
        let bytes = std::fs::read(path).unwrap();
        seal::parse(&bytes).unwrap();
        every_damage(&bytes, |bytes, what| assert!(seal::parse(bytes).is_err(), "seal, {what}"));
    }
}

#[test]
fn every_bit_of_an_array_header_is_checked_by_verify_and_readers() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 6), root.path().join("cache"));
    prepared(&dir, &utterances);
    let path = &files_ending(&dir, ".small_mel.npy")[0];
    let bytes = std::fs::read(path).unwrap();
    let mut work = bytes.clone();
    for bit in 0..128 * 8 {
        work[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(path, &work).unwrap();
        let findings = verify(&dir, None, 1, &Silent).unwrap().findings;
        assert_eq!(findings.len(), 1, "bit {bit}");
        assert_eq!((findings[0].kind, &findings[0].file), (FindingKind::ArrayFile, path));
        let store = Store::open(&dir).unwrap();
        assert!(store.read(0, 1, 0, &mut [0; 16]).is_err(), "bit {bit}");
        work[bit / 8] ^= 1 << (bit % 8);
    }
    for length in (0..bytes.len()).step_by(5) {
        std::fs::write(path, &bytes[..length]).unwrap();
        assert!(!verify(&dir, None, 1, &Silent).unwrap().is_ok(), "cut to {length}");
        let error = Store::open(&dir).unwrap().read(0, 1, 0, &mut [0; 16]).unwrap_err();
        assert!(matches!(error, RecordError::Bad(p) if p.kind == ProblemKind::DamagedRecord));
    }
}

/// Damages a store in one way and checks that this is found, repaired at a small cost, and equal to a fresh store.
fn damage_is_found_and_repaired(damage: impl Fn(&Path), kind: FindingKind, max_computed: u64) {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 40), root.path().join("cache"));
    prepared(&dir, &utterances);
    let wanted = snapshot(&dir);
    damage(&dir);
    let corpus = Some((&utterances[..], &Synthetic::new() as &dyn myxtts_data::cache::Featurizer));
    let report = verify(&dir, corpus, 2, &Silent).unwrap();
    assert!(report.findings.iter().any(|finding| finding.kind == kind), "{:?}", report.findings);
    let fixed = repair(&dir, &utterances, &Synthetic::new(), &options(), &Silent).unwrap();
    assert!(fixed.computed <= max_computed, "{} computed", fixed.computed);
    assert_same(&dir, &wanted, "repaired");
    assert!(verify(&dir, corpus, 2, &Silent).unwrap().is_ok());
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_in_an_array_recomputes_one_record() {
    damage_is_found_and_repaired(
        |dir| flip(&files_ending(dir, ".waveform.npy")[2], 300),
        FindingKind::Record,
        1,
    );
}

#[test]
fn a_damaged_header_recomputes_no_record() {
    damage_is_found_and_repaired(
        |dir| flip(&files_ending(dir, ".tokens.npy")[1], 20),
        FindingKind::ArrayFile,
        0,
    );
}

#[test]
fn a_missing_or_truncated_array_recomputes_only_its_shard() {
    let lose = |dir: &Path| std::fs::remove_file(&files_ending(dir, ".tokens.npy")[3]).unwrap();
    damage_is_found_and_repaired(lose, FindingKind::ArrayFile, 20);
    let shorten = |dir: &Path| {
        let path = &files_ending(dir, ".waveform.npy")[3];
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    };
    damage_is_found_and_repaired(shorten, FindingKind::ArrayFile, 20);
}

#[test]
fn a_damaged_or_missing_seal_recomputes_only_its_shard() {
    damage_is_found_and_repaired(|dir| flip(&files_ending(dir, ".seal")[0], 99), FindingKind::Seal, 20);
    let lose = |dir: &Path| std::fs::remove_file(&files_ending(dir, ".seal")[5]).unwrap();
    damage_is_found_and_repaired(lose, FindingKind::Seal, 20);
}

#[test]
fn a_damaged_or_missing_index_recomputes_no_record() {
    damage_is_found_and_repaired(|dir| flip(&dir.join("index.bin"), 150), FindingKind::Index, 0);
    let lose = |dir: &Path| std::fs::remove_file(dir.join("index.bin")).unwrap();
    damage_is_found_and_repaired(lose, FindingKind::Index, 0);
}

#[test]
fn an_index_of_other_seals_is_detected() {
    // A valid index, but of a smaller corpus.
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 40), root.path().join("cache"));
    prepared(&dir, &utterances[..36]);
    let old = std::fs::read(dir.join("index.bin")).unwrap();
    prepared(&dir, &utterances);
    std::fs::write(dir.join("index.bin"), old).unwrap();
    let findings = verify(&dir, None, 1, &Silent).unwrap().findings;
    assert!(findings.iter().any(|f| f.kind == FindingKind::Seal), "{findings:?}");
    assert!(findings.iter().any(|f| f.kind == FindingKind::Leftover), "{findings:?}");
}

#[test]
fn leftovers_of_an_interrupted_prepare_are_found_and_removed() {
    let leave = |dir: &Path| {
        std::fs::write(dir.join("shard-0001of0008.tokens.77-3.tmp"), "half").unwrap();
        std::fs::write(dir.join("shard-0001of0008-00000000.tokens.npy"), "whole").unwrap();
    };
    damage_is_found_and_repaired(leave, FindingKind::Leftover, 0);
}

#[test]
fn a_damaged_record_is_bad_data_and_does_not_affect_others() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 40), root.path().join("cache"));
    prepared(&dir, &utterances);
    let location = &Store::open(&dir).unwrap().array_locations(7)[2];
    flip(&location.file, 128 + 2 * location.first_row as usize);
    let store = Store::open(&dir).unwrap();
    let mut out = [0; 8];
    for record in 0..store.len() {
        match store.read(record, 2, 0, &mut out) {
            Ok(rows) => assert!(record != 7 && rows == 4),
            Err(RecordError::Bad(problem)) => {
                assert_eq!((record, problem.kind), (7, ProblemKind::DamagedRecord));
                assert!(problem.detail.contains("verify --fix"), "{problem}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// An index without shards, as built for benchmarks.
fn synthetic_index(records: usize, shards: u32) -> Vec<u8> {
    let columns = vec![StoredColumn::from(&TOKENS), StoredColumn::from(&WAVEFORM)];
    let mut builder = IndexBuilder::new(columns, [7; 32], shards);
    let mut ids: Vec<String> = (0..records).map(|n| format!("utterance {n}")).collect();
    ids.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    let mut ids = ids.iter().peekable();
    for shard in 0..shards {
        builder.shard(&Hash::default(), 0);
        while let Some(id) = ids.next_if(|id| shard_of(id, shards) == shard) {
            let entry = IndexEntry { id, speaker: &id[..11], language: "en", seconds: 2.5 };
            builder.record(entry, [(3, 1), (7, 2)]).unwrap();
        }
    }
    builder.finish().unwrap().to_bytes()
}

#[test]
fn an_index_built_by_hand_finds_its_records() {
    let index = Index::from_bytes(synthetic_index(5000, 16)).unwrap();
    assert_eq!((index.len(), index.shards(), index.total_seconds()), (5000, 16, 12_500.0));
    for n in (0..5000).step_by(61) {
        let id = format!("utterance {n}");
        let record = index.find(&id).unwrap();
        assert_eq!(index.id(record), id.as_bytes());
        let shard = index.shard(index.shard_of_record(record));
        assert!(shard.records.contains(&record));
        assert_eq!(index.first_row(record, 1) as usize, 7 * (record - shard.records.start));
        assert_eq!(index.speakers()[index.speaker(record) as usize], id[..11]);
    }
}

#[test]
fn ten_thousand_random_bits_of_a_large_index_are_checked() {
    let mut bytes = synthetic_index(20_000, 64);
    let seed = Seed::new(2).derive("bits");
    for n in 0..10_000 {
        let bit = seed.below(n, bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(index::parse(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Calls everything a reader may call on an index that was accepted.
fn query_everything(index: &Index) {
    for shard in 0..index.shards() {
        index.shard(shard);
    }
    for record in 0..index.len() {
        let _ = index.find(&String::from_utf8_lossy(index.id(record)));
        index.shard_of_record(record);
        let _ = &index.speakers()[index.speaker(record) as usize];
        let _ = &index.languages()[index.language(record) as usize];
        index.seconds(record);
        for column in 0..index.columns().len() {
            let _ = (index.rows(record, column), index.first_row(record, column), index.crc(record, column));
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = index::parse(&tail);
        let _ = seal::parse(&tail);
        let _ = Index::from_unchecked([&b"MYXTINDX\x01\0\0\0"[..], &tail].concat());
        let _ = seal::parse_content(&[&b"MYXTSEAL\x01\0\0\0"[..], &tail].concat());
    }

    /// Behind the checksums too: a hand-made file may contain anything.
    #[test]
    fn wrong_content_behind_a_valid_checksum_does_not_panic(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = synthetic_index(20, 2);
        for (at, value) in &edits {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        if let Ok(index) = Index::from_unchecked(bytes) {
            query_everything(&index);
        }
    }
}

/// The system sends SIGBUS to a process that reads a mapped file beyond a truncation.
#[test]
fn a_cache_file_truncated_while_mapped_ended_the_program() {
    let root = scratch();
    let (utterances, dir) = (corpus(&root.path().join("corpus"), 12), root.path().join("cache"));
    prepared(&dir, &utterances);
    let store = Store::open(&dir).unwrap();
    let read = |record: usize, column: usize| {
        let mut out = vec![0; store.rows(record, column) as usize * store.columns()[column].row_bytes()];
        store.read(record, column, 0, &mut out).map(|_| out)
    };
    let all =
        || (0..store.len()).flat_map(|record| (0..store.columns().len()).map(move |column| (record, column)));
    let before: Vec<Vec<u8>> = all().map(|(record, column)| read(record, column).unwrap()).collect();
    let files: Vec<_> = files_ending(&dir, ".npy");
    let kept: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    for file in &files {
        std::fs::File::options().write(true).open(file).unwrap().set_len(0).unwrap();
    }
    let mut bad = 0;
    for ((record, column), before) in all().zip(&before) {
        match read(record, column) {
            Ok(bytes) => {
                assert!(
                    bytes.is_empty() && before.is_empty(),
                    "record {record} has bytes beyond the end of its file"
                )
            }
            Err(RecordError::Bad(problem)) => {
                assert_eq!(problem.kind, ProblemKind::DamagedRecord);
                assert_eq!(problem.id, Some(store.id(record)));
                assert!(
                    problem.detail.contains("truncated") && problem.detail.contains(".npy"),
                    "{}",
                    problem.detail
                );
                bad += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(bad > store.len(), "{bad} of {}", store.len());
    // Once restored, it can be opened again.
    files.iter().zip(&kept).for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
    let again = Store::open(&dir).unwrap();
    let mut out = vec![0; again.rows(0, 0) as usize * again.columns()[0].row_bytes()];
    again.read(0, 0, 0, &mut out).unwrap();
    assert_eq!(out, before[0]);
}
