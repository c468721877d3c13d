//! `myxtts compact`, and the models that are found by their names.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use myxtts_data::audio::wav;
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::tiny;

fn program(path: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.current_dir(folder).args(arguments);
    command
}

fn myxtts(folder: &Path, arguments: &[&str]) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_myxtts")), folder, arguments)
}

fn recording(path: &Path, voice: usize) {
    let speech = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[voice]);
    fs::write(path, wav::encode_pcm16(&speech, demo::SAMPLE_RATE)).unwrap();
}

#[test]
fn a_compact_model_is_smaller_speaks_and_is_exported() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    tiny::write(&at.join("big"), &[Part::Dvae, Part::Decoder, Part::Speaker]);
    recording(&at.join("a.wav"), 0);
    recording(&at.join("b.wav"), 1);
    myxtts(at, &["voice", "add", "ben", "b.wav", "--model", "big", "--device", "cpu"]).assert().success();
    let arguments = [
        "compact",
        "big",
        "-o",
        "small",
        "--voice",
        "anna=a.wav",
        "--voice",
        "anna=b.wav",
        "--voice",
        "ben",
        "--licence",
        "CC0",
        "--source",
        "a test",
        "--device",
        "cpu",
    ];
    let shown = myxtts(at, &arguments).arg("--json").assert().success();
    let report: serde_json::Value = serde_json::from_slice(&shown.get_output().stdout).unwrap();
    let (big, small) =
        (ModelFolder::open(&at.join("big")).unwrap(), ModelFolder::open(&at.join("small")).unwrap());
    assert!(report["bytes"].as_u64().unwrap() * 2 < report["bytes_before"].as_u64().unwrap(), "{report}");
    let errors: Vec<f64> = report["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["relative_error"].as_f64().unwrap())
        .collect();
    assert_eq!(errors.len(), 4, "{report}");
    assert!(errors.iter().all(|&error| error < 0.02) && errors[0] > 0.0, "{errors:?}");
    for file in ["gpt.compact", "dvae.compact", "decoder.compact", "speaker.compact", "speakers.safetensors"]
    {
        assert!(at.join("small").join(file).is_file(), "{file}");
    }
    let (before, after) = (big.manifest(), small.manifest());
    assert_eq!((&after.source[..], &after.licence[..]), ("a test", "CC0"));
    assert_eq!(after.voices, ["anna", "ben"]);
    assert_eq!(
        (&after.parts, &after.trained, &after.reading),
        (&before.parts, &before.trained, &before.reading)
    );
    assert_eq!(small.text("vocab.json").unwrap(), big.text("vocab.json").unwrap());

    // The included voice is the default, and the audio is close to that of the whole model.
    let say = |model: &str, voice: &str| {
        let arguments = [
            "speak", "Hello", "--model", model, "--voice", voice, "--greedy", "--device", "cpu", "-o",
            "out.wav",
        ];
        myxtts(at, &arguments).assert().success();
        fs::read(at.join("out.wav")).unwrap()
    };
    assert!(say("small", "anna") != say("small", "ben"));
    myxtts(at, &["speak", "Hello", "--model", "small", "--device", "cpu", "-o", "default.wav"])
        .assert()
        .success();
    let recorded = say("small", "a.wav");
    assert!(recorded.starts_with(b"RIFF") && recorded.len() > 1000);
    myxtts(at, &["voice", "add", "new", "a.wav", "--model", "small", "--device", "cpu"]).assert().success();
    assert!(say("small", "new") == recorded);
    // A saved voice belongs to the weights that encoded it.
    fs::copy(at.join("big/voices/ben.safetensors"), at.join("small/voices/other.safetensors")).unwrap();
    myxtts(at, &["speak", "Hello", "--model", "small", "--voice", "other", "-o", "x.wav"])
        .assert()
        .code(65)
        .stderr(contains("another model"));
    myxtts(at, &["export", "small", "-o", "files"]).assert().success();
    assert!(at.join("files/model.pth").is_file() && at.join("files/dvae.pth").is_file());
    fs::write(at.join("texts.txt"), "one|Hello\n").unwrap();
    myxtts(
        at,
        &["evaluate", "small", "--texts", "texts.txt", "--voice", "a.wav", "-o", "heard", "--device", "cpu"],
    )
    .assert()
    .success();
    fs::write(at.join("a.txt"), "This is my voice.").unwrap();
    myxtts(at, &["resynthesize", "small", "a.wav", "-o", "again", "--device", "cpu"]).assert().success();

    let fails = |arguments: &[&str], code: i32, message: &str| {
        myxtts(at, &["compact"]).args(arguments).assert().code(code).stderr(contains(message));
    };
    fails(&["big", "-o", "small"], 2, "--force");
    fails(&["big", "-o", "big", "--force"], 2, "the model itself");
    fails(&["none", "-o", "x"], 2, "no run or model folder named none");
    fails(&["big", "-o", "x", "--bits", "9"], 2, "from 4 to 8");
    fails(&["big", "-o", "x", "--voice", "a/b=a.wav"], 2, "not a valid voice name");
    fails(&["big", "-o", "x", "--voice", "nobody"], 2, "nobody");
    fails(&["big", "-o", "x", "--voice", "ben", "--voice", "ben=a.wav"], 2, "twice");
    fails(&["small", "-o", "x", "--voice", "anna=a.wav"], 2, "already contains");
    fails(&["big", "-o", "x", "--voice", "new=none.wav"], 74, "none.wav");
    assert!(!at.join("x").exists());
    let mut bytes = fs::read(at.join("small/gpt.compact")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(at.join("small/gpt.compact"), bytes).unwrap();
    fails(&["small", "-o", "x"], 65, "gpt.compact does not match its checksum");
}

#[test]
fn training_begins_from_a_compact_model_by_its_name() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    tiny::write(&at.join("big"), &[Part::Dvae]);
    myxtts(at, &["compact", "big", "-o", "models/small", "--bits", "8"]).assert().success();
    fs::create_dir_all(at.join("corpus/wavs")).unwrap();
    let mut metadata = String::new();
    for i in 0..4 {
        recording(&at.join(format!("corpus/wavs/clip{i}.wav")), i % 2);
        metadata += &format!("clip{i}|This is my voice.|This is my voice.\n");
    }
    fs::write(at.join("corpus/metadata.csv"), metadata).unwrap();
    let mut arguments =
        vec!["train", "corpus", "--device", "cpu", "--name", "tuned", "--from", "small", "--stage", "dvae"];
    for setting in [
        "training.dvae_steps=2",
        "training.validate_every=0",
        "training.sample_every=0",
        "data.dvae_batch_size=2",
        "data.num_workers=1",
    ] {
        arguments.extend(["--set", setting]);
    }
    myxtts(at, &arguments).assert().success().stderr(contains(note("models/small")));
    let model = ModelFolder::open(&at.join("runs/tuned/model")).unwrap();
    let base = ModelFolder::open(&at.join("models/small")).unwrap();
    // The GPT is that of the compact model, now stored exactly.
    let name = "gpt.text_embedding.weight";
    assert!(model.numbers(name).unwrap() == base.numbers(name).unwrap());
    assert!(at.join("runs/tuned/model/gpt.safetensors").is_file());
    // A run of the same name comes first.
    fs::rename(at.join("runs/tuned"), at.join("runs/small")).unwrap();
    arguments[5] = "again";
    myxtts(at, &arguments).assert().success().stderr(contains("using the model").not());
    arguments[7] = "nothing";
    arguments[5] = "third";
    myxtts(at, &arguments).assert().code(2).stderr(contains("nothing"));
}

