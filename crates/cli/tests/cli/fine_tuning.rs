//! Fine-tuning: for a new language, vocabulary and tables grow and existing rows stay; with decoder steps alone, the GPT stays
//! unchanged.

use std::path::Path;
use std::process::{Command, Stdio};

use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::weights::{ModelFolder, Part};

/// Stdout and stderr of a command that must succeed.
fn done(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_myxtts"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [stdout, words] = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    assert!(output.status.success(), "{arguments:?}: {words}");
    (stdout, words)
}

fn train(folder: &Path, arguments: &[&str]) -> (String, String) {
    let mut all = vec!["train", "--device", "cpu", "--preset", "tiny"];
    for setting in [
        "training.dvae_steps=1",
        "training.gpt_steps=2",
        "training.decoder_steps=0",
        "training.validate_every=0",
        "data.batch_size=2",
        "data.num_workers=1",
        "data.vocab_size=160",
        "data.val_fraction=0",
    ] {
        all.extend(["--set", setting]);
    }
    all.extend(arguments);
    done(folder, &all)
}

fn model(folder: &Path, name: &str) -> (ModelFolder, Tokenizer) {
    let path = folder.join("runs").join(name).join("model");
    (ModelFolder::open(&path).unwrap(), Tokenizer::load(&path.join("vocab.json")).unwrap())
}

#[test]
fn a_model_is_fine_tuned_on_a_language_with_new_letters() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for language in ["en", "fa"] {
        let corpus =
            ["demo-corpus", language, "--languages", language, "--utterances", "4", "--speakers", "1"];
        done(folder, &corpus);
    }
    // The tokenizer stage alone; the others then find its vocabulary.
    let (stdout, _) = train(folder, &["en", "--stage", "tokenizer"]);
    assert!(stdout.starts_with("tokenizer "), "{stdout}");
    assert!(stdout.contains(" pieces, stored in en/.myxtts-cache/tokenizer.json"), "{stdout}");
    let (_, words) = train(folder, &["en", "--name", "first"]);
    assert!(words.contains(stdout.trim()), "{words}");
    let (first, english) = model(folder, "first");
    assert!(english.language_id("fa").is_none());

    // Persian records with a vocabulary of their own, which the model's must not be confused with.
    train(folder, &["fa", "--stage", "tokenizer"]);
    let from = ["--from", "runs/first/model"];
    let (stdout, _) = train(folder, &["fa", "--stage", "tokenizer", from[0], from[1]]);
    assert!(stdout.contains("added to the model's, stored in fa/.myxtts-cache/from-"), "{stdout}");
    // With frozen tables, their content is exactly what they grew to.
    let more = ["--name", "second", "--set", "training.freeze_layers=1"];
    let (_, words) = train(folder, &[&["fa"], &from[..], &more[..]].concat());
    let (second, both) = model(folder, "second");
    let (before, after) = (english.vocabulary_size(), both.vocabulary_size());
    assert!(after > before + 20 && both.extends(&english).is_ok(), "{before} {after}");
    let added = both.pieces() - english.pieces();
    assert!(words.contains(&format!("{added} of them added to the model's")), "{words}");
    assert!(words.contains(&format!("grow from {before} rows to {after}")), "{words}");
    let numbers = |model: &ModelFolder, name: &str| model.numbers(name).unwrap();
    for name in ["gpt.text_embedding.weight", "gpt.text_head.weight", "gpt.text_head.bias"] {
        let (old, new) = (numbers(&first, name), numbers(&second, name));
        assert_eq!(new.len() / after, old.len() / before, "{name}");
        assert!(new.iter().all(|x| x.is_finite()));
    }
    let table = "gpt.text_embedding.weight";
    let (old, new) = (numbers(&first, table), numbers(&second, table));
    assert!(old.iter().zip(&new).all(|(a, b)| a.to_bits() == b.to_bits()), "existing rows are unchanged");
    let head = "gpt.text_head.weight";
    let (old, new) = (numbers(&first, head), numbers(&second, head));
    assert!(old.iter().zip(&new).any(|(a, b)| a.to_bits() != b.to_bits()), "trained rows changed");

    let voice = std::fs::read_dir(folder.join("fa/wavs")).unwrap().next().unwrap().unwrap().path();
    let say = ["speak", "سلام گل من", "--language", "fa", "--device", "cpu", "--model", "runs/second/model"];
    let voice = ["--voice", voice.to_str().unwrap(), "-o", "out.wav", "--json"];
    let (stdout, _) = done(folder, &[&say[..], &voice[..]].concat());
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(report["codes"].as_u64().unwrap() > 0 && folder.join("out.wav").is_file(), "{stdout}");
}

/// All values of a part, by tensor.
fn values(model: &ModelFolder, part: Part) -> Vec<(String, Vec<u32>)> {
    let bits = |name: &str| model.numbers(name).unwrap().into_iter().map(f32::to_bits).collect();
    let names = model.part(part).unwrap().names();
    names.map(|name| (name.to_owned(), bits(name))).collect()
}

#[test]
fn training_only_the_decoder_leaves_the_gpt_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["demo-corpus", "en", "--languages", "en", "--utterances", "4", "--speakers", "1"]);
    train(folder, &["en", "--name", "first", "--set", "training.decoder_steps=1"]);
    let steps = ["--set", "training.gpt_steps=0", "--set", "training.decoder_steps=2"];
    train(folder, &[&["en", "--name", "voice", "--from", "runs/first/model"], &steps[..]].concat());
    let (first, voice) = (model(folder, "first").0, model(folder, "voice").0);
    for part in [Part::Gpt, Part::Dvae, Part::Speaker] {
        assert_eq!(values(&first, part), values(&voice, part), "{part:?}");
    }
    assert_ne!(values(&first, Part::Decoder), values(&voice, Part::Decoder));
}
