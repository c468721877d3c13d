//! Reading the events of a run while they are being written.

use std::fs;
use std::io::Write;
use std::path::Path;

use myxtts_monitor::{AttachedRun, RunSample};
use myxtts_run::folder::FolderError;

fn run_folder(runs: &Path, name: &str) -> std::path::PathBuf {
    let folder = runs.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plan.json"), "{}").unwrap();
    folder
}

#[test]
fn an_incomplete_last_line_is_read_when_it_is_complete() {
    let runs = tempfile::tempdir().unwrap();
    let folder = run_folder(runs.path(), "voice");
    let mut attached = AttachedRun::open(runs.path(), "voice").unwrap();
    assert_eq!(attached.read(), RunSample::default());
    let path = folder.join("events.jsonl");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    let mut write = |text: &str| file.write_all(text.as_bytes()).unwrap();

    write(
        "{\"time\":10.0,\"kind\":\"stage\",\"stage\":\"gpt\",\"from\":100,\"steps\":5000,\"described\":[]}\n",
    );
    let started = attached.read();
    assert_eq!((started.stage.as_deref(), started.step, started.steps), (Some("gpt"), Some(100), Some(5000)));

    write(
        "{\"time\":11.0,\"kind\":\"step\",\"stage\":\"gpt\",\"step\":110,\"clips_per_second\":80.5,\"busy\":0.97,\"wait\":0.01}\n",
    );
    write("{\"time\":12.0,\"kind\":\"step\",\"stage\":\"gpt\",\"step\":120,\"clips_per_se");
    let incomplete = attached.read();
    let values = (
        incomplete.step,
        incomplete.clips_per_second,
        incomplete.on_device,
        incomplete.wait,
        incomplete.last_event,
    );
    assert_eq!(values, (Some(110), Some(80.5), Some(0.97), Some(0.01), Some(11.0)));
    // A run on the CPU reports no busy fraction, and its process is not known.
    write("cond\":81.0,\"busy\":null,\"wait\":0.02}\nnot an event\n");
    let complete = attached.read();
    assert_eq!(
        (complete.step, complete.clips_per_second, complete.on_device, complete.pid),
        (Some(120), Some(81.0), None, None)
    );
    assert_eq!((incomplete.steps_per_second, complete.steps_per_second), (None, Some(10.0)));
    assert!(complete.is_live(13.0) && !complete.is_live(1000.0));

    write("{\"time\":13.0,\"kind\":\"stage_end\",\"stage\":\"gpt\",\"ended\":\"Finished\"}\n");
    let ended = attached.read();
    assert_eq!(ended.ended.as_deref(), Some("Finished"));
    assert!(!ended.is_live(13.0));
    write("{\"time\":14.0,\"kind\":\"stage\",\"stage\":\"decoder\",\"from\":0,\"steps\":9}\n");
    let next = attached.read();
    assert_eq!((next.stage.as_deref(), next.clips_per_second, next.ended), (Some("decoder"), None, None));
}

#[test]
fn a_run_is_found_by_name_or_folder() {
    let runs = tempfile::tempdir().unwrap();
    let folder = run_folder(runs.path(), "a voice of mine");
    run_folder(runs.path(), "other");
    let found = AttachedRun::open(Path::new("elsewhere"), folder.to_str().unwrap()).unwrap();
    assert_eq!(found.path(), folder);
    let missing = AttachedRun::open(runs.path(), "voice").unwrap_err().to_string();
    assert!(missing.contains("existing runs: other"), "{missing}");
    let missing = AttachedRun::open(runs.path(), runs.path().join("gone").to_str().unwrap());
    assert!(matches!(missing, Err(FolderError::NotARun { .. })), "{missing:?}");
}

#[test]
fn the_process_id_in_the_lock_counts_only_for_this_program() {
    let runs = tempfile::tempdir().unwrap();
    let folder = run_folder(runs.path(), "voice");
    let mut attached = AttachedRun::open(runs.path(), "voice").unwrap();
    // This test is a running program called `monitor-...`, not `myxtts`.
    for text in [std::process::id().to_string(), "4294967295".into(), "-1".into(), "x".repeat(1 << 16)] {
        fs::write(folder.join("write.lock"), &text).unwrap();
        assert_eq!(attached.read().pid, None, "{}", &text[..text.len().min(20)]);
    }
    assert_eq!(attached.read().ended, None);
    // Stopped cleanly, then resumed.
    fs::write(folder.join("write.lock"), "").unwrap();
    assert_eq!(attached.read().ended.as_deref(), Some("no process is training it"));
    fs::write(folder.join("write.lock"), "1").unwrap();
    assert_eq!(attached.read().ended, None);
}
