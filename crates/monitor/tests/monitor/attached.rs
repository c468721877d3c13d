//! What a run says of itself, while it is being written.

use std::fs;
use std::io::Write;
use std::path::Path;

use myxtts_monitor::{Attached, Run};
use myxtts_run::folder::FolderError;

fn run_folder(runs: &Path, name: &str) -> std::path::PathBuf {
    let folder = runs.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plan.json"), "{}").unwrap();
    folder
}

#[test]
fn a_torn_last_line_is_read_when_it_is_whole() {
    let runs = tempfile::tempdir().unwrap();
    let folder = run_folder(runs.path(), "voice");
    let mut attached = Attached::open(runs.path(), "voice").unwrap();
    assert_eq!(attached.read(), Run::default());
    let path = folder.join("events.jsonl");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    let mut write = |text: &str| file.write_all(text.as_bytes()).unwrap();

    write(
        "{\"time\":10.0,\"kind\":\"stage\",\"stage\":\"gpt\",\"from\":100,\"steps\":5000,\"described\":[]}\n",
    );
    let begun = attached.read();
    assert_eq!((begun.stage.as_deref(), begun.step, begun.steps), (Some("gpt"), Some(100), Some(5000)));

    write(
        "{\"time\":11.0,\"kind\":\"step\",\"stage\":\"gpt\",\"step\":110,\"clips_per_second\":80.5,\"busy\":0.97,\"wait\":0.01}\n",
    );
    write("{\"time\":12.0,\"kind\":\"step\",\"stage\":\"gpt\",\"step\":120,\"clips_per_se");
    let torn = attached.read();
    let figures = (torn.step, torn.clips_per_second, torn.busy, torn.wait, torn.told);
    assert_eq!(figures, (Some(110), Some(80.5), Some(0.97), Some(0.01), Some(11.0)));
    // The processor has no busy share, and nothing is known of its process.
    write("cond\":81.0,\"busy\":null,\"wait\":0.02}\nno event\n");
    let whole = attached.read();
    assert_eq!(
        (whole.step, whole.clips_per_second, whole.busy, whole.pid),
        (Some(120), Some(81.0), None, None)
    );
    assert_eq!((torn.steps_per_second, whole.steps_per_second), (None, Some(10.0)));
    assert!(whole.is_live(13.0) && !whole.is_live(1000.0));

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
    let found = Attached::open(Path::new("elsewhere"), folder.to_str().unwrap()).unwrap();
    assert_eq!(found.path(), folder);
    let missing = Attached::open(runs.path(), "voice").unwrap_err().to_string();
    assert!(missing.contains("there are other"), "{missing}");
    let gone = Attached::open(runs.path(), runs.path().join("gone").to_str().unwrap());
    assert!(matches!(gone, Err(FolderError::NotARun { .. })), "{gone:?}");
}

#[test]
fn a_number_in_the_lock_counts_only_for_a_process_of_ours() {
    let runs = tempfile::tempdir().unwrap();
    let folder = run_folder(runs.path(), "voice");
    let mut attached = Attached::open(runs.path(), "voice").unwrap();
    // This test is a program called `monitor-...`: alive, and not ours.
    for text in [std::process::id().to_string(), "4294967295".into(), "-1".into(), "x".repeat(1 << 16)] {
        fs::write(folder.join("write.lock"), &text).unwrap();
        assert_eq!(attached.read().pid, None, "{}", &text[..text.len().min(20)]);
    }
    assert_eq!(attached.read().ended, None);
    // Left cleanly, and taken up again.
    fs::write(folder.join("write.lock"), "").unwrap();
    assert_eq!(attached.read().ended.as_deref(), Some("nobody trains it now"));
    fs::write(folder.join("write.lock"), "1").unwrap();
    assert_eq!(attached.read().ended, None);
}
