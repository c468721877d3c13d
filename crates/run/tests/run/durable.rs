//! Atomicity of `durable`: a path contains the old bytes or the new ones, whatever fails.

use std::path::Path;

use myxtts_run::durable::fault::{DiskOperation, Effect, FaultPlan, FaultyDisk};
use myxtts_run::durable::{self, Writer};
use proptest::prelude::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn writing_leaves_no_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    durable::write(&path, b"one").unwrap();
    durable::write(&path, b"two").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"two");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn a_dropped_writer_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&durable::OsDisk, &folder.path().join("a")).unwrap();
    writer.write(b"half").unwrap();
    assert_eq!(names(folder.path()).len(), 1);
    drop(writer);
    let mut writer = Writer::create(&durable::OsDisk, &folder.path().join("a")).unwrap();
    writer.write(b"whole").unwrap();
    drop(writer.finish().unwrap());
    assert!(names(folder.path()).is_empty());
}

#[test]
fn the_old_bytes_stay_after_any_failed_operation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let (old, new) = (vec![1u8; 1000], vec![2u8; 200_000]);
    let counting = FaultyDisk::new(FaultPlan::none());
    durable::write_with(&counting, &path, &new).unwrap();
    let operations = counting.operations();
    assert_eq!(operations, 5, "create, write, sync, rename, sync of the folder");

    for effect in [Effect::NoSpace, Effect::Broken] {
        for n in 1..=operations {
            durable::write(&path, &old).unwrap();
            let error =
                durable::write_with(&FaultyDisk::new(FaultPlan::at(n, effect)), &path, &new).unwrap_err();
            let found = std::fs::read(&path).unwrap();
            // Only the very last operation comes after the rename.
            assert_eq!(found, if n == operations { &new[..] } else { &old[..] }, "operation {n}");
            assert_eq!(names(folder.path()), ["a"], "operation {n}");
            let full = error.source.raw_os_error() == Some(28);
            assert_eq!(full, effect == Effect::NoSpace);
            assert_eq!(error.to_string().contains("no space left"), full, "{error}");
        }
    }
}

#[test]
fn unfinished_files_are_recognised_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::create(&durable::OsDisk, &folder.path().join("index.bin")).unwrap();
    std::mem::forget(writer);
    assert!(durable::is_unfinished(&names(folder.path())[0]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn short_writes_lose_nothing(sizes in proptest::collection::vec(0usize..150_000, 1..6), every in 1u64..4) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let short = FaultPlan { only: Some(DiskOperation::Write), ..FaultPlan::every(every, Effect::Short) };
        let disk = FaultyDisk::new(short);
        let mut writer = Writer::create(&disk, &path).unwrap();
        let mut wanted = vec![0u8; 64];
        writer.write(&wanted).unwrap();
        for (i, &size) in sizes.iter().enumerate() {
            let part: Vec<u8> = (0..size).map(|j| (i * 31 + j) as u8).collect();
            writer.write(&part).unwrap();
            wanted.extend(part);
        }
        writer.replace_start(b"header").unwrap();
        wanted[..6].copy_from_slice(b"header");
        writer.finish().unwrap().publish_durably(&path).unwrap();
        prop_assert!(std::fs::read(&path).unwrap() == wanted);
    }
}
