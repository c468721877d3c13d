//! `myxtts tokenizer`: files, reports and exit codes.

use std::path::Path;

use assert_cmd::Command;
use predicates::prelude::*;

fn myxtts() -> Command {
    Command::cargo_bin("myxtts").expect("the program was built")
}

fn xtts_vocabulary() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/goldens/tokenizer/vocab.json")
        .to_string_lossy()
        .into_owned()
}

const PERSIAN: &str =
    "سلام دنیا، حال شما چطور است؟\nگل‌های زیبا در باغ پدربزرگ می‌رویند.\nگفت: پنجره را باز کن و پرده را بکش.\n";

#[test]
fn train_extend_and_show_agree() {
    let folder = tempfile::tempdir().unwrap();
    let (texts, trained, extended) =
        (folder.path().join("fa.txt"), folder.path().join("fa.json"), folder.path().join("xtts-fa.json"));
    std::fs::write(&texts, PERSIAN).unwrap();
    myxtts()
        .args(["tokenizer", "train", "--vocab-size", "90", "--language", "fa", "--data"])
        .args([texts.as_os_str(), "-o".as_ref(), trained.as_os_str()])
        .assert()
        .success()
        .stdout(predicate::str::contains("fa 4").and(predicate::str::contains("0 unknown")));
    myxtts()
        .args(["tokenizer", "extend", &xtts_vocabulary(), "--language", "fa", "--data"])
        .args([texts.as_os_str(), "-o".as_ref(), extended.as_os_str()])
        .assert()
        .success()
        .stdout(predicate::str::contains("added [fa]").and(predicate::str::contains("گ U+06AF")));
    let shown = myxtts()
        .args(["tokenizer", "show", "--json", "--language", "fa", "--text", "۵ گل", "--data"])
        .args([texts.as_os_str(), "--".as_ref(), extended.as_os_str()])
        .assert()
        .success();
    let shown: serde_json::Value = serde_json::from_slice(&shown.get_output().stdout).unwrap();
    assert_eq!(shown["text"]["cleaned"], "پنج گل");
    assert_eq!(shown["text"]["ids"][0], shown["languages"]["fa"]);
    assert_eq!(shown["coverage"]["unknown"], 0);
    assert_eq!(shown["start"], 261);
    // Only the results are left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn mistakes_have_messages_and_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let texts = folder.path().join("t.txt");
    std::fs::write(&texts, "hello\n").unwrap();
    let output = folder.path().join("o.json");
    myxtts()
        .args(["tokenizer", "train", "--data"])
        .args([texts.as_os_str(), "-o".as_ref(), output.as_os_str()])
        .assert()
        .code(2)
        .stderr(predicate::str::contains("--language"));
    myxtts()
        .args(["tokenizer", "show", &xtts_vocabulary(), "--language", "fa", "--text", "سلام"])
        .assert()
        .code(2)
        .stderr(predicate::str::contains("tokenizer extend"));
    myxtts()
        .args(["tokenizer", "show"])
        .arg(&texts)
        .assert()
        .code(65)
        .stderr(predicate::str::contains("is not an XTTS vocabulary"));
    myxtts().args(["tokenizer", "show", "no/such/file"]).assert().code(74);
    assert!(!output.exists());
}
