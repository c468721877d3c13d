//! The run folder: created once, resumed by one process, readable by all.

use std::sync::Arc;

use myxtts_run::checkpoint::Checkpoints;
use myxtts_run::config::{Flag, HostResources, Sources, Tuned};
use myxtts_run::durable::fault::{Effect, FaultPlan, FaultyDisk};
use myxtts_run::folder::{FolderError, RunFolder};
use myxtts_run::lock::LockError;
use myxtts_run::plan::{Plan, TUNABLE};
use serde_json::json;

fn plan(set: &[&str]) -> Plan {
    let host = HostResources { cores: 64, memory_bytes: None };
    let command_line = set.iter().map(|text| Flag::Set((*text).to_owned())).collect();
    Plan::resolve(&Sources { command_line, ..Sources::for_host(host) }).unwrap()
}

#[test]
fn a_run_is_created_and_resumed_with_its_own_plan() {
    let runs = tempfile::tempdir().unwrap();
    let mine = plan(&["data.batch_size=7", "data.val_fraction=0.1"]);
    let run = RunFolder::create(runs.path(), Some("mira"), &mine).unwrap();
    run.event_log().unwrap().append("begin", json!({})).unwrap();
    run.log().unwrap().append(b"hello\n").unwrap();
    let mut store = run.checkpoint_store().unwrap();
    store.save(3, &[("weights", b"abc")], json!({}), None).unwrap();
    run.tensorboard(None).unwrap().scalar("loss", 1, 0.5).unwrap();

    // While it trains, other processes can read it but not train it.
    let seen = RunFolder::view(runs.path(), "mira").unwrap();
    assert_eq!(seen.events().read().unwrap().len(), 1);
    let checkpoints = Checkpoints::at(&seen.path().join("checkpoints"));
    assert_eq!(checkpoints.latest_valid().unwrap().checkpoint.unwrap().step, 3);
    let error = RunFolder::resume(runs.path(), "mira").err().unwrap();
    assert!(matches!(&error, FolderError::Lock(LockError::Held { .. })), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    drop((run, store));

    let (run, plan) = RunFolder::resume(runs.path(), "mira").unwrap();
    assert_eq!((plan.data.batch_size, plan.data.val_fraction), (7, 0.1));
    assert_eq!((plan.notes.len(), plan.differences(&mine)), (0, vec![]));
    let other = self::plan(&["data.batch_size=8"]);
    assert_eq!(plan.differences(&other), ["data.val_fraction: 0.1 -> 0.05", "data.batch_size: 7 -> 8"]);
    run.event_log().unwrap().append("resumed", json!({})).unwrap();
    assert_eq!(run.events().read().unwrap().len(), 2);
    assert!(run.samples().is_dir() && run.name() == "mira");
}

#[test]
fn runs_without_a_name_are_numbered() {
    let runs = tempfile::tempdir().unwrap();
    let root = runs.path().join("deep/runs");
    assert_eq!(RunFolder::list(&root).unwrap(), [""; 0]);
    let first = RunFolder::create(&root, None, &plan(&[])).unwrap();
    std::fs::create_dir(root.join("run-7x")).unwrap();
    std::fs::create_dir(root.join("run-041")).unwrap();
    let second = RunFolder::create(&root, None, &plan(&[])).unwrap();
    assert_eq!((first.name(), second.name()), ("run-001", "run-042"));
    assert_eq!(RunFolder::list(&root).unwrap(), ["run-001", "run-042"]);
}

#[test]
fn runs_created_at_the_same_time_get_different_names() {
    let runs = tempfile::tempdir().unwrap();
    let plan = plan(&[]);
    let mut names: Vec<String> = std::thread::scope(|scope| {
        let create = || RunFolder::create(runs.path(), None, &plan).unwrap().name().to_owned();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8, "{names:?}");
}

#[test]
fn errors_name_the_conflicting_file_or_run() {
    let runs = tempfile::tempdir().unwrap();
    let plan = plan(&[]);
    let error = RunFolder::resume(runs.path(), "a").err().unwrap().to_string();
    assert!(error.contains("no run a in") && error.contains("--runs-dir names another folder"), "{error}");
    drop(RunFolder::create(runs.path(), Some("a"), &plan).unwrap());
    let error = RunFolder::resume(runs.path(), "z").err().unwrap().to_string();
    assert!(error.contains("no run z in") && error.ends_with("existing runs: a"), "{error}");
    let create = |name: &str| RunFolder::create(runs.path(), Some(name), &plan).err().unwrap();
    let error = create("a");
    assert!(
        matches!(&error, FolderError::Exists { .. }) && error.to_string().contains("--resume a"),
        "{error}"
    );

    std::fs::create_dir(runs.path().join("b")).unwrap();
    std::fs::write(runs.path().join("b/thesis.tex"), "x").unwrap();
    let error = create("b");
    assert!(matches!(&error, FolderError::Foreign { found, .. } if found == "thesis.tex"), "{error}");
    let error = RunFolder::resume(runs.path(), "b").err().unwrap();
    assert!(
        error.to_string().contains("not a run") && error.to_string().contains("existing runs: a"),
        "{error}"
    );

    std::fs::write(runs.path().join("c"), "a file").unwrap();
    assert!(matches!(create("c"), FolderError::Io { .. }));
    for name in ["", "..", "../x", "a/b", "-x", ".hidden", "ü", "a b", &"x".repeat(101)] {
        assert!(matches!(create(name), FolderError::Name { .. }), "{name}");
        assert!(matches!(RunFolder::view(runs.path(), name), Err(FolderError::Name { .. })), "{name}");
    }
    std::fs::write(runs.path().join("a/plan.json"), "{\"data\": 1}").unwrap();
    let error = RunFolder::resume(runs.path(), "a").err().unwrap();
    assert!(matches!(&error, FolderError::Plan { .. }) && error.to_string().contains("plan.json"), "{error}");
}

#[test]
fn an_interrupted_creation_can_be_repeated() {
    let plan = plan(&[]);
    let counting = FaultyDisk::new(FaultPlan::none());
    let runs = tempfile::tempdir().unwrap();
    RunFolder::create_on(Arc::new(counting.clone()), runs.path(), Some("a"), &plan).unwrap();
    for operation in 1..=counting.operations() {
        let runs = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultyDisk::new(FaultPlan::at(operation, Effect::NoSpace)));
        let error = RunFolder::create_on(disk, runs.path(), Some("a"), &plan).err().unwrap();
        assert!(error.to_string().contains("no space left"), "{error}");
        let again = RunFolder::create(runs.path(), Some("a"), &plan);
        // If only the very last operation fails, the run exists all the same.
        if operation == counting.operations() {
            assert!(matches!(again, Err(FolderError::Exists { .. })));
            RunFolder::resume(runs.path(), "a").unwrap();
        } else {
            again.unwrap();
        }
    }
}

#[test]
fn the_plan_of_an_older_version_loads_with_notes() {
    let now = plan(&[]);
    let mut json: serde_json::Value = serde_json::from_str(&now.to_json()).unwrap();
    json["training"].as_object_mut().unwrap().remove("seed");
    json["data"]["mel_window"] = json!("hann");
    json["data"]["batch_size"] = json!(3);
    let old = Plan::from_json(&json.to_string()).unwrap();
    assert_eq!((old.training.seed, old.data.batch_size), (1234, 3));
    assert_eq!(old.notes.len(), 2, "{:?}", old.notes);
    assert!(old.notes.iter().any(|note| note.contains("data.mel_window")));
    assert!(old.notes.iter().any(|note| note.contains("training.seed did not exist")));
    for text in ["", "[]", "{\"data\": {\"batch_size\": \"x\"}}", "{\"data\": 5}"] {
        assert!(Plan::from_json(text).is_err(), "{text}");
    }
}

#[test]
fn a_run_is_tuned_once_and_its_plan_stores_the_reasons() {
    let runs = tempfile::tempdir().unwrap();
    let mut mine = plan(&["data.num_workers=3"]);
    mine.begin_tuning();
    assert!(mine.is_pending("data.batch_size") && !mine.is_pending("data.num_workers"), "{:?}", mine.tuning);
    let run = RunFolder::create(runs.path(), Some("mira"), &mine).unwrap();
    drop(run);

    // Stopped before it was tuned: the settings are still pending.
    let chosen = |path, value: &str| Tuned { path, value: value.to_owned(), reason: "a test".to_owned() };
    let rules = [
        chosen("data.batch_size", "24"),
        chosen("data.num_workers", "9"),
        chosen("data.prefetch_buffer_size", "12"),
        chosen("training.gradient_accumulation_steps", "2"),
    ];
    let (run, mut plan) = RunFolder::resume(runs.path(), "mira").unwrap();
    plan.finish_tuning(&rules);
    run.replace_plan(&plan).unwrap();
    drop(run);
    let (_run, mut plan) = RunFolder::resume(runs.path(), "mira").unwrap();
    assert_eq!((plan.data.batch_size, plan.training.gradient_accumulation_steps), (24, 2));
    assert_eq!(plan.data.num_workers, 3, "it was set explicitly");
    let changed = &plan.tuning.as_ref().unwrap().changed;
    let stored: Vec<_> =
        changed.iter().map(|c| (c.setting.as_str(), c.instead_of, c.value, c.reason.as_str())).collect();
    let expected =
        [("data.batch_size", 56, 24, "a test"), ("training.gradient_accumulation_steps", 1, 2, "a test")];
    assert_eq!(stored, expected, "an unchanged value is not a change");

    // Tuned once: no setting is pending any more.
    plan.finish_tuning(&[chosen("data.batch_size", "7")]);
    assert_eq!(plan.data.batch_size, 24);
}

#[test]
fn tuning_keeps_explicit_settings_and_can_be_switched_off() {
    let pending = |set: &[&str]| {
        let mut plan = plan(set);
        plan.begin_tuning();
        plan.tuning.map(|tuning| tuning.pending)
    };
    assert_eq!(pending(&["data.auto_tune_performance=false"]), None);
    assert_eq!(pending(&[]).unwrap().len(), TUNABLE.len());
    for setting in TUNABLE {
        let left = pending(&[&format!("{setting}=3")]).unwrap();
        assert!(
            left.len() == TUNABLE.len() - 1 && !left.iter().any(|pending| pending == setting),
            "{left:?}"
        );
    }
    assert!(!pending(&["data.frame_budget=9000"]).unwrap().contains(&"data.batch_size".to_owned()));
}

#[test]
fn rollback_frees_the_name_of_a_refused_run() {
    let runs = tempfile::tempdir().unwrap();
    let path = runs.path().join("mira");
    for _ in 0..2 {
        let run = RunFolder::create(runs.path(), Some("mira"), &plan(&[])).unwrap();
        run.event_log().unwrap().append("strategy", json!({})).unwrap();
        drop(run.tensorboard(None).unwrap());
        std::fs::write(path.join("request.json"), "{}").unwrap();
        assert!(run.rollback().unwrap());
        assert!(!path.exists());
    }
    assert_eq!(std::fs::read_dir(runs.path()).unwrap().count(), 0);
}

#[test]
fn a_run_with_any_content_is_never_rolled_back() {
    type AddContent = fn(&RunFolder);
    let contents: [(&str, AddContent); 5] = [
        ("a checkpoint", |run| {
            run.checkpoint_store().unwrap().save(3, &[("weights", b"abc")], json!({}), None).unwrap();
        }),
        ("a stage", |run| run.event_log().unwrap().append("stage", json!({ "stage": "dvae" })).unwrap()),
        ("a model", |run| std::fs::create_dir(run.path().join("model")).unwrap()),
        ("a sample", |run| std::fs::write(run.samples().join("a.wav"), "x").unwrap()),
        ("a file of the user", |run| std::fs::write(run.path().join("notes.txt"), "x").unwrap()),
    ];
    for (what, add) in contents {
        let runs = tempfile::tempdir().unwrap();
        let run = RunFolder::create(runs.path(), Some("a"), &plan(&[])).unwrap();
        add(&run);
        assert!(!run.rollback().unwrap(), "{what}");
        RunFolder::resume(runs.path(), "a").unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    // Nor is one that existed before: a resumed run, or a folder that was created for it.
    let runs = tempfile::tempdir().unwrap();
    drop(RunFolder::create(runs.path(), Some("a"), &plan(&[])).unwrap());
    let (resumed, _) = RunFolder::resume(runs.path(), "a").unwrap();
    assert!(!resumed.rollback().unwrap() && runs.path().join("a/plan.json").is_file());
    std::fs::create_dir(runs.path().join("b")).unwrap();
    let run = RunFolder::create(runs.path(), Some("b"), &plan(&[])).unwrap();
    assert!(!run.rollback().unwrap() && runs.path().join("b").is_dir());
}

#[test]
fn tables_of_algorithms_are_kept_and_found_again() {
    let runs = tempfile::tempdir().unwrap();
    let run = RunFolder::create(runs.path(), Some("mira"), &plan(&[])).unwrap();
    assert!(run.algorithms().is_empty());
    run.keep_algorithms("gemm-b-2.json", b"two").unwrap();
    run.keep_algorithms("gemm-a-1.json", b"one").unwrap();
    run.keep_algorithms("gemm-b-2.json", b"three").unwrap();
    std::fs::write(run.path().join("gemm-b-2.json.tmp"), "left by a crash").unwrap();
    drop(run);
    let (run, _) = RunFolder::resume(runs.path(), "mira").unwrap();
    assert_eq!(run.algorithms(), [b"one".to_vec(), b"three".to_vec()]);
}
