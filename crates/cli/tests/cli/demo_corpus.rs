//! `myxtts demo-corpus`: its report, the next step, and refused arguments.

use assert_cmd::Command;
use predicates::str::contains;

fn demo_corpus() -> Command {
    let mut command = Command::cargo_bin("myxtts").expect("cargo built the program for this test");
    command.arg("demo-corpus");
    command
}

#[test]
fn the_report_describes_the_corpus_and_names_the_next_command() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("a corpus");
    demo_corpus()
        .arg(&corpus)
        .args(["--utterances", "4", "--speakers", "2", "--languages", "fa"])
        .assert()
        .code(0)
        .stdout(contains("4 utterances"))
        .stdout(contains("speakers mina, dara, languages fa"))
        .stdout(contains(format!("myxtts check '{}'", corpus.display())));
    let metadata = std::fs::read_to_string(corpus.join("metadata.csv")).unwrap();
    assert_eq!(metadata.lines().count(), 4);
    assert!(metadata.lines().all(|line| line.starts_with("fa_")));
}

#[test]
fn a_folder_with_other_files_needs_force() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    demo_corpus().arg(dir.path()).args(["--utterances", "2"]).assert().code(2).stderr(contains("--force"));
    demo_corpus().arg(dir.path()).args(["--utterances", "2", "--force"]).assert().code(0);
    assert_eq!(std::fs::read_to_string(dir.path().join("notes.txt")).unwrap(), "mine");
}

#[test]
fn wrong_arguments_exit_with_2_and_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, reason) in [
        (["--languages", "de"], "`en` and `fa`"),
        (["--speakers", "1001"], "1 to 1000"),
        (["--utterances", "0"], "at least 1"),
    ] {
        demo_corpus().arg(dir.path()).args(arguments).assert().code(2).stderr(contains(reason));
    }
}

#[test]
fn a_folder_that_cannot_be_created_exits_with_74() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    demo_corpus().arg(file.join("corpus")).assert().code(74).stderr(contains("creating"));
}
