//! The commands of the chapter "Getting started", in an empty home folder.

use std::path::Path;

use assert_cmd::Command;
use predicates::str::contains;

fn myxtts(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("myxtts").unwrap();
    command.current_dir(folder).env("HOME", folder.join("home")).args(arguments);
    command
}

#[test]
fn the_steps_of_the_first_chapter_work() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |arguments: &[&str]| myxtts(folder, arguments).assert().success();
    run(&["demo-corpus", "demo", "--utterances", "24"]).stdout(contains("next: myxtts check demo"));
    run(&["check", "demo"]).stdout(contains("no problems"));
    run(&["prepare", "demo"]).stdout(contains("24 of 24 utterances"));
    run(&["verify", "demo"]).stdout(contains("all records are intact"));
    run(&["inspect", "batch", "demo", "--step", "100", "--batch-size", "4", "--png", "batch.png"])
        .stdout(contains("step 100"));
    assert!(std::fs::read(folder.join("batch.png")).unwrap().starts_with(b"\x89PNG"));
    run(&["inspect", "mel", "demo/wavs/en_mina_00001.wav", "-o", "mel.npy", "--png", "mel.png"])
        .stdout(contains("80 channels"));
    run(&["tokenizer", "show", "demo/.myxtts-cache/tokenizer.json", "--data", "demo"])
        .stdout(contains("0 unknown"));
    let vocabulary = ["--tokenizer", "demo/.myxtts-cache/tokenizer.json"];
    run(&[&["inspect", "tokens", "--language", "fa", "سلام ۲ دوست"], &vocabulary[..]].concat())
        .stdout(contains("سلام دو دوست"));
    run(&["config", "init"]);
    run(&["config", "show", "--config", "myxtts.yaml"]);
}

#[test]
fn user_errors_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let code = |arguments: &[&str], code: i32| myxtts(folder, arguments).assert().code(code);
    code(&["prepare", "nowhere"], 2);
    code(&["inspect", "mel", "nothing.wav"], 74);
    std::fs::write(folder.join("text.wav"), "no sound").unwrap();
    code(&["inspect", "mel", "text.wav"], 65).stderr(contains("text.wav"));
    code(&["inspect", "tokens", "--language", "xx yy", "hello"], 2);
    code(&["prepare", "--batch-size", "none"], 2).stderr(contains("data.batch_size"));
    code(&["tokenizer", "show", "nothing.json"], 74);
}
