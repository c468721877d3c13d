//! `myxtts config`: output, files and exit codes.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

fn myxtts(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MYXTTS_") {
            command.env_remove(name);
        }
    }
    command
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/configs").join(name)
}

#[test]
fn show_prints_values_with_their_origins() {
    let file = fixture("bottleneck_fix.yaml");
    let file = file.to_str().unwrap();
    let shown = myxtts(&["config", "show", "--config", file, "--set", "data.buckets=4", "--seed", "7"])
        .env("MYXTTS_DATA__BATCH_SIZE", "24")
        .assert()
        .success();
    let text = String::from_utf8(shown.get_output().stdout.clone()).unwrap();
    let row = |name: &str| {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("batch_size"), "batch_size 24 MYXTTS_DATA__BATCH_SIZE");
    assert_eq!(row("preprocessing_mode"), format!("preprocessing_mode precompute {file}:2"));
    assert_eq!(row("buckets"), "buckets 4 --set data.buckets");
    assert_eq!(row("seed"), "seed 7 --seed");
    assert_eq!(row("max_mel_frames"), "max_mel_frames 1000 default");
}

#[test]
fn show_reports_capped_values_as_text_and_json() {
    let arguments = ["config", "show", "--num-workers", "1024"];
    myxtts(&arguments)
        .assert()
        .success()
        .stdout(contains("--num-workers, capped from 1024: this machine has"));

    let shown = myxtts(&[&arguments[..], &["--json"]].concat()).assert().success();
    let json: serde_json::Value = serde_json::from_slice(&shown.get_output().stdout).unwrap();
    let values = json["values"].as_array().unwrap();
    let workers = values.iter().find(|value| value["key"] == "data.num_workers").unwrap();
    assert_eq!(workers["capped"]["asked"], 1024);
    assert_eq!(workers["value"], json["plan"]["data"]["num_workers"]);
    assert_eq!(workers["origin"], serde_json::json!({"kind": "command_line", "flag": "--num-workers"}));
    assert_eq!(json["notes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_value_too_long_for_a_column_once_panicked_in_show() {
    let path = "x/".repeat(2000);
    myxtts(&["config", "show", "--train-data", &path]).assert().success().stdout(contains(path.as_str()));
    let text = format!("data.speaker={}", "x".repeat(70_000));
    myxtts(&["config", "show", "--set", &text])
        .assert()
        .code(2)
        .stderr(contains("data.speaker must be text"));
}

#[test]
fn all_mistakes_are_reported_with_exit_2() {
    myxtts(&["config", "show", "--set", "data.batch_sise=1", "--buckets", "0"]).assert().code(2).stderr(
        contains("did you mean data.batch_size?").and(contains("--buckets: data.buckets must be an integer")),
    );
    myxtts(&["config", "show", "--config", "no such file.yaml"])
        .assert()
        .code(2)
        .stderr(contains("cannot read the configuration file no such file.yaml"));
    myxtts(&["config", "show", "--no-such-flag"]).assert().code(2);
}

#[test]
fn init_writes_a_loadable_file_and_overwrites_only_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |arguments: &[&str]| {
        let mut command = myxtts(arguments);
        command.current_dir(folder.path());
        command
    };
    in_folder(&["config", "init"]).assert().success().stderr(contains("wrote myxtts.yaml"));
    let plain = in_folder(&["config", "show"]).output().unwrap();
    let loaded = in_folder(&["config", "show", "--config", "myxtts.yaml"]).output().unwrap();
    assert!(loaded.status.success());
    assert_eq!(plain.stdout, loaded.stdout);

    let file = folder.path().join("myxtts.yaml");
    std::fs::write(&file, "mine").unwrap();
    in_folder(&["config", "init"]).assert().code(2).stderr(contains("--force"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    in_folder(&["config", "init", "--force"]).assert().success();
    assert_ne!(std::fs::read_to_string(&file).unwrap(), "mine");
    in_folder(&["config", "init", "no/such/folder.yaml"]).assert().code(74);
}

#[test]
fn keys_lists_every_setting() {
    myxtts(&["config", "keys"]).assert().success().stdout(
        contains("| `batch_size` | `56` | an integer from 1 to 4096 | `--batch-size` |")
            .and(contains("`native_loading` (also `use_tf_native_loading`)")),
    );
}

/// The settings page of the book ends with the output of `myxtts config keys`.
#[test]
fn the_settings_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/settings.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let marker = "<!-- settings: generated by `myxtts config keys`; do not edit below this line -->\n";
    let (_, table) = page.split_once(marker).expect("docs/src/settings.md has the line before the tables");
    let printed = myxtts(&["config", "keys"]).output().unwrap().stdout;
    assert!(
        table.trim() == String::from_utf8(printed).unwrap().trim(),
        "docs/src/settings.md is outdated; regenerate it with\n  \
         sed -i '/^<!-- settings:/q' docs/src/settings.md && cargo run -p myxtts -- config keys >> docs/src/settings.md"
    );
}