/// The note about a model that was found.
fn note(model: &str) -> String {
    format!("note: using the model {}", PathBuf::from(model).display())
}

#[test]
fn models_are_found_here_next_to_the_program_and_in_the_installation() {
    let at = tempfile::tempdir().unwrap();
    // Without symbolic links, as the program sees its own path.
    let at = at.path().canonicalize().unwrap();
    let (bin, work) = (at.join("usr/bin"), at.join("work"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&work).unwrap();
    let path = bin.join(Path::new(env!("CARGO_BIN_EXE_myxtts")).file_name().unwrap());
    fs::copy(env!("CARGO_BIN_EXE_myxtts"), &path).unwrap();
    recording(&work.join("a.wav"), 0);
    let speak = |more: &[&str]| {
        let arguments = ["speak", "Hello", "--voice", "a.wav", "--device", "cpu", "-o", "out.wav"];
        program(&path, &work, &[&arguments[..], more].concat()).assert()
    };
    speak(&[]).code(2).stderr(contains("no model found").and(contains("models/")));
    let installed = at.join("usr/share/myxtts/models");
    tiny::write(&installed.join("b"), &[Part::Dvae]);
    fs::create_dir_all(installed.join("a-is-no-model")).unwrap();
    let noted = |path: PathBuf| contains(note(path.to_str().unwrap()));
    speak(&[]).success().stderr(noted(installed.join("b")));
    speak(&["--model", "b"]).success().stderr(noted(installed.join("b")));
    speak(&["--model", "c"]).code(2).stderr(contains("named c").and(contains("models in models/: b")));
    speak(&["--model", "x/b"]).code(2).stderr(contains("x/b"));
    tiny::write(&bin.join("models/c"), &[Part::Dvae]);
    speak(&[]).success().stderr(noted(bin.join("models/c")));
    speak(&["--model", "b"]).success().stderr(noted(installed.join("b")));
    tiny::write(&work.join("models/d"), &[Part::Dvae]);
    speak(&[]).success().stderr(noted(PathBuf::from("models/d")));
    fs::write(work.join("texts.txt"), "one|Hello\n").unwrap();
    let evaluate =
        ["evaluate", "b", "--texts", "texts.txt", "--voice", "a.wav", "-o", "heard", "--device", "cpu"];
    program(&path, &work, &evaluate).assert().success().stderr(noted(installed.join("b")));
    // A path comes before a name.
    tiny::write(&work.join("b"), &[Part::Dvae]);
    speak(&["--model", "b"]).success().stderr(contains("using the model").not());
}
