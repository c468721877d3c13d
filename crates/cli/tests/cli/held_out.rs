//! Validation sets: separate corpora, splits by text, and several corpora in one run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::train::{done, myxtts, resume};

/// Writes a demo corpus.
fn corpus(folder: &Path, name: &str, clips: &str, seed: &str) {
    done(&mut myxtts(folder, &["demo-corpus", name, "--utterances", clips, "--seed", seed]));
}

/// Converts a corpus to another layout: a text file next to each audio file.
fn as_folder(folder: &Path, name: &str) {
    let root = folder.join(name);
    for line in fs::read_to_string(root.join("metadata.csv")).unwrap().lines() {
        let mut fields = line.split('|');
        let (id, text) = (fields.next().unwrap(), fields.next().unwrap());
        fs::write(root.join("wavs").join(format!("{id}.txt")), text).unwrap();
    }
    fs::remove_file(root.join("metadata.csv")).unwrap();
    fs::remove_file(root.join("speakers.csv")).ok();
}

/// Minimal training.
fn train(folder: &Path, name: &str, more: &[&str]) -> std::process::Command {
    let mut arguments = vec!["train", "--name", name, "--device", "cpu", "--preset", "tiny"];
    for setting in [
        "training.dvae_steps=2",
        "training.gpt_steps=2",
        "training.decoder_steps=1",
        "training.sample_every=0",
        "data.batch_size=2",
        "data.num_workers=1",
        "data.vocab_size=128",
    ] {
        arguments.extend(["--set", setting]);
    }
    arguments.extend(more);
    myxtts(folder, &arguments)
}

fn assert_contains(words: &str, sentences: &[&str]) {
    for sentence in sentences {
        assert!(words.contains(sentence), "nothing of {sentence:?} in:\n{words}");
    }
}

fn held_out(folder: &Path, name: &str) -> (Value, Vec<String>) {
    let bytes = fs::read(folder.join("runs").join(name).join("held-out.json")).unwrap();
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    let ids = list["clips"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    (list, ids)
}

#[test]
fn a_separate_validation_corpus_was_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    corpus(folder, "a", "8", "1");
    corpus(folder, "b", "5", "2");
    as_folder(folder, "b");
    // All stages with caches; then the same with records computed on demand.
    let words = done(&mut train(folder, "cached", &["--train-data", "a", "--val-data", "b"]));
    assert_contains(
        &words,
        &["8 training clips, 5 validation clips", "all 5 usable clips of b", "codes", "best so far"],
    );
    let (list, ids) = held_out(folder, "cached");
    assert_eq!(list["corpus"], "b");
    assert!(ids.len() == 5 && ids.iter().all(|id| id.starts_with("b:")), "{ids:?}");
    let model = fs::read_to_string(folder.join("runs/cached/model/manifest.json")).unwrap();
    let model: Value = serde_json::from_str(&model).unwrap();
    assert_eq!(model["trained"]["gpt"]["steps"], 2);
    assert!(
        model["trained"]["gpt"]["kept_step"].as_u64().is_some_and(|step| (1..=2).contains(&step)),
        "{model}"
    );
    assert!(model["trained"]["gpt"]["validation"].as_f64().is_some());

    let computed = ["--train-data", "a", "--val-data", "b", "--disable-native-loading", "--stage", "dvae"];
    let words = done(&mut train(folder, "computed", &computed));
    assert_contains(&words, &["8 training clips, 5 validation clips"]);
    // A resumed run uses the same split.
    let words = done(&mut resume(folder, "cached"));
    assert_contains(&words, &["8 training clips, 5 validation clips"]);
    // The validation corpus must not be a training corpus.
    let twice = train(folder, "same", &["--train-data", "a", "--val-data", "./a"]).output().unwrap();
    assert_eq!(twice.status.code(), Some(2));
    assert_contains(&String::from_utf8_lossy(&twice.stderr), &["named twice"]);
}

