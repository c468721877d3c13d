//! The message for every kind of configuration error.

use std::ffi::OsString;
use std::path::Path;

use myxtts_run::config::{ConfigError, Flag, HostResources, Sources, parse_yaml};
use myxtts_run::plan::Plan;

fn message(yaml: &str) -> String {
    bytes_message(yaml.as_bytes())
}

fn bytes_message(bytes: &[u8]) -> String {
    parse_yaml(Path::new("a.yaml"), bytes).expect_err("an error was expected").to_string()
}

fn sources() -> Sources {
    Sources::for_host(HostResources { cores: 64, memory_bytes: None })
}

fn set(text: &str) -> String {
    let sources = Sources { command_line: vec![Flag::Set(text.to_owned())], ..sources() };
    Plan::resolve(&sources).expect_err("an error was expected").to_string()
}

fn variable(name: &str, value: &str) -> Result<Plan, String> {
    let environment = vec![(OsString::from(name), OsString::from(value))];
    Plan::resolve(&Sources { environment, ..sources() }).map_err(|error| error.to_string())
}

#[test]
fn duplicated_keys_are_rejected() {
    assert_eq!(
        message("data:\n  batch_size: 48\n  num_workers: 8\n  batch_size: 56\n"),
        "a.yaml:4: data.batch_size is set twice, first on line 2; remove one of them"
    );
    // The same setting under its older name, and a section written twice.
    assert_eq!(
        message("data:\n  native_loading: true\n  use_tf_native_loading: true\n"),
        "a.yaml:3: data.native_loading is set twice, first on line 2; remove one of them"
    );
    assert_eq!(
        message("data:\n  shuffle: true\ntraining:\ndata:\n  buckets: 4\n"),
        "a.yaml:4: data is set twice, first on line 1; remove one of them"
    );
}

#[test]
fn batch_size_in_training_points_to_data() {
    assert_eq!(
        message("training:\n  batch_size: 32\n"),
        "a.yaml:2: training.batch_size is not a setting; use data.batch_size"
    );
    assert_eq!(
        set("training.batch_size=32"),
        "--set training.batch_size: training.batch_size is not a setting; use data.batch_size"
    );
}

#[test]
fn unknown_names_suggest_the_most_similar_one() {
    assert_eq!(
        message("data:\n  batch_sise: 8\n"),
        "a.yaml:2: unknown setting data.batch_sise; did you mean data.batch_size?"
    );
    assert_eq!(
        message("data:\n  moon_phase: 8\n"),
        "a.yaml:2: unknown setting data.moon_phase; `myxtts config keys` lists all settings"
    );
    assert_eq!(
        message("traning:\n  seed: 8\n"),
        "a.yaml:1: unknown section traning; the sections are data, model and training; did you mean training?"
    );
    assert_eq!(
        message("\nbatch_size: 8\n"),
        "a.yaml:2: batch_size is not a setting; use batch_size inside the section data"
    );
    assert_eq!(
        message("data.batch_size: 8\n"),
        "a.yaml:1: data.batch_size is not a setting; use batch_size inside the section data"
    );
}

#[test]
fn wrong_types_name_the_accepted_values() {
    assert_eq!(
        message("data:\n  batch_size: many\n"),
        "a.yaml:2: data.batch_size must be an integer from 1 to 4096 (default 56), found many"
    );
    assert_eq!(
        message("data:\n  batch_size: \"56\"\n"),
        "a.yaml:2: data.batch_size must be an integer from 1 to 4096 (default 56), found the text \"56\"; \
         did you mean 56 without quotes?"
    );
    assert_eq!(
        message("data:\n  batch_size: [1, 2]\n"),
        "a.yaml:2: data.batch_size must be an integer from 1 to 4096 (default 56), found a list"
    );
    assert_eq!(
        message("data:\n  batch_size:\n"),
        "a.yaml:2: data.batch_size must be an integer from 1 to 4096 (default 56), found nothing"
    );
    assert_eq!(
        message("training:\n  multi_gpu: 2\n"),
        "a.yaml:2: training.multi_gpu must be true or false (default false), found 2"
    );
    assert_eq!(
        message("data:\n  preprocessing_mode: precompte\n"),
        "a.yaml:2: data.preprocessing_mode must be one of precompute, runtime, auto (default auto), \
         found precompte; did you mean precompute?"
    );
    assert_eq!(
        message("data:\n  cache_columns: [tokens, mel]\n"),
        "a.yaml:2: data.cache_columns must be a list of words from tokens, dvae_mel, conditioning_mel, \
         speaker_mel, waveform (default tokens, dvae_mel, conditioning_mel), found mel"
    );
}

