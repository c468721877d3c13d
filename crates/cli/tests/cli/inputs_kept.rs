//! Outputs that would replace an input of their command are refused, and the input is kept.

use std::fs;
use std::path::Path;

use myxtts_model::weights::Part;

use super::train::{corpus, done, myxtts};
use crate::tiny;

/// Asserts that a command is refused, names the output, and leaves a file as it was.
fn refused(folder: &Path, arguments: &[&str], kept: &str) {
    let before = fs::read(folder.join(kept)).unwrap();
    let output = myxtts(folder, arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {words}");
    assert!(words.contains(kept), "{arguments:?}: {words}");
    assert!(fs::read(folder.join(kept)).unwrap() == before, "{arguments:?} replaced {kept}");
}

#[test]
fn tokenizers_pages_and_charts_replaced_the_metadata_of_the_corpus() {
    let at = corpus();
    let folder = at.path();
    let metadata = "corpus/metadata.csv";
    let tokenizer = ["tokenizer", "train", "--data", "corpus", "--language", "en", "-o"];
    refused(folder, &[&tokenizer[..], &[metadata]].concat(), metadata);
    refused(
        folder,
        &["tokenizer", "train", "--data", metadata, "--language", "en", "-o", metadata],
        metadata,
    );
    let tiny = ["--device", "cpu", "--preset", "tiny"];
    refused(folder, &[&["bench", "corpus", "--steps", "2", "--svg", metadata][..], &tiny].concat(), metadata);
    let diagnose = ["diagnose", "corpus", "--num-batches", "30", "--html", metadata];
    refused(folder, &[&diagnose[..], &tiny].concat(), metadata);
    // The folder is checked before the work, too.
    let output = myxtts(folder, &[&tokenizer[..], &["missing/v.json"]].concat()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("the folder missing does not exist") && !words.contains("LJSpeech"), "{words}");
    // A vocabulary is written, replaced, and extended in place.
    let small = [&tokenizer[..], &["v.json", "--vocab-size", "200"]].concat();
    for _ in 0..2 {
        let output = myxtts(folder, &small).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    fs::write(folder.join("texts.txt"), "guten Morgen\nguten Abend\n").unwrap();
    let extend = ["tokenizer", "extend", "v.json", "--data", "texts.txt", "--language", "de", "-o"];
    refused(folder, &[&extend[..], &["texts.txt"]].concat(), "texts.txt");
    let output = myxtts(folder, &[&extend[..], &["v.json"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn voices_texts_and_subtitles_replaced_models_and_recordings() {
    let at = corpus();
    let folder = at.path();
    tiny::write(&folder.join("model"), &[Part::Dvae]);
    let clip = fs::read_dir(folder.join("corpus/wavs")).unwrap().next().unwrap().unwrap().path();
    fs::create_dir(folder.join("data")).unwrap();
    for name in ["one", "two"] {
        fs::copy(&clip, folder.join(format!("data/{name}.wav"))).unwrap();
    }
    let add = ["voice", "add", "me", "data/two.wav", "--model", "model", "--device", "cpu"];
    let output = myxtts(folder, &add).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let manifest = "model/manifest.json";
    let export = ["voice", "export", "me", "--model", "model", "-o", manifest];
    // A file of the model that has the extension of a voice.
    refused(folder, &export, manifest);
    // The speech of a text has the name of its recording.
    fs::write(folder.join("data/list.csv"), "one|Hello.|two.wav\ntwo|Hello.|two.wav\n").unwrap();
    let device = ["--device", "cpu", "--language", "en"];
    let evaluate = ["evaluate", "model", "--texts", "data/list.csv", "-o", "data"];
    refused(folder, &[&evaluate[..], &device].concat(), "data/one.wav");
    fs::create_dir(folder.join("dvae")).unwrap();
    fs::copy(&clip, folder.join("dvae/one.wav")).unwrap();
    let again = ["resynthesize", "model", "dvae/one.wav", "--text", "Hello.", "-o", "."];
    refused(folder, &[&again[..], &device].concat(), "dvae/one.wav");
    let speak =
        ["speak", "Hello", "--model", "model", "--voice", "data/two.wav", "--device", "cpu", "-o", "out.wav"];
    for input in ["data/two.wav", manifest] {
        refused(folder, &[&speak[..], &["--srt", input]].concat(), input);
    }
    let output = myxtts(folder, &[&speak[..], &["--srt", "out.wav"]].concat()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && words.contains("is the file of the audio too"), "{words}");
    assert!(!folder.join("out.wav").exists());
}

#[test]
fn spoken_sentences_replaced_the_recordings_of_the_corpus() {
    let at = corpus();
    let folder = at.path();
    let mut train = vec!["train", "corpus", "--name", "a", "--device", "cpu", "--preset", "tiny"];
    for setting in [
        "data.batch_size=2",
        "data.dvae_batch_size=2",
        "data.num_workers=1",
        "training.dvae_steps=1",
        "training.gpt_steps=1",
        "training.decoder_steps=0",
        "training.sample_every=0",
    ] {
        train.extend(["--set", setting]);
    }
    done(&mut myxtts(folder, &train));
    let held_out = fs::read_to_string(folder.join("runs/a/held-out.json")).unwrap();
    let held_out: serde_json::Value = serde_json::from_str(&held_out).unwrap();
    let kept = format!("corpus/wavs/{}.wav", held_out["clips"][0].as_str().unwrap());
    let before = fs::read(folder.join(&kept)).unwrap();
    for output in ["corpus/wavs", "./corpus/../corpus/wavs"] {
        let arguments = ["evaluate", "a", "--sentences", "1", "--device", "cpu", "-o", output];
        let output = myxtts(folder, &arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && words.contains("holds recordings of the corpus"),
            "{words}"
        );
    }
    assert!(fs::read(folder.join(&kept)).unwrap() == before, "{kept} was replaced");
}
