//! Settings of older files, and settings that are said again when a run goes on.

use std::ffi::OsString;

use myxtts_run::config::{CHANGEABLE, Flag, GPT_ONLY, GPU_ONLY, Key, Machine, REMOVED, Sources};
use myxtts_run::plan::{Changed, Plan};

fn machine() -> Machine {
    Machine { cores: 64, memory_bytes: Some(256 << 30), gpus: None }
}

fn plan(set: &[&str]) -> Plan {
    let command_line = set.iter().map(|text| Flag::Set((*text).to_owned())).collect();
    Plan::resolve(&Sources { command_line, ..Sources::of(machine()) }).unwrap()
}

/// What comes of it when a run that began with one set of settings goes on with another.
fn changed(begun: &[&str], now: &[&str], settled: &dyn Fn(&str) -> Option<String>) -> (Plan, Changed) {
    // As it is read from the run's folder: without origins.
    let mut stored = Plan::from_json(&plan(begun).to_json()).unwrap();
    let changed = stored.change(&plan(now), settled);
    (stored, changed)
}

#[test]
fn a_setting_that_is_no_more_loads_from_every_source_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.yaml");
    for name in ["fused_kernels", "enable_xla_compilation"] {
        std::fs::write(&file, format!("training:\n  {name}: true\n  seed: 7\n")).unwrap();
        let plan = Plan::resolve(&Sources { file: Some(file.clone()), ..Sources::of(machine()) }).unwrap();
        assert_eq!(plan.training.seed, 7);
        let [note] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
        assert!(
            note.contains("old.yaml:2") && note.contains(&format!("training.{name} no longer")),
            "{note}"
        );
    }
    assert!(plan(&["training.fused_kernels=false"]).notes[0].contains("no longer means anything"));
    let variable = (OsString::from("MYXTTS_TRAINING__FUSED_KERNELS"), OsString::from("1"));
    let plan = Plan::resolve(&Sources { environment: vec![variable], ..Sources::of(machine()) }).unwrap();
    assert_eq!(plan.notes.len(), 1);
}

#[test]
fn lists_of_settings_name_settings_that_there_are() {
    let gpt = GPT_ONLY.iter().map(|(path, _)| path);
    for path in CHANGEABLE.iter().chain(GPU_ONLY).chain(gpt) {
        assert!(Key::find(path).is_some_and(|key| key.path == *path), "{path}");
    }
    for removed in REMOVED {
        assert!(Key::find(removed.path).is_none(), "{} is still in the table", removed.path);
    }
}

#[test]
fn what_may_change_is_taken_over_when_a_run_goes_on() {
    let now = [
        "training.gpt_steps=900",
        "training.learning_rate=0.001",
        "training.checkpoint_every=7",
        "training.seed=1234",
    ];
    let (stored, changed) = changed(&["training.gpt_steps=700", "data.batch_size=4"], &now, &|_| None);
    assert_eq!(changed.refused, [""; 0]);
    assert_eq!(
        changed.taken,
        [
            "training.gpt_steps: 700 -> 900",
            "training.learning_rate: null -> 0.001",
            "training.checkpoint_every: 500 -> 7"
        ],
        "a seed that is said again as it was is no change"
    );
    let training = stored.training;
    assert_eq!((training.gpt_steps, training.learning_rate), (Some(900), Some(0.001)));
    assert_eq!((training.checkpoint_every, stored.data.batch_size), (7, 4));
}

#[test]
fn what_may_not_change_is_refused_by_name_and_then_nothing_is_taken() {
    let now = ["training.gpt_steps=900", "data.batch_size=8", "model.preset=tiny", "training.seed=5"];
    let (stored, changed) = changed(&["data.batch_size=4"], &now, &|_| None);
    assert_eq!(changed.refused.len(), 3);
    for (line, said) in changed.refused.iter().zip([
        "data.batch_size: 4 -> 8 (--set data.batch_size)",
        "model.preset: \"normal\" -> \"tiny\"",
        "training.seed: 1234 -> 5",
    ]) {
        assert!(line.contains(said), "{line}");
    }
    assert_eq!(stored.training.gpt_steps, None);
    let over = |path: &str| (path == "training.dvae_steps").then(|| "it is over".to_owned());
    let (_, changed) = self::changed(&[], &["training.dvae_steps=3"], &over);
    assert!(changed.refused[0].ends_with("it is over"), "{changed:?}");
}

#[test]
fn a_batch_that_is_not_chosen_yet_can_still_be_named() {
    let mut begun = plan(&[]);
    begun.begin_tuning();
    let mut stored = Plan::from_json(&begun.to_json()).unwrap();
    assert!(stored.is_open("data.batch_size"));
    assert_eq!(stored.change(&plan(&["data.batch_size=8"]), &|_| None).refused, [""; 0]);
    assert_eq!((stored.data.batch_size, stored.is_open("data.batch_size")), (8, false));
}
