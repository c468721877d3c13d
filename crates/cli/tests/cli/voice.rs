//! `myxtts voice`: files, reports and exit codes.

use std::path::Path;

use assert_cmd::Command;
use myxtts_data::audio::wav;
use myxtts_demo as demo;
use myxtts_model::weights::Part;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::tiny;

fn myxtts(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.current_dir(folder).args(arguments);
    command
}

#[test]
fn a_voice_is_added_listed_shown_spoken_mixed_exported_and_removed() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    tiny::write(&at.join("model"), &[Part::Decoder, Part::Speaker]);
    for (voice, name) in ["a.wav", "b.wav"].into_iter().enumerate() {
        let speech = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[voice]);
        std::fs::write(at.join(name), wav::encode_pcm16(&speech, demo::SAMPLE_RATE)).unwrap();
    }
    let json = |arguments: &[&str]| -> serde_json::Value {
        let shown = myxtts(at, arguments).arg("--json").assert().success();
        serde_json::from_slice(&shown.get_output().stdout).unwrap()
    };
    assert_eq!(json(&["voice", "list"]), serde_json::json!([]));
    let added = json(&["voice", "add", "anna", "a.wav", "--device", "cpu"]);
    assert_eq!((&added["name"], &added["usable"]), (&"anna".into(), &true.into()));
    assert_eq!(added["references"], serde_json::json!(["a.wav"]));
    assert_eq!(added["report"]["advice"][0]["concern"], "short", "{added}");
    myxtts(at, &["voice", "add", "ben", "b.wav", "a.wav", "--device", "cpu"])
        .assert()
        .success()
        .stdout(contains("dB above the noise").and(contains("ben.safetensors")));
    myxtts(at, &["voice", "list"])
        .assert()
        .success()
        .stdout(contains("anna").and(contains("of b.wav, a.wav")));
    assert_eq!(json(&["voice", "show", "anna"]), added);

    // A saved voice gives the same audio as its recording.
    let say = |voice: &str, output: &str| {
        myxtts(at, &["speak", "Hello", "--device", "cpu", "--voice", voice, "-o", output]).assert().success();
        std::fs::read(at.join(output)).unwrap()
    };
    assert!(say("a.wav", "1.wav") == say("anna", "2.wav"));
    assert!(say("anna(2)+ben(1)", "3.wav") != say("anna", "4.wav"));

    myxtts(at, &["voice", "export", "anna", "-o", "anna.json"]).assert().success();
    let exported: serde_json::Value =
        serde_json::from_slice(&std::fs::read(at.join("anna.json")).unwrap()).unwrap();
    assert_eq!(exported["speaker_embedding"][0].as_array().unwrap().len(), 16);
    myxtts(at, &["voice", "export", "anna", "-o", "anna.safetensors"]).assert().success();
    myxtts(at, &["voice", "add", "clara", "anna.safetensors"]).assert().success();
    assert!(say("clara", "5.wav") == say("anna", "6.wav"));
    myxtts(at, &["voice", "remove", "clara"]).assert().success();

    let fails = |arguments: &[&str], code: i32, message: &str| {
        myxtts(at, &["voice"]).args(arguments).assert().code(code).stderr(contains(message));
    };
    fails(&["show", "clara"], 2, "no voice named \"clara\"; the model has: anna, ben");
    fails(&["remove", "clara"], 2, "no voice named \"clara\"; the model has: anna, ben");
    fails(&["add", "anna", "a.wav"], 2, "--force");
    fails(&["add", "a+b", "a.wav"], 2, "is not a valid voice name");
    fails(&["add", "new", "none.wav"], 74, "none.wav");
    fails(&["add", "new", "model"], 65, "is a folder");
    fails(&["add", "new"], 2, "FILE");
    fails(&["export", "anna", "-o", "anna.txt"], 2, ".json");
    fails(&["list", "--model", "none"], 2, "no run or model folder named none");

    // A fine-tuned model is another model.
    tiny::write(&at.join("other"), &[Part::Dvae]);
    fails(&["add", "anna", "anna.safetensors", "--model", "other"], 65, "was made with another model");
    std::fs::rename(at.join("model/voices"), at.join("other/voices")).unwrap();
    let listed = json(&["voice", "list", "--model", "other"]);
    assert_eq!(listed[0]["usable"], false, "{listed}");
}
