//! `myxtts monitor`: works on every machine, with any driver.

use std::fs;
use std::path::Path;
use std::process::Command as Plain;
use std::time::Duration;

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::Value;

fn monitor(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.current_dir(folder).arg("monitor").args(arguments);
    command
}

fn lines(command: &mut Command) -> Vec<Value> {
    let shown = command.assert().success();
    let text = String::from_utf8(shown.get_output().stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Compiles a fake NVML library with the C compiler that Rust links with.
fn fake_nvml(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/fake_nvml.c");
    let mut compiler = Plain::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.join("libnvidia-ml.so.1")).arg(source);
    assert!(compiler.status().unwrap().success());
}

#[test]
fn without_a_driver_the_cpu_is_monitored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let devices = Command::new(env!("CARGO_BIN_EXE_myxtts")).args(["devices", "--json"]).output().unwrap();
    let devices: Value = serde_json::from_slice(&devices.stdout).unwrap();
    if devices["libraries"]["nvml"]["status"] == "found" {
        return eprintln!("skipped: this machine has a driver");
    }
    let brief = ["--duration", "1", "--interval", "0.2", "--log-file", "log.jsonl"];
    monitor(folder, &brief)
        .assert()
        .success()
        .stderr(contains("no GPU to monitor, only CPU and memory: NVML was not found"))
        .stdout(
            contains("CPU ")
                .and(contains("samples over"))
                .and(contains("deviation"))
                .and(contains("GPU").not()),
        );
    let log = fs::read_to_string(folder.join("log.jsonl")).unwrap();
    let samples: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!((1..=6).contains(&samples.len()), "{log}");
    assert!(samples.iter().all(|sample| sample["host"]["memory_total"].as_u64().unwrap() > 0), "{log}");
    assert!(samples.iter().any(|sample| sample["host"]["cpu"].is_number()), "{log}");
}

#[test]
fn all_nvml_values_are_shown_and_missing_ones_are_tolerated() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fake_nvml(folder);
    let brief = ["--duration", "0.2", "--interval", "0.1"];
    let told = lines(
        monitor(folder, &brief).args(["--json", "--log-file", "log.csv"]).env("MYXTTS_CUDA_PATH", folder),
    );
    let gpus = told[0]["sample"]["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 2);
    let first = &gpus[0];
    assert!(first["name"].as_str().unwrap().starts_with("FAKExx"), "{first}");
    for (name, value) in [
        ("utilisation", 97.0),
        ("memory_activity", 41.0),
        ("memory_used", (20u64 << 30) as f64),
        ("memory_total", (80u64 << 30) as f64),
        ("power", 612.5),
        ("power_limit", 700.0),
        ("temperature", 64.0),
        ("sm_clock", 1755.0),
        ("memory_clock", 2619.0),
        ("pcie_in", 3e6),
        ("pcie_out", 5e5),
    ] {
        assert_eq!(first[name].as_f64(), Some(value), "{name} of {first}");
    }
    assert_eq!(first["limits"], serde_json::json!(["power-cap", "thermal"]));
    // This library has no function for it.
    assert_eq!(first["sm_clock_most"], Value::Null);
    let processes = first["processes"].as_array().unwrap();
    assert_eq!((processes.len(), &processes[0]["pid"]), (100, &4_000_000.into()));
    assert_eq!((processes[0]["memory"].as_u64(), &processes[1]["memory"]), (Some(5 << 30), &Value::Null));
    let silent = gpus[1].as_object().unwrap();
    assert!(silent.iter().all(|(name, value)| value.is_null() || name == "processes"), "{silent:?}");
    let summary = &told[told.len() - 1];
    assert_eq!(summary["kind"], "summary");
    assert_eq!(summary["summary"]["gpus"][0]["oscillation"]["score"], 0.0);
    assert_eq!(summary["summary"]["gpus"][0]["limited"]["power-cap"], 1.0);
    assert!(fs::read_to_string(folder.join("log.csv")).unwrap().contains("gpu1_utilisation_percent"));

    monitor(folder, &brief).env("MYXTTS_CUDA_PATH", folder).assert().success().stdout(
        contains(
            "97 % busy, memory 20.0 GiB of 80.0 GiB, 612 W of 700 W, 64 °C, SM 1755 MHz of -, memory 2619 MHz",
        )
        .and(contains("limited by power cap, temperature"))
        .and(contains("process 4000000 - 5.0 GiB"))
        .and(contains("and 92 more processes"))
        .and(contains("GPU 0: oscillation 0: 97 to 97 % busy"))
        .and(contains("GPU 1 -, - busy"))
        .and(contains("GPU 1: utilisation unknown")),
    );
    monitor(folder, &brief)
        .envs([("MYXTTS_CUDA_PATH", folder.as_os_str()), ("FAKE_NVML", "broken".as_ref())])
        .assert()
        .success()
        .stderr(contains("cannot initialise NVML: Driver Not Loaded (code 9)"));
}

#[test]
fn a_run_is_followed_and_a_signal_ends_with_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = folder.join("runs/voice");
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("plan.json"), "{}").unwrap();
    let events = "{\"time\":1.0,\"kind\":\"stage\",\"stage\":\"gpt\",\"from\":0,\"steps\":500}\n{\"time\":2.0,\"kind\":\"step\",\
                  \"stage\":\"gpt\",\"step\":20,\"clips_per_second\":85.3,\"busy\":0.97,\"wait\":0.004}\n{\"time\":3.0,\"ki";
    fs::write(run.join("events.jsonl"), events).unwrap();
    for name in ["voice", "runs/voice", "runs/voice/"] {
        monitor(folder, &[name, "--duration", "0.1", "--interval", "0.05"])
            .assert()
            .success()
            .stdout(contains("gpt 20/500, 85.3 clips/s, 97 % on the GPU, 0 % waiting for batches ("));
    }

    let child = Plain::new(env!("CARGO_BIN_EXE_myxtts"))
        .args(["monitor", "--interval", "0.05", "--log-file", "log.csv"])
        .current_dir(folder)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // A line in the log means that signals are handled and a sample was taken.
    for _ in 0..600 {
        if fs::read_to_string(folder.join("log.csv")).is_ok_and(|log| log.lines().count() > 1) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Plain::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143));
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(text.contains("samples over") && text.contains("deviation"), "{text}");
}

#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (arguments, words) in [
        (&["--interval", "0"][..], "expected seconds, from 0.05"),
        (&["--duration", "NaN"], "expected seconds, from 0.05"),
        (&["--log-file", "log.txt"], "must end in .csv or .jsonl"),
        (&["nobody"], "there is no run nobody in runs"),
        (&["runs/nobody"], "is not a run"),
    ] {
        monitor(folder, arguments).assert().code(2).stderr(contains(words));
    }
    monitor(folder, &["--log-file", "gone/log.csv"]).assert().code(74).stderr(contains("gone/log.csv"));
}
