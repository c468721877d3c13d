//! The folder of a run: begun once, resumed by one, looked at by anybody.

use std::sync::Arc;

use myxtts_run::config::{Flag, Machine, Sources, Tuned};
use myxtts_run::durable::fault::{Effect, FaultPlan, Faulty};
use myxtts_run::folder::{FolderError, RunFolder};
use myxtts_run::lock::LockError;
use myxtts_run::plan::{Plan, TUNABLE};
use serde_json::json;

fn plan(set: &[&str]) -> Plan {
    let machine = Machine { cores: 64, memory_bytes: None, gpus: None };
    let command_line = set.iter().map(|said| Flag::Set((*said).to_owned())).collect();
    Plan::resolve(&Sources { command_line, ..Sources::of(machine) }).unwrap()
}

#[test]
fn a_run_is_begun_left_and_resumed_with_its_own_plan() {
    let runs = tempfile::tempdir().unwrap();
    let mine = plan(&["data.batch_size=7", "data.val_fraction=0.1"]);
    let run = RunFolder::create(runs.path(), Some("mira"), &mine).unwrap();
    run.event_log().unwrap().append("begin", json!({})).unwrap();
    run.log().unwrap().append(b"hello\n").unwrap();
    let mut store = run.checkpoint_store().unwrap();
    store.save(3, &[("weights", b"abc")], json!({}), None).unwrap();
    run.tensorboard(None).unwrap().scalar("loss", 1, 0.5).unwrap();

    // While it trains, others look and nobody else trains.
    let seen = RunFolder::view(runs.path(), "mira").unwrap();
    assert_eq!(seen.events().read().unwrap().len(), 1);
    assert_eq!(seen.checkpoints().latest_valid().unwrap().checkpoint.unwrap().step, 3);
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
fn two_that_begin_at_the_same_time_get_two_runs() {
    let runs = tempfile::tempdir().unwrap();
    let plan = plan(&[]);
    let mut names: Vec<String> = std::thread::scope(|scope| {
        let begin = || RunFolder::create(runs.path(), None, &plan).unwrap().name().to_owned();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8, "{names:?}");
}

#[test]
fn what_is_in_the_way_is_named() {
    let runs = tempfile::tempdir().unwrap();
    let plan = plan(&[]);
    drop(RunFolder::create(runs.path(), Some("a"), &plan).unwrap());
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
    assert!(error.to_string().contains("not a run") && error.to_string().contains("there are a"), "{error}");

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
fn a_beginning_that_was_cut_off_can_be_begun_again() {
    let plan = plan(&[]);
    let counting = Faulty::new(FaultPlan::none());
    let runs = tempfile::tempdir().unwrap();
    RunFolder::create_on(Arc::new(counting.clone()), runs.path(), Some("a"), &plan).unwrap();
    for step in 1..=counting.steps() {
        let runs = tempfile::tempdir().unwrap();
        let disk = Arc::new(Faulty::new(FaultPlan::at(step, Effect::NoSpace)));
        let error = RunFolder::create_on(disk, runs.path(), Some("a"), &plan).err().unwrap();
        assert!(error.to_string().contains("no space is left"), "{error}");
        let again = RunFolder::create(runs.path(), Some("a"), &plan);
        // Only after the very last step is the run begun all the same.
        if step == counting.steps() {
            assert!(matches!(again, Err(FolderError::Exists { .. })));
            RunFolder::resume(runs.path(), "a").unwrap();
        } else {
            again.unwrap();
        }
    }
}

#[test]
fn the_plan_of_an_older_version_loads_and_says_what_is_new() {
    let now = plan(&[]);
    let mut json: serde_json::Value = serde_json::from_str(&now.to_json()).unwrap();
    json["training"].as_object_mut().unwrap().remove("seed");
    json["data"]["mel_window"] = json!("hann");
    json["data"]["batch_size"] = json!(3);
    let old = Plan::from_json(&json.to_string()).unwrap();
    assert_eq!((old.training.seed, old.data.batch_size), (1234, 3));
    assert_eq!(old.notes.len(), 2, "{:?}", old.notes);
    assert!(old.notes.iter().any(|note| note.contains("data.mel_window")));
    assert!(old.notes.iter().any(|note| note.contains("training.seed is new")));
    for text in ["", "[]", "{\"data\": {\"batch_size\": \"x\"}}", "{\"data\": 5}"] {
        assert!(Plan::from_json(text).is_err(), "{text}");
    }
}

#[test]
fn a_run_is_tuned_once_and_what_was_chosen_stands_in_its_folder_with_the_reason() {
    let runs = tempfile::tempdir().unwrap();
    let mut mine = plan(&["data.num_workers=3"]);
    mine.begin_tuning();
    assert!(mine.is_open("data.batch_size") && !mine.is_open("data.num_workers"), "{:?}", mine.tuning);
    let run = RunFolder::create(runs.path(), Some("mira"), &mine).unwrap();
    drop(run);

    // Stopped before it was tuned: what is open still is.
    let chosen = |path, value: &str| Tuned { path, value: value.to_owned(), reason: "a test".to_owned() };
    let rules = [
        chosen("data.batch_size", "24"),
        chosen("data.num_workers", "9"),
        chosen("data.prefetch_buffer_size", "12"),
        chosen("training.gradient_accumulation_steps", "2"),
    ];
    let (run, mut plan) = RunFolder::resume(runs.path(), "mira").unwrap();
    plan.finish_tuning(&rules);
    run.settle(&plan).unwrap();
    drop(run);
    let (_run, mut plan) = RunFolder::resume(runs.path(), "mira").unwrap();
    assert_eq!((plan.data.batch_size, plan.training.gradient_accumulation_steps), (24, 2));
    assert_eq!(plan.data.num_workers, 3, "a person set it");
    let changed = &plan.tuning.as_ref().unwrap().changed;
    let said: Vec<_> =
        changed.iter().map(|c| (c.setting.as_str(), c.instead_of, c.value, c.reason.as_str())).collect();
    let expected =
        [("data.batch_size", 56, 24, "a test"), ("training.gradient_accumulation_steps", 1, 2, "a test")];
    assert_eq!(said, expected, "and what stays as it is is no change");

    // Tuned once: nothing is open any more.
    plan.finish_tuning(&[chosen("data.batch_size", "7")]);
    assert_eq!(plan.data.batch_size, 24);
}

#[test]
fn tuning_leaves_what_is_set_anywhere_and_can_be_switched_off() {
    let open = |set: &[&str]| {
        let mut plan = plan(set);
        plan.begin_tuning();
        plan.tuning.map(|tuning| tuning.open)
    };
    assert_eq!(open(&["data.auto_tune_performance=false"]), None);
    assert_eq!(open(&[]).unwrap().len(), TUNABLE.len());
    for setting in TUNABLE {
        let left = open(&[&format!("{setting}=3")]).unwrap();
        assert!(left.len() == TUNABLE.len() - 1 && !left.iter().any(|open| open == setting), "{left:?}");
    }
    assert!(!open(&["data.frame_budget=9000"]).unwrap().contains(&"data.batch_size".to_owned()));
}

#[test]
fn a_run_that_was_refused_leaves_its_name_free() {
    let runs = tempfile::tempdir().unwrap();
    let path = runs.path().join("mira");
    for _ in 0..2 {
        let run = RunFolder::create(runs.path(), Some("mira"), &plan(&[])).unwrap();
        run.event_log().unwrap().append("strategy", json!({})).unwrap();
        drop(run.tensorboard(None).unwrap());
        std::fs::write(path.join("request.json"), "{}").unwrap();
        assert!(run.take_back().unwrap());
        assert!(!path.exists());
    }
    assert_eq!(std::fs::read_dir(runs.path()).unwrap().count(), 0);
}

/// Each of these keeps a run where it is.
#[test]
fn a_run_with_anything_in_it_is_never_taken_back() {
    type Happens = fn(&RunFolder);
    let happenings: [(&str, Happens); 5] = [
        ("a checkpoint", |run| {
            run.checkpoint_store().unwrap().save(3, &[("weights", b"abc")], json!({}), None).unwrap();
        }),
        ("a stage", |run| run.event_log().unwrap().append("stage", json!({ "stage": "dvae" })).unwrap()),
        ("a model", |run| std::fs::create_dir(run.path().join("model")).unwrap()),
        ("a sample", |run| std::fs::write(run.samples().join("a.wav"), "x").unwrap()),
        ("a note of the user's", |run| std::fs::write(run.path().join("notes.txt"), "x").unwrap()),
    ];
    for (what, happens) in happenings {
        let runs = tempfile::tempdir().unwrap();
        let run = RunFolder::create(runs.path(), Some("a"), &plan(&[])).unwrap();
        happens(&run);
        assert!(!run.take_back().unwrap(), "{what}");
        RunFolder::resume(runs.path(), "a").unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    // Nor one that was there before: resumed, or a folder that somebody made for it.
    let runs = tempfile::tempdir().unwrap();
    drop(RunFolder::create(runs.path(), Some("a"), &plan(&[])).unwrap());
    let (resumed, _) = RunFolder::resume(runs.path(), "a").unwrap();
    assert!(!resumed.take_back().unwrap() && runs.path().join("a/plan.json").is_file());
    std::fs::create_dir(runs.path().join("b")).unwrap();
    let run = RunFolder::create(runs.path(), Some("b"), &plan(&[])).unwrap();
    assert!(!run.take_back().unwrap() && runs.path().join("b").is_dir());
}