#[test]
fn values_out_of_range_name_the_range() {
    assert_eq!(
        message("data:\n  batch_size: 0\n"),
        "a.yaml:2: data.batch_size must be an integer from 1 to 4096 (default 56), found 0"
    );
    assert_eq!(
        message("data:\n  val_fraction: 0.9\n"),
        "a.yaml:2: data.val_fraction must be a number from 0 to 0.5 (default 0.05), found 0.9"
    );
    assert_eq!(
        message("training:\n  visible_gpus: \"0,1,0\"\n"),
        "a.yaml:2: training.visible_gpus must be distinct GPU indices such as \"0,1\", or null, \
         found 0 twice"
    );
    assert_eq!(
        set("data.min_seconds=20"),
        "--set data.min_seconds: data.min_seconds = 20 s is not below the maximum clip length of 11.61 s \
         (data.max_seconds, data.max_mel_frames): no clip can satisfy both"
    );
    assert_eq!(
        set("data.frame_budget=500"),
        "--set data.frame_budget: data.frame_budget = 500 is less than data.max_mel_frames = 1000: \
         the longest clips do not fit in any batch"
    );
}

#[test]
fn all_errors_are_reported_together() {
    assert_eq!(
        message("data:\n  batch_sise: 8\n  buckets: 0\n  buckets: 2\nmodel: 5\n"),
        "4 errors in the configuration:\
         \n  a.yaml:2: unknown setting data.batch_sise; did you mean data.batch_size?\
         \n  a.yaml:3: data.buckets must be an integer from 1 to 64 (default 8), found 0\
         \n  a.yaml:4: data.buckets is set twice, first on line 3; remove one of them\
         \n  a.yaml:5: section model must consist of `name: value` lines, found 5"
    );
}

#[test]
fn long_lists_of_errors_are_shortened() {
    let text = message(&"x: 1\n".repeat(2000));
    assert!(text.starts_with("2000 errors") && text.ends_with("and 1950 more"), "{text}");
    assert_eq!(text.lines().count(), 52);
}

#[test]
fn files_that_are_not_configurations_are_rejected() {
    assert_eq!(message("- data\n"), "a.yaml:1: the file must consist of `name: value` lines, found a list");
    assert_eq!(message("hello\n"), "a.yaml:1: the file must consist of `name: value` lines, found hello");
    assert_eq!(bytes_message(b"data:\n  speaker: \xff\n"), "a.yaml:2: not UTF-8 text; write it as UTF-8");
    assert_eq!(
        bytes_message(&vec![b'#'; 2 << 20]),
        "a.yaml:1: larger than 1024 KiB; this is not a configuration file"
    );
    assert_eq!(message("data:\n  batch_size: [1,\n"), "a.yaml:2: not valid YAML: unclosed bracket '['");
    assert_eq!(
        message("data:\n\tbatch_size: 1\n"),
        "a.yaml:2: not valid YAML: tabs disallowed within this context (block indentation)"
    );
    assert_eq!(
        message("data:\n---\ndata:\n"),
        "a.yaml:2: a second document begins here; use one document per file"
    );
    for empty in
        ["", "\n", "# nothing\n", "---\n", "data:\n", "data:\nmodel: ~\n", "\u{feff}data: {}\n", "{}"]
    {
        assert_eq!(parse_yaml(Path::new("a.yaml"), empty.as_bytes()).unwrap(), [], "{empty:?}");
    }
}

#[test]
fn malicious_yaml_is_rejected() {
    let deep = format!("data:\n  speaker: {}\n", "[".repeat(100_000));
    assert!(message(&deep).starts_with("a.yaml:2: "));
    assert_eq!(
        message(&format!("data:\n  speaker: {}x{}\n", "[".repeat(20), "]".repeat(20))),
        "a.yaml:2: nested more than 16 levels deep; settings have two levels: section and name"
    );
    // Ten levels of ten aliases each would be 10^10 nodes.
    let mut bomb = "a0: &a0 [x, x]\n".to_owned();
    for level in 1..11 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert_eq!(
        message(&bomb),
        "a.yaml:2: an alias can repeat a single value only, not a list or a section; write it out"
    );
    let many = format!("data:\n  cache_columns: [{}]\n", "x, ".repeat(20_000));
    assert_eq!(message(&many), "a.yaml:2: more than 10000 values; this is not a configuration file");
    assert_eq!(
        message("data: !!python/object {}\n"),
        "a.yaml:1: YAML tags (!…) are not supported; write the plain value"
    );
    assert_eq!(
        message("data:\n  <<: {batch_size: 1}\n"),
        "a.yaml:2: merge keys (<<) are not supported; write the settings out"
    );
    assert_eq!(message("[a]: 1\n"), "a.yaml:1: expected a name, found a list or a mapping");
    // Control sequences must not reach the terminal, and messages stay short.
    let shown = message(&format!("data:\n  batch_size: \"\\e[2J{}\"\n", "x".repeat(1000)));
    assert!(!shown.contains('\u{1b}') && shown.len() < 300, "{shown:?}");
}

