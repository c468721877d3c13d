//! `myxtts check`: exit codes, output and the files it writes.

use std::path::Path;

use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

/// A 16-bit mono WAV file of a tone that swells and fades, so that it is neither clipped nor silent.
fn wav(path: &Path, seconds: f64, level: f64) {
    let rate = 22_050_u32;
    let samples: Vec<i16> = (0..(seconds * f64::from(rate)) as u32)
        .map(|i| {
            let t = f64::from(i) / f64::from(rate);
            // The pitch depends on the length, so that clips of different lengths differ in content.
            let tone = (t * (200.0 + 10.0 * seconds) * std::f64::consts::TAU).sin();
            let swell = 0.6 + 0.4 * (t * 3.0 * std::f64::consts::TAU).sin();
            ((tone * swell * level).clamp(-1.0, 1.0) * 32767.0) as i16
        })
        .collect();
    let bytes = samples.len() as u32 * 2;
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend([1, 0, 1, 0]);
    file.extend(rate.to_le_bytes());
    file.extend((rate * 2).to_le_bytes());
    file.extend([2, 0, 16, 0]);
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples.iter().flat_map(|s| s.to_le_bytes()));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, file).unwrap();
}

/// An LJSpeech corpus of `good` utterances and these further lines of metadata.
fn corpus(good: usize, more: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut metadata = String::new();
    for i in 0..good {
        wav(&dir.path().join(format!("wavs/u{i:02}.wav")), 1.5 + 0.01 * i as f64, 0.5);
        metadata.push_str(&format!(
            "u{i:02}|A short sentence, the {}.|\n",
            "abcdefghijklmnopqrstuvwxyz".split_at(i % 26).0
        ));
    }
    metadata.push_str(more);
    std::fs::write(dir.path().join("metadata.csv"), metadata).unwrap();
    dir
}

fn check(dir: &TempDir, args: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("myxtts").unwrap();
    command.arg("check").arg(dir.path()).args(args).assert()
}

fn json(dir: &TempDir, args: &[&str]) -> Value {
    let assert = check(dir, &[&["--json"], args].concat());
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

#[test]
fn a_good_corpus_exits_with_0() {
    let dir = corpus(4, "");
    check(&dir, &[])
        .code(0)
        .stdout(predicate::str::contains("metadata.csv with 3 columns, 4 of 4 ids found under wavs/"))
        .stdout(predicate::str::contains("no problems"))
        .stdout(predicate::str::contains("ready: 4 utterances"));
    check(&dir, &["--quiet"])
        .code(0)
        .stderr("")
        .stdout(predicate::str::starts_with("0 of 4 items cannot be used"));
}

#[test]
fn exceeding_the_failure_budget_exits_with_65() {
    let dir = corpus(9, "gone|This one has no sound.|\n");
    check(&dir, &[])
        .code(65)
        .stdout(predicate::str::contains("missing: 1 error(s)"))
        .stdout(predicate::str::contains("metadata.csv:10"))
        .stdout(predicate::str::contains("1 of 10 items cannot be used: 10.0 %, budget 5.0 %"));
    check(&dir, &["--failure-budget", "0.1"]).code(0);
}

#[test]
fn wrong_usage_exits_with_2() {
    let dir = corpus(1, "");
    check(&dir, &["--format", "ljspech"]).code(2).stderr(predicate::str::contains("common_voice"));
    check(&dir, &["--failure-budget", "5"]).code(2).stderr(predicate::str::contains("a number from 0 to 1"));
    check(&dir, &["--min-seconds", "NaN"]).code(2);
    check(&dir, &["--tokenizer", "/nonexistent/vocab.json"]).code(2);
    let mut nowhere = Command::cargo_bin("myxtts").unwrap();
    nowhere
        .args(["check", "/nonexistent/corpus"])
        .assert()
        .code(2)
        .stderr(predicate::str::contains("does not exist"));
    // A check writes nothing, not even a demo corpus.
    let empty = tempfile::tempdir().unwrap();
    let mut nothing = Command::cargo_bin("myxtts").unwrap();
    nothing.current_dir(empty.path()).arg("check").assert().code(2);
    nothing.assert().stderr(predicate::str::contains("give a corpus folder; `myxtts demo-corpus demo`"));
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn an_unknown_layout_is_refused_with_what_was_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("holiday.jpg"), b"").unwrap();
    check(&dir, &[])
        .code(65)
        .stderr(predicate::str::contains("looked for").and(predicate::str::contains("vctk:")));
}

