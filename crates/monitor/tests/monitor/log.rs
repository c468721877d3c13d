//! Samples in a file come back as they were.

use std::fs;
use std::io::Write;

use myxtts_monitor::log::{LogError, columns};
use myxtts_monitor::{Gpu, Host, Limit, Log, Process, Run, Sample};

fn sample(time: f64) -> Sample {
    let gpu = Gpu {
        name: Some("H200, the \"big\" one".to_owned()),
        utilisation: Some(97.0),
        memory_used: Some(12_345_678_901),
        power: Some(612.125),
        limits: Some(vec![Limit::PowerCap, Limit::Thermal]),
        processes: vec![
            Process { pid: 7, name: Some("myxtts".to_owned()), memory: Some(5) },
            Process { pid: 8, name: None, memory: None },
        ],
        ..Gpu::default()
    };
    let run = Run {
        stage: Some("a,\"b\"".to_owned()),
        step: Some(1200),
        clips_per_second: Some(85.5),
        busy: Some(0.975),
        told: Some(time),
        ..Run::default()
    };
    let host = Host { cpu: Some(12.5), memory_used: Some(1 << 33), ..Host::default() };
    Sample { time, host, gpus: vec![gpu, Gpu::default()], run: Some(run) }
}

#[test]
fn json_lines_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    Log::open(&path).unwrap().append(&sample(1.5)).unwrap();
    // What a killed process leaves is cut off by the next.
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\":2,\"ho").unwrap();
    let mut log = Log::open(&path).unwrap();
    log.append(&Sample { time: 2.5, ..Sample::default() }).unwrap();
    // Read while it is still open: every line is there at once.
    let text = fs::read_to_string(&path).unwrap();
    let read: Vec<Sample> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, [sample(1.5), Sample { time: 2.5, ..Sample::default() }]);
}

#[test]
fn a_csv_has_one_header_and_a_cell_for_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.CSV");
    for time in [1.5, 2.5] {
        Log::open(&path).unwrap().append(&sample(time)).unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"3,torn").unwrap();
    }
    drop(Log::open(&path).unwrap());
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let names = columns(&sample(0.0));
    assert_eq!(lines[0], names.join(","));
    // The stage is the only cell with quotes.
    let row = lines[2].replace("\"a,\"\"b\"\"\"", "STAGE");
    let cells: Vec<&str> = row.split(',').collect();
    assert_eq!(cells.len(), names.len(), "{row}");
    let cell = |name: &str| cells[names.iter().position(|each| each == name).unwrap()];
    for (name, value) in [
        ("time", "2.5"),
        ("run_stage", "STAGE"),
        ("run_step", "1200"),
        ("cpu_percent", "12.5"),
        ("memory_bytes", "8589934592"),
        ("run_rate_clips_per_second", "85.5"),
        ("run_busy_percent", "97.5"),
        ("run_wait_percent", ""),
        ("gpu0_utilisation_percent", "97"),
        ("gpu0_memory_bytes", "12345678901"),
        ("gpu0_power_watts", "612.125"),
        ("gpu0_limits", "power-cap thermal"),
        ("gpu0_processes", "7:5 8:"),
        ("gpu1_utilisation_percent", ""),
        ("gpu1_limits", ""),
    ] {
        assert_eq!(cell(name), value, "{name}");
    }
}

#[test]
fn other_columns_are_not_mixed_and_other_endings_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    Log::open(&path).unwrap().append(&sample(1.0)).unwrap();
    let before = fs::read(&path).unwrap();
    let refused = Log::open(&path).unwrap().append(&Sample::default());
    assert!(matches!(refused, Err(LogError::Columns { .. })), "{refused:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    for name in ["log", "log.txt", "log.json"] {
        let path = folder.path().join(name);
        assert!(matches!(Log::open(&path), Err(LogError::Kind { .. })), "{name}");
        assert!(!path.exists(), "{name}");
    }
}