#[test]
fn a_value_may_be_repeated_by_an_alias() {
    let settings = parse_yaml(Path::new("a"), b"data:\n  buckets: &n 4\n  num_workers: *n\n").unwrap();
    assert_eq!(settings[0].value, settings[1].value);
}

#[test]
fn environment_variables_are_validated() {
    assert_eq!(variable("MYXTTS_DATA__BATCH_SIZE", "32").unwrap().data.batch_size, 32);
    assert!(!variable("MYXTTS_DATA__USE_TF_NATIVE_LOADING", "off").unwrap().data.native_loading);
    assert_eq!(
        variable("MYXTTS_DATA__BATCH_SISE", "32").unwrap_err(),
        "MYXTTS_DATA__BATCH_SISE: unknown setting data.batch_sise; did you mean data.batch_size?"
    );
    assert_eq!(
        variable("MYXTTS_DATA__BATCH_SIZE", "x").unwrap_err(),
        "MYXTTS_DATA__BATCH_SIZE: data.batch_size must be an integer from 1 to 4096 (default 56), found x"
    );
    assert_eq!(
        variable("MYXTTS_DATA_BATCH_SIZE", "32").unwrap_err(),
        "MYXTTS_DATA_BATCH_SIZE: MYXTTS_DATA_BATCH_SIZE is not a setting; use MYXTTS_DATA__BATCH_SIZE"
    );
    assert_eq!(variable("MYXTTS_GOLDENS", "somewhere").unwrap().data.batch_size, 56, "not a setting");
}

#[test]
fn one_setting_in_two_variables_is_an_error() {
    let environment = ["MYXTTS_DATA__USE_TF_NATIVE_LOADING", "MYXTTS_DATA__NATIVE_LOADING"];
    let environment = environment.map(|name| (OsString::from(name), OsString::from("true"))).to_vec();
    let error = Plan::resolve(&Sources { environment, ..sources() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "MYXTTS_DATA__USE_TF_NATIVE_LOADING: sets data.native_loading, which MYXTTS_DATA__NATIVE_LOADING also sets; \
         unset one of them"
    );
}

#[test]
fn command_line_settings_are_validated() {
    assert_eq!(
        set("data.batch_size"),
        "--set: expected KEY=VALUE such as data.batch_size=32, found data.batch_size"
    );
    assert_eq!(set("batch_size=3"), "--set batch_size: batch_size is not a setting; use data.batch_size");
    assert_eq!(set("data=3"), "--set data: data is not a setting; use data.NAME");
    assert_eq!(
        set("dat.seed=3"),
        "--set dat.seed: unknown section dat; the sections are data, model and training; did you mean data?"
    );
    let flags = ["data.batch_size=1", "data.batch_size=2"].map(|text| Flag::Set(text.to_owned())).to_vec();
    let plan = Plan::resolve(&Sources { command_line: flags, ..sources() }).unwrap();
    assert_eq!(plan.data.batch_size, 2, "the later one wins");
}

#[test]
fn errors_of_all_sources_are_collected_but_a_missing_file_is_reported_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, "data: {buckets: 0}\n").unwrap();
    let bad = Sources {
        file: Some(file),
        environment: vec![("MYXTTS_MODEL__PRESET".into(), "huge".into())],
        command_line: vec![Flag::Set("training.seed=-1".to_owned())],
        ..sources()
    };
    match Plan::resolve(&bad).unwrap_err() {
        ConfigError::Mistakes(mistakes) => assert_eq!(mistakes.len(), 3),
        other => panic!("{other}"),
    }
    let missing = Sources { file: Some(folder.path().join("b.yaml")), ..sources() };
    let error = Plan::resolve(&missing).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    assert!(error.to_string().starts_with("cannot read the configuration file "), "{error}");
}