#[test]
fn write_errors_exit_with_74_and_invalid_outputs_with_2() {
    let dir = corpus(2, "");
    check(&dir, &["--json=/dev/full"]).code(74).stderr(predicate::str::contains("writing"));
    check(&dir, &["--json=/nonexistent/report.json"])
        .code(2)
        .stderr(predicate::str::contains("the folder /nonexistent does not exist"));
}

/// Every problem that real files can have, with the kind it must be reported as.
#[test]
fn bad_files_are_named_with_their_problem() {
    let dir = corpus(2, "");
    let at = |name: &str| dir.path().join(format!("wavs/{name}.wav"));
    let mut metadata = std::fs::read_to_string(dir.path().join("metadata.csv")).unwrap();
    let mut line = |id: &str, text: &str| metadata.push_str(&format!("{id}|{text}|\n"));
    line("missing", "There is nothing here at all.");
    line("garbage", "This is no sound at all.");
    std::fs::write(at("garbage"), b"hello, this is no sound file").unwrap();
    line("truncated", "Only half of it is there.");
    wav(&at("truncated"), 2.1, 0.5);
    let whole = std::fs::read(at("truncated")).unwrap();
    std::fs::write(at("truncated"), &whole[..whole.len() / 2]).unwrap();
    line("clipped", "Far too loud for the converter.");
    wav(&at("clipped"), 2.2, 8.0);
    line("silent", "Nothing is to be heard.");
    wav(&at("silent"), 2.3, 0.0);
    line("short", "Ha.");
    wav(&at("short"), 0.2, 0.5);
    line("long", "This goes on and on for quite a while, until nobody can remember how it began.");
    wav(&at("long"), 14.0, 0.5);
    line("empty", "");
    wav(&at("empty"), 2.4, 0.5);
    line("much", &"Nobody can say all of this in so little time. ".repeat(5));
    wav(&at("much"), 2.5, 0.5);
    line("little", "Oh, my.");
    wav(&at("little"), 9.0, 0.5);
    line("copy", "The same sound again.");
    std::fs::copy(at("u00"), at("copy")).unwrap();
    line("u01", "An id that was there before.");
    metadata.push_str("no bar in this line\n");
    std::fs::write(dir.path().join("metadata.csv"), metadata).unwrap();

    let report = json(&dir, &["--limit", "0"]);
    let kinds_of = |id: &str| -> Vec<&str> {
        let problems = report["problems"].as_array().unwrap().iter();
        problems.filter(|p| p["id"] == id).map(|p| p["kind"].as_str().unwrap()).collect()
    };
    for (id, kind) in [
        ("missing", "missing"),
        ("garbage", "unreadable"),
        ("truncated", "truncated"),
        ("clipped", "clipped"),
        ("silent", "silent"),
        ("short", "too_short"),
        ("long", "too_long"),
        ("empty", "empty_text"),
        ("much", "text_too_long_for_audio"),
        ("little", "text_too_short_for_audio"),
        ("u01", "duplicate_id"),
    ] {
        assert_eq!(kinds_of(id), [kind], "{id}: {report:#}");
    }
    let copies = [kinds_of("copy"), kinds_of("u00")].concat();
    assert_eq!(copies, ["duplicate_audio"]);
    assert_eq!(report["kinds"]["malformed_line"]["errors"], 1);
    assert_eq!(report["verdict"]["items"], 15);
    assert_eq!(report["verdict"]["failed"], 11);
}

#[test]
fn the_report_is_the_same_twice_and_with_one_thread() {
    let dir = corpus(12, "gone|No sound.|\nbad line\n");
    let run = |threads: &str| {
        let mut command = Command::cargo_bin("myxtts").unwrap();
        command.env("RAYON_NUM_THREADS", threads).arg("check").arg(dir.path()).args(["--json"]);
        command.output().unwrap().stdout
    };
    let one = run("1");
    assert!(one.len() > 500);
    assert_eq!(run("4"), one);
    assert_eq!(run("4"), one);
}

#[test]
fn problems_are_written_one_per_line() {
    let dir = corpus(3, "gone|No sound.|\nbad line\n");
    let file = dir.path().join("problems.jsonl");
    check(
        &dir,
        &["--report", file.to_str().unwrap(), &format!("--json={}", dir.path().join("r.json").display())],
    )
    .code(65);
    let lines: Vec<Value> =
        std::fs::read_to_string(file).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let whole: Value = serde_json::from_slice(&std::fs::read(dir.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(Value::Array(lines), whole["problems"]);
    assert_eq!(whole["problems"].as_array().unwrap().len(), 2);
    assert_eq!(whole["schema_version"], 1);
}
