//! The event log: complete lines, whatever happens to the process or the disk.

use std::io::Write;
use std::sync::Arc;

use myxtts_run::durable::fault::{DiskOperation, Effect, FaultPlan, FaultyDisk};
use myxtts_run::events::{Event, EventLog, EventReader};
use serde::Serialize;
use serde_json::json;

#[derive(Serialize)]
struct Progress {
    step: u64,
    loss: f64,
}

#[test]
fn events_are_read_back_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let mut reader = EventReader::new(&path);
    assert_eq!(reader.read().unwrap(), []);
    let mut log = EventLog::open(&path).unwrap();
    log.append("step", Progress { step: u64::MAX, loss: 0.1 + 0.2 }).unwrap();
    log.append_durably("stop", json!({ "why": "a \"signal\"\nand é" })).unwrap();
    let events = reader.read().unwrap();
    assert_eq!(events[0].kind, "step");
    assert_eq!(events[0].fields["step"], u64::MAX);
    assert_eq!(events[0].fields["loss"].as_f64().unwrap().to_bits(), (0.1f64 + 0.2).to_bits());
    assert_eq!(events[1].fields["why"], "a \"signal\"\nand é");
    assert!(events[0].time > 1.6e9 && events[0].time <= events[1].time);

    log.append("step", Progress { step: 1, loss: f64::NAN }).unwrap();
    let events = reader.read().unwrap();
    assert_eq!((events.len(), &events[0].fields["loss"]), (1, &json!(null)));
    assert_eq!((reader.read().unwrap().len(), reader.damaged()), (0, 0));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|line| line.starts_with("{\"time\":")), "{text}");
    let again: Event = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(again.fields["step"], u64::MAX);
}

#[test]
fn an_incomplete_line_is_removed_on_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let mut log = EventLog::open(&path).unwrap();
    for step in 0..3 {
        log.append("step", Progress { step, loss: 1.5 }).unwrap();
    }
    let complete = std::fs::read(&path).unwrap();
    let ends: Vec<usize> = (1..=complete.len()).filter(|&end| complete[end - 1] == b'\n').collect();
    for length in 0..=complete.len() {
        std::fs::write(&path, &complete[..length]).unwrap();
        let lines = ends.iter().filter(|&&end| end <= length).count();
        // A reader sees the complete lines and waits for the rest.
        assert_eq!(EventReader::new(&path).read().unwrap().len(), lines, "{length} bytes");
        let mut log = EventLog::open(&path).unwrap();
        assert_eq!(
            log.removed_bytes() as usize,
            length - ends[..lines].last().unwrap_or(&0),
            "{length} bytes"
        );
        log.append("resumed", json!({})).unwrap();
        let mut reader = EventReader::new(&path);
        let kinds: Vec<String> = reader.read().unwrap().into_iter().map(|event| event.kind).collect();
        assert_eq!((kinds.len(), kinds.last().unwrap().as_str()), (lines + 1, "resumed"));
        assert_eq!(reader.damaged(), 0);
    }
}

#[test]
fn a_very_long_incomplete_line_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    EventLog::open(&path).unwrap().append("a", json!({})).unwrap();
    let before = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&before[..], &vec![0; 300_000]].concat()).unwrap();
    assert_eq!(EventLog::open(&path).unwrap().removed_bytes(), 300_000);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_damaged_line_is_counted_and_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"{\"time\":1,\"kind\":\"a\"}\n\0\0\xff\n{\"kind\":\"no time\"}\n").unwrap();
    file.write_all(&vec![b'x'; 40 << 20]).unwrap();
    file.write_all(b"\n{\"time\":2,\"kind\":\"b\"}\n").unwrap();
    let mut reader = EventReader::new(&path);
    let kinds: Vec<String> = reader.read().unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!((kinds, reader.damaged()), (vec!["a".to_owned(), "b".to_owned()], 3));
}

#[test]
fn a_failed_write_leaves_no_partial_line() {
    for effect in [Effect::NoSpace, Effect::Broken, Effect::Short] {
        for every in 2..5 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("events.jsonl");
            let plan = FaultPlan { only: Some(DiskOperation::Write), ..FaultPlan::every(every, effect) };
            let mut log = EventLog::open_on(Arc::new(FaultyDisk::new(plan)), &path).unwrap();
            let written: Vec<u64> =
                (0..50).filter(|&step| log.append("step", json!({ "step": step })).is_ok()).collect();
            assert!(effect == Effect::Short || (20..50).contains(&written.len()), "{written:?}");
            let mut reader = EventReader::new(&path);
            let read: Vec<u64> =
                reader.read().unwrap().iter().map(|event| event.fields["step"].as_u64().unwrap()).collect();
            assert_eq!((read, reader.damaged()), (written, 0), "{effect:?} every {every}");
        }
    }
}
