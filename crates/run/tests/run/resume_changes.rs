//! Removed settings of older files, and settings changed when a run is resumed.

use std::ffi::OsString;

use myxtts_run::config::{
    CHANGEABLE_ON_RESUME, Flag, GPT_ONLY, GPU_ONLY, HostResources, Key, NOT_IN_DECODER, REMOVED_KEYS, Sources,
};
use myxtts_run::plan::{Plan, ResumeChanges};

fn machine() -> HostResources {
    HostResources { cores: 64, memory_bytes: Some(256 << 30) }
}

fn plan(set: &[&str]) -> Plan {
    let command_line = set.iter().map(|text| Flag::Set((*text).to_owned())).collect();
    Plan::resolve(&Sources { command_line, ..Sources::for_host(machine()) }).unwrap()
}

/// Resumes a run that was created with one set of settings with another set.
fn resume(created: &[&str], now: &[&str], fixed: &dyn Fn(&str) -> Option<String>) -> (Plan, ResumeChanges) {
    // Read from the run folder, it has no origins.
    let mut stored = Plan::from_json(&plan(created).to_json()).unwrap();
    let changes = stored.apply_changes(&plan(now), fixed);
    (stored, changes)
}

#[test]
fn removed_settings_load_from_every_source_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.yaml");
    for name in ["fused_kernels", "enable_xla_compilation"] {
        std::fs::write(&file, format!("training:\n  {name}: true\n  seed: 7\n")).unwrap();
        let plan =
            Plan::resolve(&Sources { file: Some(file.clone()), ..Sources::for_host(machine()) }).unwrap();
        assert_eq!(plan.training.seed, 7);
        let [note] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
        assert!(
            note.contains("old.yaml:2") && note.contains(&format!("training.{name} no longer")),
            "{note}"
        );
    }
    assert!(plan(&["training.fused_kernels=false"]).notes[0].contains("no longer has any effect"));
    let variable = (OsString::from("MYXTTS_TRAINING__FUSED_KERNELS"), OsString::from("1"));
    let plan =
        Plan::resolve(&Sources { environment: vec![variable], ..Sources::for_host(machine()) }).unwrap();
    assert_eq!(plan.notes.len(), 1);
}

#[test]
fn lists_of_settings_name_existing_settings() {
    let by_stage = GPT_ONLY.iter().chain(NOT_IN_DECODER).map(|(path, _)| path);
    for path in CHANGEABLE_ON_RESUME.iter().chain(GPU_ONLY).chain(by_stage) {
        assert!(Key::find(path).is_some_and(|key| key.path == *path), "{path}");
    }
    for removed in REMOVED_KEYS {
        assert!(Key::find(removed.path).is_none(), "{} is still in the table", removed.path);
    }
}

#[test]
fn changeable_settings_are_applied_on_resume() {
    let now = [
        "training.gpt_steps=900",
        "training.learning_rate=0.001",
        "training.checkpoint_every=7",
        "training.seed=1234",
    ];
    let (stored, changes) = resume(&["training.gpt_steps=700", "data.batch_size=4"], &now, &|_| None);
    assert_eq!(changes.refused, [""; 0]);
    assert_eq!(
        changes.applied,
        [
            "training.gpt_steps: 700 -> 900",
            "training.learning_rate: null -> 0.001",
            "training.checkpoint_every: 500 -> 7"
        ],
        "an unchanged seed is not a change"
    );
    let training = stored.training;
    assert_eq!((training.gpt_steps, training.learning_rate), (Some(900), Some(0.001)));
    assert_eq!((training.checkpoint_every, stored.data.batch_size), (7, 4));
}

#[test]
fn other_settings_are_refused_and_then_none_is_applied() {
    let now = ["training.gpt_steps=900", "data.batch_size=8", "model.preset=tiny", "training.seed=5"];
    let (stored, changes) = resume(&["data.batch_size=4"], &now, &|_| None);
    assert_eq!(changes.refused.len(), 3);
    for (line, expected) in changes.refused.iter().zip([
        "data.batch_size: 4 -> 8 (--set data.batch_size)",
        "model.preset: \"normal\" -> \"tiny\"",
        "training.seed: 1234 -> 5",
    ]) {
        assert!(line.contains(expected), "{line}");
    }
    assert_eq!(stored.training.gpt_steps, None);
    let over = |path: &str| (path == "training.dvae_steps").then(|| "it is over".to_owned());
    let (_, changes) = resume(&[], &["training.dvae_steps=3"], &over);
    assert!(changes.refused[0].ends_with("it is over"), "{changes:?}");
}

#[test]
fn a_pending_batch_size_can_still_be_set() {
    let mut created = plan(&[]);
    created.begin_tuning();
    let mut stored = Plan::from_json(&created.to_json()).unwrap();
    assert!(stored.is_pending("data.batch_size"));
    assert_eq!(stored.apply_changes(&plan(&["data.batch_size=8"]), &|_| None).refused, [""; 0]);
    assert_eq!((stored.data.batch_size, stored.is_pending("data.batch_size")), (8, false));
}
