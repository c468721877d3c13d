//! Logged samples are read back unchanged.

use std::fs;
use std::io::Write;

use myxtts_monitor::log::{LogError, columns};
use myxtts_monitor::{ClockLimit, GpuProcess, GpuSample, HostSample, RunSample, Sample, SampleLog};

fn sample(time: f64) -> Sample {
    let gpu = GpuSample {
        name: Some("H200, the \"big\" one".to_owned()),
        utilisation: Some(97.0),
        memory_used: Some(12_345_678_901),
        power: Some(612.125),
        limits: Some(vec![ClockLimit::PowerCap, ClockLimit::Thermal]),
        processes: vec![
            GpuProcess { pid: 7, name: Some("myxtts".to_owned()), memory: Some(5) },
            GpuProcess { pid: 8, name: None, memory: None },
        ],
        ..GpuSample::default()
    };
    let run = RunSample {
        stage: Some("a,\"b\"".to_owned()),
        step: Some(1200),
        clips_per_second: Some(85.5),
        on_device: Some(0.975),
        last_event: Some(time),
        ..RunSample::default()
    };
    let host = HostSample { cpu: Some(12.5), memory_used: Some(1 << 33), ..HostSample::default() };
    Sample { time, host, gpus: vec![gpu, GpuSample::default()], run: Some(run) }
}

#[test]
fn json_lines_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    SampleLog::open(&path).unwrap().append(&sample(1.5)).unwrap();
    // The incomplete line of a killed process is removed by the next one.
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\":2,\"ho").unwrap();
    let mut log = SampleLog::open(&path).unwrap();
    log.append(&Sample { time: 2.5, ..Sample::default() }).unwrap();
    // Read while the log is open: every line is written immediately.
    let text = fs::read_to_string(&path).unwrap();
    let read: Vec<Sample> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, [sample(1.5), Sample { time: 2.5, ..Sample::default() }]);
}

#[test]
fn a_csv_has_one_header_and_all_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.CSV");
    for time in [1.5, 2.5] {
        SampleLog::open(&path).unwrap().append(&sample(time)).unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"3,torn").unwrap();
    }
    drop(SampleLog::open(&path).unwrap());
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
fn other_columns_and_unknown_extensions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    SampleLog::open(&path).unwrap().append(&sample(1.0)).unwrap();
    let before = fs::read(&path).unwrap();
    let refused = SampleLog::open(&path).unwrap().append(&Sample::default());
    assert!(matches!(refused, Err(LogError::Columns { .. })), "{refused:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    for name in ["log", "log.txt", "log.json"] {
        let path = folder.path().join(name);
        assert!(matches!(SampleLog::open(&path), Err(LogError::Extension { .. })), "{name}");
        assert!(!path.exists(), "{name}");
    }
}
