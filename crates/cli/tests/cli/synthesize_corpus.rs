//! `myxtts synthesize-corpus`: many voices, texts of a file among generated ones, and messages.

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

fn synthesize_corpus() -> Command {
    let mut command = Command::cargo_bin("myxtts").expect("cargo built the program for this test");
    command.arg("synthesize-corpus");
    command
}

#[test]
fn texts_of_files_are_spoken_and_unusable_lines_named() {
    let dir = tempfile::tempdir().unwrap();
    let (corpus, texts) = (dir.path().join("corpus"), dir.path().join("texts.txt"));
    std::fs::write(&texts, "An unheard-of text.\nдень\n").unwrap();
    synthesize_corpus()
        .arg(&corpus)
        .args(["--utterances", "4", "--speakers", "4", "--texts-share", "1", "--texts"])
        .arg(&texts)
        .assert()
        .code(0)
        .stderr(contains("texts.txt:2 is left out"))
        .stdout(contains("4 utterances").and(contains("4 speakers, languages en")));
    let metadata = std::fs::read_to_string(corpus.join("metadata.csv")).unwrap();
    assert_eq!(metadata.lines().filter(|line| line.contains("|An unheard-of text.|")).count(), 4);
    assert!(metadata.contains("en_voice-0004_00004|"));
}

#[test]
fn wrong_arguments_exit_with_2_and_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let texts = dir.path().join("texts.txt");
    std::fs::write(&texts, "день\n").unwrap();
    let texts = texts.to_str().unwrap();
    for (arguments, reason) in [
        (vec!["--speakers", "1001"], "1 to 1000"),
        (vec!["--texts-share", "0.5"], "--texts"),
        (vec!["--texts", texts], "no line can be spoken in en"),
        (vec!["--texts", texts, "--languages", "en,de"], "`en` and `fa`"),
    ] {
        let corpus = dir.path().join("corpus");
        synthesize_corpus().arg(corpus).args(arguments).assert().code(2).stderr(contains(reason));
    }
    synthesize_corpus()
        .arg(dir.path().join("corpus"))
        .args(["--texts", "nowhere.txt"])
        .assert()
        .code(74)
        .stderr(contains("nowhere.txt"));
}
