//! `prepare`, `verify` and `inspect cache`: exit codes, messages and JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// An LJSpeech corpus of `count` real WAV files: one second each of a tone of its own.
pub fn corpus(folder: &Path, count: usize) -> PathBuf {
    let wavs = folder.join("wavs");
    std::fs::create_dir_all(&wavs).unwrap();
    let mut metadata = String::new();
    for n in 0..count {
        metadata += &format!("LJ{n:03}|Sentence number {n}.|Sentence number {n}.\n");
        std::fs::write(wavs.join(format!("LJ{n:03}.wav")), wav(200.0 + 10.0 * n as f64)).unwrap();
    }
    std::fs::write(folder.join("metadata.csv"), metadata).unwrap();
    folder.to_owned()
}

fn wav(hertz: f64) -> Vec<u8> {
    const RATE: u32 = 22_050;
    let phase = |i: u32| std::f64::consts::TAU * hertz * f64::from(i) / f64::from(RATE);
    let samples: Vec<u8> = (0..RATE).flat_map(|i| ((phase(i).sin() * 8000.0) as i16).to_le_bytes()).collect();
    let mut out = Vec::from(*b"RIFF");
    out.extend((36 + samples.len() as u32).to_le_bytes());
    out.extend(b"WAVEfmt ");
    for field in [16u32, 1 | 1 << 16, RATE, RATE * 2, 2 | 16 << 16] {
        out.extend(field.to_le_bytes());
    }
    out.extend(b"data");
    out.extend((samples.len() as u32).to_le_bytes());
    out.extend(samples);
    out
}

pub fn myxtts(arguments: &[&str], corpus: &Path) -> Command {
    let mut command = Command::cargo_bin("myxtts").unwrap();
    command.args(arguments).arg(corpus).env_remove("MYXTTS_FAIL_WRITE_EVERY");
    command
}

pub fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&command.arg("--json").assert().success().get_output().stdout).unwrap()
}

pub fn snapshot(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    std::fs::read_dir(dir).unwrap().map(read).collect()
}

#[test]
fn verify_finds_damage_and_fix_repairs_it() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 12);
    let cache = corpus.join(".myxtts-cache");
    let report = &json(&mut myxtts(&["prepare", "--num-workers", "2"], &corpus))["training"];
    assert_eq!((&report["records"], &report["failed"]), (&12.into(), &0.into()));
    let wanted = snapshot(&cache);
    myxtts(&["verify"], &corpus)
        .assert()
        .success()
        .stdout(contains("12 records").and(contains("all records are intact")));

    let array = wanted.keys().find(|name| name.ends_with(".tokens.npy")).unwrap();
    let mut bytes = wanted[array].clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(cache.join(array), bytes).unwrap();
    myxtts(&["verify"], &corpus).assert().code(65).stderr(contains(array.as_str()).and(contains("LJ")));
    // The cache alone can be checked too, but not repaired.
    myxtts(&["verify"], &cache).assert().code(65);
    myxtts(&["verify", "--fix"], &cache).assert().code(2);
    let fixed = json(&mut myxtts(&["verify", "--fix"], &corpus));
    assert_eq!((&fixed["sound"], &fixed["fixed"]["computed"]), (&false.into(), &1.into()));
    assert!(snapshot(&cache) == wanted, "the repaired cache differs");
    myxtts(&["verify"], &corpus).assert().success();
}

#[test]
fn a_changed_sentence_is_stale_until_it_is_prepared_again() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 6);
    myxtts(&["prepare"], &corpus).assert().success();
    let metadata = corpus.join("metadata.csv");
    let text = std::fs::read_to_string(&metadata).unwrap().replace("number 4", "number four");
    std::fs::write(&metadata, text).unwrap();
    myxtts(&["verify"], &corpus).assert().code(65).stderr(contains("LJ004"));
    let report = &json(&mut myxtts(&["prepare"], &corpus))["training"];
    assert_eq!((&report["computed"], &report["copied"]), (&1.into(), &5.into()));
    myxtts(&["verify"], &corpus).assert().success();
}

#[test]
fn a_full_disk_exits_with_74_and_leaves_no_damage() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 4);
    let cache = root.path().join("cache");
    let on_cache = ["--cache-dir", cache.to_str().unwrap()];
    for every in ["1", "2", "5", "9", "14"] {
        myxtts(&["prepare"], &corpus)
            .args(on_cache)
            .env("MYXTTS_FAIL_WRITE_EVERY", every)
            .assert()
            .code(74)
            .stderr(contains("no space left").and(contains("No space left on device")));
    }
    myxtts(&["prepare"], &corpus).args(on_cache).assert().success();
    let undisturbed = root.path().join("undisturbed");
    myxtts(&["prepare"], &corpus).args(["--cache-dir", undisturbed.to_str().unwrap()]).assert().success();
    assert!(snapshot(&cache) == snapshot(&undisturbed));
}

#[test]
fn exceeding_the_failure_budget_exits_with_65_and_names_the_files() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 10);
    for n in [2, 5] {
        std::fs::write(corpus.join(format!("wavs/LJ{n:03}.wav")), "not a sound").unwrap();
    }
    myxtts(&["prepare"], &corpus).assert().code(65).stderr(contains("LJ002").or(contains("LJ005")));
    let report = &json(&mut myxtts(&["prepare", "--failure-budget", "0.3"], &corpus))["training"];
    assert_eq!((&report["records"], &report["failed"]), (&8.into(), &2.into()));
    // Known failures do not count as damage.
    myxtts(&["verify"], &corpus).assert().success().stdout(contains("2 known failures"));
}

#[test]
fn a_second_writer_is_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 2);
    let cache = corpus.join(".myxtts-cache");
    std::fs::create_dir(&cache).unwrap();
    let _held = myxtts_run::lock::FolderLock::acquire(&cache).unwrap();
    myxtts(&["prepare"], &corpus)
        .assert()
        .code(74)
        .stderr(contains(format!("is in use by process {}", std::process::id())));
}

#[test]
fn inspect_shows_the_cache_and_one_utterance() {
    let root = tempfile::tempdir().unwrap();
    let corpus = corpus(root.path(), 5);
    myxtts(&["inspect", "cache"], &corpus).assert().code(65).stderr(contains("myxtts prepare"));
    let columns = "data.cache_columns=tokens, dvae_mel, waveform";
    myxtts(&["prepare", "--set", columns], &corpus).assert().success();
    let overview = json(&mut myxtts(&["inspect", "cache"], &corpus));
    assert_eq!(overview["records"], 5);
    assert!(overview["columns"].as_array().unwrap().iter().any(|column| column["name"] == "tokens"));

    let record = json(myxtts(&["inspect", "cache"], &corpus).arg("LJ003"));
    assert_eq!(record["id"], "LJ003");
    let arrays = record["arrays"].as_array().unwrap();
    let waveform = arrays.iter().find(|array| array["column"] == "waveform").unwrap();
    let file = waveform["file"].as_str().unwrap();
    assert!(waveform["max"].as_f64().unwrap() > 5000.0 && Path::new(file).is_file());
    let numpy = waveform["numpy"].as_str().unwrap();
    assert!(numpy.starts_with("np.load(\"/") && numpy.contains("mmap_mode=\"r\")["), "{numpy}");
    myxtts(&["inspect", "cache"], &corpus).arg("LJ003").assert().success().stdout(contains(numpy));
    myxtts(&["inspect", "cache"], &corpus).arg("nobody").assert().code(65).stderr(contains("nobody"));
}