/// A corpus can be named in two ways: by its folder and by a metadata file. It was validated on itself, and said to have no clip of
/// the training corpora.
#[test]
fn a_corpus_was_validated_on_its_own_training_clips() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    corpus(folder, "a", "8", "1");
    let same = ["a", "--val-data", "a/metadata.csv", "--stage", "dvae"];
    let refused = train(folder, "same", &same).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert_contains(&words, &["all 8 clips of the validation corpus a/metadata.csv are also trained on"]);
    assert!(!folder.join("runs/same").exists(), "{words}");
    // Some of its clips: a warning with their number.
    let metadata = fs::read_to_string(folder.join("a/metadata.csv")).unwrap();
    let lines: Vec<&str> = metadata.lines().collect();
    fs::write(folder.join("a/metadata.csv"), lines[..6].join("\n")).unwrap();
    fs::write(folder.join("a/eval.csv"), lines[4..].join("\n")).unwrap();
    let words = done(&mut train(
        folder,
        "some",
        &["a", "--val-data", "a/eval.csv", "--format", "ljspeech", "--stage", "dvae"],
    ));
    assert_contains(&words, &["6 training clips, 4 validation clips", "2 of them are also trained on"]);
}

#[test]
fn sentences_read_twice_fell_on_both_sides_of_the_split() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    corpus(folder, "a", "8", "1");
    // Every sentence a second time, as another recording.
    let root = folder.join("a");
    for table in ["metadata.csv", "speakers.csv"] {
        let Ok(lines) = fs::read_to_string(root.join(table)) else { continue };
        let more: String = lines.lines().map(|line| format!("again-{line}\n")).collect();
        fs::write(root.join(table), format!("{}\n{more}", lines.trim_end())).unwrap();
    }
    for entry in fs::read_dir(root.join("wavs")).unwrap().map(Result::unwrap) {
        let name = format!("again-{}", entry.file_name().to_str().unwrap());
        fs::copy(entry.path(), root.join("wavs").join(name)).unwrap();
    }
    let words = done(&mut train(folder, "run", &["a", "--stage", "dvae", "--val-fraction", "0.3"]));
    assert_contains(&words, &["texts that are not trained on"]);
    let (_, ids) = held_out(folder, "run");
    let once: BTreeSet<&str> =
        ids.iter().filter(|id| !id.starts_with("again-")).map(String::as_str).collect();
    let again: BTreeSet<&str> = ids.iter().filter_map(|id| id.strip_prefix("again-")).collect();
    assert!(!once.is_empty() && once == again, "{ids:?}");
}

#[test]
fn several_corpora_have_one_vocabulary_and_keep_their_caches() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    corpus(folder, "a", "6", "1");
    corpus(folder, "b", "5", "2");
    as_folder(folder, "b");
    let words = done(&mut train(folder, "both", &["a", "b", "--stage", "dvae", "--val-fraction", "0"]));
    assert_contains(&words, &["11 training clips", "a: 6 clips of a", "b: 5 clips of b"]);
    let inside = |name: &str| -> Vec<String> {
        let cache = folder.join(name).join(".myxtts-cache");
        let entries = fs::read_dir(cache).into_iter().flatten().map(Result::unwrap);
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let own =
        |name: &str| inside(name).into_iter().filter(|name| name.starts_with("from-")).collect::<Vec<_>>();
    assert_eq!(own("a").len(), 1, "{:?}", inside("a"));
    assert_eq!(own("a"), own("b"), "both corpora are tokenized by one vocabulary");
    assert!(
        !inside("a").contains(&"index.bin".to_owned()),
        "several corpora do not write to the cache of `a` alone"
    );
    // In another order, from a file: the same vocabulary, the same caches.
    fs::write(folder.join("run.yaml"), "data:\n  train_data: [b, a]\n").unwrap();
    let more = ["--config", "run.yaml", "--stage", "dvae", "--val-fraction", "0"];
    let words = done(&mut train(folder, "again", &more));
    assert_contains(&words, &["11 training clips"]);
    assert_eq!((own("a").len(), own("b").len()), (1, 1));
    // The same speaker name in two corpora is reported, and kept apart.
    let speaker = |name: &str, more: &[&str]| {
        let mut arguments =
            vec!["--train-data", "a", "--train-data", "c", "--stage", "dvae", "--val-fraction", "0"];
        arguments.extend(more);
        done(&mut train(folder, name, &arguments))
    };
    corpus(folder, "c", "4", "3");
    let words = speaker("apart", &[]);
    assert_contains(&words, &["two corpora have a speaker", "(c)"]);
    // A command that reads a single corpus says so.
    let checked = myxtts(folder, &["check", "--train-data", "a", "--train-data", "b"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(2));
    assert_contains(&String::from_utf8_lossy(&checked.stderr), &["one corpus at a time"]);
}
