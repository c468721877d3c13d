//! The cleaner that is chosen for a corpus: the same in every command, saved with the run, and kept with `--from`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use myxtts_data::tokenizer::Tokenizer;
use serde_json::Value;

const LITTLE_ENGLISH: &str = "data.cleaner = phonemes: chosen because the corpus is small";

fn myxtts(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Stdout and stderr of a command that must succeed.
fn done(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = myxtts(folder, arguments);
    let [stdout, words] = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    assert!(output.status.success(), "{arguments:?}: {words}");
    (stdout, words)
}

fn train(folder: &Path, arguments: &[&str]) -> String {
    let mut all = vec!["train", "--device", "cpu", "--preset", "tiny"];
    for setting in [
        "training.dvae_steps=1",
        "training.gpt_steps=1",
        "training.decoder_steps=0",
        "training.validate_every=0",
        "training.sample_every=0",
        "data.batch_size=2",
        "data.num_workers=1",
        "data.val_fraction=0",
    ] {
        all.extend(["--set", setting]);
    }
    all.extend(arguments);
    done(folder, &all).1
}

fn corpus(folder: &Path, language: &str) {
    let options = ["--languages", language, "--utterances", "4", "--speakers", "1"];
    done(folder, &[&["demo-corpus", language], &options[..]].concat());
}

/// The cleaner in the plan and in the model of a run.
fn cleaners(folder: &Path, run: &str) -> [String; 2] {
    let run = folder.join("runs").join(run);
    let json = |file: &str| serde_json::from_slice::<Value>(&fs::read(run.join(file)).unwrap()).unwrap();
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    [words(&json("plan.json")["data"]["cleaner"]), words(&json("model/manifest.json")["reading"]["cleaner"])]
}

#[test]
fn small_english_corpora_use_phonemes_from_check_to_speak() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    corpus(folder, "en");
    for command in ["check", "prepare", "verify"] {
        let (_, words) = done(folder, &[command, "en"]);
        assert!(words.contains(LITTLE_ENGLISH), "{command}: {words}");
    }
    let words = train(folder, &["en", "--name", "first"]);
    assert!(words.contains(LITTLE_ENGLISH) && words.contains("the saved tokenizer.json"), "{words}");
    assert_eq!(cleaners(folder, "first"), ["phonemes", "phonemes"]);

    let voice = fs::read_dir(folder.join("en/wavs")).unwrap().next().unwrap().unwrap().path();
    let voice = ["--voice", voice.to_str().unwrap(), "--language", "en", "--device", "cpu"];
    // No letter is used as a phoneme.
    let text = "Your area.";
    let say = ["speak", text, "--model", "runs/first/model", "-o", "out.wav", "--json"];
    let (stdout, _) = done(folder, &[&say[..], &voice[..]].concat());
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&report["text"], &report["unknown"]),
        (&"jɔɹ ɛɹȉə.".into(), &serde_json::json!([])),
        "{stdout}"
    );
    // The same without a model and a voice: those of the newest run, with a speaker it was trained on.
    let (bare, _) = done(folder, &["speak", text, "--device", "cpu", "--json"]);
    let bare: Value = serde_json::from_str(&bare).unwrap();
    assert_eq!((&bare["model"], &bare["text"]), (&"runs/first/model".into(), &report["text"]), "{bare}");
    assert!(bare["voice"][0].as_str().is_some_and(|voice| voice.contains("wavs")), "{bare}");
    fs::write(folder.join("list.csv"), format!("one|{text}\ntwo|Fish.\n")).unwrap();
    let evaluate = ["evaluate", "runs/first/model", "--texts", "list.csv", "-o"];
    for (output, cleaner, failed) in [("a", &[][..], 0), ("b", &["--cleaner", "default"][..], 1)] {
        let ended = myxtts(folder, &[&evaluate[..], &[output], &voice[..], cleaner].concat());
        assert_eq!(ended.status.success(), failed == 0, "{ended:?}");
        let report = fs::read(folder.join(output).join("report.json")).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["failed"], failed, "{report}");
    }

    // Another cleaner needs another vocabulary, which is reported.
    let (_, words) = done(folder, &["prepare", "en", "--cleaner", "default"]);
    assert!(words.contains("another data.cleaner than default"), "{words}");
    assert!(!words.contains("data.cleaner = "), "{words}");
    let (_, words) = done(folder, &["prepare", "en"]);
    assert!(
        words.contains(LITTLE_ENGLISH) && words.contains("another data.cleaner than phonemes"),
        "{words}"
    );
}

#[test]
fn fine_tuning_keeps_the_cleaner_of_the_base_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ["en", "fa"].into_iter().for_each(|language| corpus(folder, language));
    let words = train(folder, &["fa", "--name", "persian"]);
    assert!(!words.contains("data.cleaner"), "{words}");
    assert_eq!(cleaners(folder, "persian"), ["default", "default"]);
    // By default English is cleaned to phonemes; a model trained on letters keeps letters.
    let words = train(folder, &["en", "--name", "letters", "--from", "runs/persian/model"]);
    assert!(!words.contains("data.cleaner"), "{words}");
    assert_eq!(cleaners(folder, "letters"), ["default", "default"]);

    train(folder, &["en", "--name", "sounds"]);
    let from = ["--from", "runs/sounds/model"];
    let words = train(folder, &[&["fa", "--name", "both"], &from[..]].concat());
    assert!(words.contains("data.cleaner = phonemes: the model was trained with it"), "{words}");
    assert!(!words.contains("note: the model was trained with"), "{words}");
    assert_eq!(cleaners(folder, "both"), ["phonemes", "phonemes"]);
    let vocabulary = |run: &str| Tokenizer::load(&folder.join("runs").join(run).join("model/vocab.json"));
    assert!(!vocabulary("both").unwrap().knows('c'), "no letters beside the sounds");
    // An explicit setting wins, with a note.
    let written = ["en", "--name", "mixed", "--cleaner", "default"];
    let words = train(folder, &[&written[..], &from[..]].concat());
    assert!(words.contains("note: the model was trained with data.cleaner phonemes"), "{words}");
    assert_eq!(cleaners(folder, "mixed"), ["default", "default"]);
    assert!(vocabulary("mixed").unwrap().knows('c'));
}
