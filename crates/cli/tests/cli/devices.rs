//! `myxtts devices`: works on every machine, with a driver or without.

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::{contains, starts_with};

fn devices(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.arg("devices").args(arguments);
    command
}

fn as_json(command: &mut Command) -> serde_json::Value {
    let shown = command.assert().success();
    serde_json::from_slice(&shown.get_output().stdout).unwrap()
}

#[test]
fn text_and_json_agree() {
    let json = as_json(&mut devices(&["--json"]));
    let name = json["cpu"]["name"].as_str().unwrap();
    let on = format!("training     would run on {}", json["default"]["device"].as_str().unwrap());
    let shown =
        devices(&[]).assert().success().stdout(contains(format!("cpu          {name}")).and(contains(on)));
    let text = String::from_utf8(shown.get_output().stdout.clone()).unwrap();
    let row = |label: &str| {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(label));
        row.unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    for gpu in json["gpus"].as_array().unwrap() {
        assert!(row(&format!("cuda:{}", gpu["index"])).contains(gpu["name"].as_str().unwrap()));
    }
    assert!(json["cpu"]["usable_cores"].as_u64().unwrap() > 0);

    let has_gpu = !json["gpus"].as_array().unwrap().is_empty();
    for (key, label) in [
        ("driver", "driver"),
        ("nvrtc", "NVRTC"),
        ("cublas_lt", "cuBLASLt"),
        ("nccl", "NCCL"),
        ("nvml", "NVML"),
        ("cupti", "CUPTI"),
    ] {
        let library = &json["libraries"][key];
        let expected = match library["status"].as_str().unwrap() {
            "found" => library["path"].as_str().unwrap(),
            "missing" if has_gpu || library["refused"] != serde_json::json!([]) => {
                library["install"].as_str().unwrap()
            }
            // Without a GPU, one line names all that are missing.
            "missing" => {
                assert!(row("libraries").contains(label), "{label} in {text}");
                assert!(!text.lines().any(|line| line.starts_with(label)), "{label} in {text}");
                continue;
            }
            other => panic!("{key} is {other}"),
        };
        assert!(row(label).contains(expected), "{label}: no {expected} in {text}");
    }
}

#[test]
fn a_missing_driver_is_not_an_error() {
    let json = as_json(&mut devices(&["--json"]));
    if json["libraries"]["driver"]["status"] == "found" {
        eprintln!("skipped: this machine has a driver");
        return;
    }
    assert_eq!(json["default"]["device"], "cpu");
    assert_eq!(json["gpus"].as_array().unwrap().len(), 0);
    let looked_in = json["libraries"]["driver"]["looked_in"].as_array().unwrap();
    assert!(looked_in.iter().any(|place| place == "the dynamic linker's path"), "{looked_in:?}");
    devices(&[]).assert().success().stdout(
        contains("gpu          none: NVIDIA driver was not found\n")
            .and(starts_with("no NVIDIA GPU or driver found; training runs on the CPU"))
            .and(contains("training     would run on cpu\n")),
    );
}

#[test]
fn an_invalid_library_is_named_and_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libcublasLt.so.12");
    std::fs::write(&file, "not a library").unwrap();
    let json = as_json(devices(&["--json"]).env("MYXTTS_CUDA_PATH", folder.path()));
    let library = &json["libraries"]["cublas_lt"];
    if library["status"] == "found" {
        // Another library was found: the broken one did no harm.
        return assert_ne!(library["path"], file.to_str().unwrap());
    }
    let refused = library["refused"][0].as_str().unwrap();
    assert!(refused.starts_with(file.to_str().unwrap()), "{refused}");
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let json = as_json(devices(&["--json"]).env("MYXTTS_CUDA_PATH", &gone));
    let library = &json["libraries"]["nccl"];
    if library["status"] == "missing" {
        assert_eq!(library["looked_in"][0], format!("{} (no such folder)", gone.display()));
    }
}
