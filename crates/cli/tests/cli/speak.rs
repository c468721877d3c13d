//! `myxtts speak` from the shell's side.

use std::path::Path;

use assert_cmd::Command;
use myxtts_data::audio::{decode, wav};
use myxtts_data::demo;
use myxtts_model::weights::Part;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::tiny;

fn myxtts(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.current_dir(folder).args(arguments);
    command
}

/// A folder with models and recordings.
fn folder() -> tempfile::TempDir {
    let at = tempfile::tempdir().unwrap();
    tiny::write(&at.path().join("model"), &[Part::Decoder, Part::Speaker]);
    tiny::write(&at.path().join("early"), &[Part::Dvae]);
    let speech = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    std::fs::write(at.path().join("ref.wav"), wav::encode_pcm16(&speech, demo::SAMPLE_RATE)).unwrap();
    std::fs::write(at.path().join("silent.wav"), wav::encode_pcm16(&[0.0; 9000], 16_000)).unwrap();
    std::fs::write(at.path().join("text.wav"), "no sound").unwrap();
    at
}

#[test]
fn a_text_becomes_a_wav_file() {
    let at = folder();
    let say = ["speak", "Hello world", "--voice", "ref.wav", "--device", "cpu"];
    let shown = myxtts(at.path(), &say).args(["-o", "a.wav", "--json"]).assert().success();
    let report: serde_json::Value = serde_json::from_slice(&shown.get_output().stdout).unwrap();
    let heard = decode(&at.path().join("a.wav")).unwrap();
    assert_eq!(heard.clip.sample_rate, 24_000);
    assert_eq!(heard.clip.samples.len(), tiny::decoder_sizes().samples_of(tiny::SAID));
    assert_eq!(report["codes"], tiny::SAID);
    assert_eq!((&report["quality"], &report["ended"]), (&"decoded".into(), &"limit".into()));
    // It never ends: two further tries, each with its seed.
    let seeds: Vec<u64> = (0..3).filter_map(|i| report["attempts"][i]["seed"].as_u64()).collect();
    assert_eq!((seeds, &report["flaw"]["kind"]), (vec![0, 1, 2], &"no_end".into()));
    myxtts(at.path(), &say)
        .args(["-o", "b.wav", "--retries", "1"])
        .assert()
        .success()
        .stdout(contains("on cpu").and(contains("24000 Hz")).and(contains("b.wav")))
        .stdout(contains("did not find its end").and(contains("seed 1: ")).and(contains("seed 2").not()));
    let bytes = |name: &str| std::fs::read(at.path().join(name)).unwrap();
    assert!(bytes("a.wav") == bytes("b.wav"), "the same seed says it the same way");
    myxtts(at.path(), &say).args(["-o", "c.wav", "--seed", "7"]).assert().success();
    assert!(bytes("a.wav") != bytes("c.wav"), "another seed says it another way");
    myxtts(at.path(), &say)
        .args(["-o", "d.wav", "--model", "early", "--greedy"])
        .assert()
        .success()
        .stdout(contains("22050 Hz").and(contains("early sound")));
    assert_eq!(decode(&at.path().join("d.wav")).unwrap().clip.sample_rate, 22_050);
}

#[test]
fn mistakes_have_their_messages_and_exit_codes() {
    let at = folder();
    let fails = |arguments: &[&str], code: i32, message: &str| {
        let common = ["speak", "-o", "out.wav", "--device", "cpu"];
        myxtts(at.path(), &common).args(arguments).assert().code(code).stderr(contains(message));
        assert!(!at.path().join("out.wav").exists());
    };
    fails(&["Hello", "--voice", "ref.wav", "--model", "none"], 2, "no model folder none");
    fails(&["Hello", "--voice", "ref.wav", "--model", "."], 65, "no model folder");
    fails(&["Hello", "--voice", "none.wav"], 74, "none.wav");
    fails(&["Hello", "--voice", "text.wav"], 65, "text.wav");
    fails(&["Hello", "--voice", "silent.wav"], 65, "silent");
    fails(&["...", "--voice", "ref.wav"], 65, "nothing to say");
    fails(&["Hallo", "--voice", "ref.wav", "--language", "de"], 2, "[de]");
    fails(&[&"hello world ".repeat(90), "--voice", "ref.wav"], 65, "sentence by sentence");
    fails(&["Hello", "--voice", "ref.wav", "--temperature", "0"], 2, "above 0");
    fails(&["Hello"], 2, "--voice");
    let device = ["speak", "Hello", "--voice", "ref.wav", "-o", "out.wav", "--device"];
    myxtts(at.path(), &device).arg("gpu").assert().code(2).stderr(contains("cuda:1"));
    myxtts(at.path(), &device).arg("cuda:99").assert().code(2).stderr(contains("there is no cuda:99"));
}
