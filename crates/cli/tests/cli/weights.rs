//! `myxtts import` and `myxtts export`: files, reports and exit codes.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

fn myxtts(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.args(arguments);
    command
}

/// The checkpoints among the goldens. If they are missing, the tests fail instead of passing.
fn checkpoints() -> PathBuf {
    let folder = std::env::var_os("MYXTTS_GOLDENS").map(PathBuf::from);
    let folder =
        folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/goldens"));
    let folder = folder.join("checkpoint");
    assert!(folder.is_dir(), "{} is missing; MYXTTS_GOLDENS names the folder of goldens", folder.display());
    folder
}

#[test]
fn a_release_is_imported_and_exported() {
    let out = tempfile::tempdir().unwrap();
    let (model, files) = (out.path().join("model"), out.path().join("files"));
    let (release, model_arg, files_arg) =
        (checkpoints().join("model.pth"), model.to_str().unwrap(), files.to_str().unwrap());
    let import = ["import", release.to_str().unwrap(), "-o", model_arg];
    let shown = myxtts(&import).arg("--json").assert().success();
    let report: serde_json::Value = serde_json::from_slice(&shown.get_output().stdout).unwrap();
    // The files next to the model were used: the configuration, which has the number of heads, and the voices.
    let config = std::fs::read_to_string(checkpoints().join("config.json")).unwrap();
    let heads = format!("\"gpt_n_heads\": {}", report["sizes"]["gpt"]["heads"]);
    assert!(config.contains(&heads), "no {heads}");
    assert!(!report["voices"].as_array().unwrap().is_empty());
    // A second time only with --force.
    myxtts(&import).assert().code(2).stderr(contains("--force"));
    myxtts(&import).args(["--force", "--alone"]).assert().success().stdout(contains("voices       0"));
    myxtts(&import)
        .arg("--force")
        .assert()
        .success()
        .stdout(contains("config.json").and(contains("written")));

    myxtts(&["export", model_arg, "--format", "xtts-v2", "-o", files_arg])
        .assert()
        .success()
        .stdout(contains("model.pth, mel_stats.pth, speakers_xtts.pth"));
    let again = out.path().join("again");
    myxtts(&["import", files.join("model.pth").to_str().unwrap(), "-o", again.to_str().unwrap()])
        .assert()
        .success();
    for file in ["gpt.safetensors", "decoder.safetensors", "speaker.safetensors", "speakers.safetensors"] {
        assert!(
            std::fs::read(model.join(file)).unwrap() == std::fs::read(again.join(file)).unwrap(),
            "{file}"
        );
    }
}

#[test]
fn unusable_files_are_refused_with_a_reason_and_exit_code() {
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("model");
    let import = |model: &Path| myxtts(&["import", model.to_str().unwrap(), "-o", to.to_str().unwrap()]);
    import(&out.path().join("none.pth")).assert().code(74).stderr(contains("none.pth"));
    // Three tensors are not a model: the missing ones are counted.
    import(&checkpoints().join("config_object.pth")).assert().code(65).stderr(contains("missing"));
    let text = out.path().join("text.pth");
    std::fs::write(&text, "<!doctype html>").unwrap();
    import(&text).assert().code(65).stderr(contains("not a torch.save file"));
    assert!(!to.exists());
    let nowhere = out.path().to_str().unwrap();
    myxtts(&["export", nowhere, "-o", to.to_str().unwrap()])
        .assert()
        .code(65)
        .stderr(contains("not a model folder"));
}

#[test]
fn a_damaged_model_is_not_exported() {
    let out = tempfile::tempdir().unwrap();
    let (model, files) = (out.path().join("model"), out.path().join("files"));
    let trainer = checkpoints().join("trainer_checkpoint.pth");
    myxtts(&["import", trainer.to_str().unwrap(), "-o", model.to_str().unwrap()])
        .assert()
        .success()
        .stdout(contains("part of the checkpoint").and(contains("left out")));
    let file = model.join("decoder.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    myxtts(&["export", model.to_str().unwrap(), "-o", files.to_str().unwrap()])
        .assert()
        .code(65)
        .stderr(contains("decoder.safetensors does not match its checksum"));
    assert!(!files.exists());
}

#[test]
fn a_model_trained_here_could_not_be_imported_again() {
    use myxtts_model::weights::folder::{TOKEN_HEAD_BIAS, TOKEN_HEAD_WEIGHT};
    use myxtts_model::weights::{ModelFolder, Part};
    let out = tempfile::tempdir().unwrap();
    let (model, files, again) =
        (out.path().join("model"), out.path().join("files"), out.path().join("again"));
    crate::tiny::write(&model, &[Part::Dvae, Part::Decoder, Part::Speaker]);
    myxtts(&["export", model.to_str().unwrap(), "-o", files.to_str().unwrap()]).assert().success();
    let release = files.join("model.pth");
    myxtts(&["import", release.to_str().unwrap(), "-o", again.to_str().unwrap()]).assert().success();
    let (first, second) = (ModelFolder::open(&model).unwrap(), ModelFolder::open(&again).unwrap());
    for part in [Part::Gpt, Part::Dvae, Part::Decoder, Part::Speaker] {
        let (first, second) = (first.part(part).unwrap(), second.part(part).unwrap());
        for name in first.names() {
            // Tensors that Coqui's code does not have are not exported.
            if [TOKEN_HEAD_WEIGHT, TOKEN_HEAD_BIAS].contains(&name) {
                assert!(second.get(name).is_none(), "{name}");
                continue;
            }
            assert!(first.get(name) == second.get(name), "{name}");
        }
        let more = second.names().filter(|name| first.get(name).is_none());
        for name in more {
            assert!(name.contains("num_batches_tracked") || name.contains("torch_spec"), "{name}");
        }
    }
    // Exports of an older version lacked these.
    assert!(second.part(Part::Speaker).unwrap().names().any(|name| name.ends_with("num_batches_tracked")));
}
