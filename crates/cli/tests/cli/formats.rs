//! Files of every format that was ever written still load: `testdata/formats/` has a folder for each set of them, with a
//! corpus, its cache, a model folder with a stored voice, the same model in compact files, and a run that was left at step 2 of 4 of its DVAE stage.
//!
//! A change of a format adds a folder and leaves the others: `MYXTTS_NEW_FORMATS=v2 cargo test -p myxtts --test cli --
//! --ignored formats::write_the_fixture` writes `testdata/formats/v2`, and `STORED_FORMATS` below gets its line.

use std::fs;
use std::path::{Path, PathBuf};

use myxtts_data::cache::Store;
use myxtts_data::record::RecordSource;
use myxtts_demo::{Language, SAMPLE_RATE, VOICES, speak};
use myxtts_model::weights::compact::relative_error;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_run::checkpoint::Checkpoints;
use myxtts_run::folder::RunFolder;
use myxtts_speak::voices::StoredVoice;

use super::train::{done, myxtts, resume};
use crate::tiny;

/// The folders that must exist.
const STORED_FORMATS: [&str; 1] = ["v1"];

const WORDS: [&str; 4] = ["one word", "a voice", "two words", "the end"];
/// The run in every set of files.
pub const RUN: &str = "left";

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/formats")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A copy of the first set of files, with the run [`RUN`] that was left at step 2 of 4.
pub fn first_set() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&formats().join(STORED_FORMATS[0]), folder.path());
    folder
}

/// Every set of files, each in a folder of its own that may be written to.
fn sets() -> Vec<(&'static str, tempfile::TempDir)> {
    let set = |name: &&'static str| {
        let folder = tempfile::tempdir().unwrap();
        copy(&formats().join(name), folder.path());
        (*name, folder)
    };
    STORED_FORMATS.iter().map(set).collect()
}

#[test]
fn every_stored_format_is_tested() {
    let names =
        fs::read_dir(formats()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "README.md").collect();
    names.sort();
    assert_eq!(names, STORED_FORMATS);
}

/// The cache of a run that began from a model is inside the cache of the corpus.
fn cache(folder: &Path) -> PathBuf {
    let below = fs::read_dir(folder.join("corpus/.myxtts-cache")).unwrap().map(|entry| entry.unwrap().path());
    below.filter(|path| path.join("index.bin").is_file()).last().unwrap()
}

#[test]
fn stored_caches_still_load() {
    for (name, folder) in sets() {
        let dir = cache(folder.path());
        let store = Store::open(&dir).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(store.len(), WORDS.len(), "{name}");
        for record in 0..store.len() {
            assert!(store.provenance(record).is_ok(), "{name}");
            for (column, kind) in store.columns().iter().enumerate() {
                let rows = store.rows(record, column);
                let mut bytes = vec![0; rows as usize * kind.row_bytes()];
                assert_eq!(store.read(record, column, 0, &mut bytes).unwrap(), rows, "{name}");
                assert!(bytes.iter().any(|byte| *byte != 0), "{name}: {} of {record} is empty", kind.name);
            }
        }
        done(&mut myxtts(folder.path(), &["verify", dir.to_str().unwrap()]));
    }
}

/// Speaks in a voice, with these further arguments.
fn speaks(set: &str, folder: &Path, voice: &str, more: &[&str]) {
    let arguments = ["speak", "Hello", "--voice", voice, "--device", "cpu", "--greedy", "-o", "out.wav"];
    done(myxtts(folder, &arguments).args(more));
    assert!(fs::read(folder.join("out.wav")).unwrap().starts_with(b"RIFF"), "{set}: {more:?}");
}

#[test]
fn stored_models_still_speak() {
    for (name, folder) in sets() {
        let model = ModelFolder::open(&folder.path().join("model"));
        let model = model.unwrap_or_else(|error| panic!("{name}: {error}"));
        for part in [Part::Gpt, Part::Dvae] {
            assert!(model.part(part).is_some(), "{name}: {part:?}");
        }
        speaks(name, folder.path(), "corpus/wavs/clip0.wav", &[]);
    }
}

#[test]
fn stored_compact_models_still_speak() {
    for (name, folder) in sets() {
        let [model, compact] = ["model", "compact"].map(|model| {
            let model = ModelFolder::open(&folder.path().join(model));
            model.unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        for part in [Part::Gpt, Part::Dvae] {
            let (exact, stored) = (model.part(part).unwrap(), compact.part(part).unwrap());
            assert!(stored.path().extension().is_some_and(|ending| ending == "compact"), "{name}");
            let error = relative_error(exact, stored).unwrap();
            assert!(error > 0.0 && error < 0.02, "{name}: {part:?} {error}");
        }
        speaks(name, folder.path(), "corpus/wavs/clip0.wav", &["--model", "compact"]);
    }
}

#[test]
fn stored_voices_still_speak() {
    for (name, folder) in sets() {
        let file = folder.path().join("model/voices/anna.safetensors");
        let voice = StoredVoice::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(voice.name, "anna", "{name}");
        assert_eq!(voice.references, ["clip0.wav", "clip2.wav"], "{name}");
        assert!(voice.report.is_some(), "{name}: the quality report is part of the file");
        speaks(name, folder.path(), "anna", &["--model", "model"]);
    }
}

#[test]
fn stored_runs_still_resume() {
    for (name, folder) in sets() {
        let folder = folder.path();
        let run = RunFolder::view(&folder.join("runs"), RUN).unwrap();
        assert_eq!(run.plan().unwrap().training.dvae_steps, Some(4), "{name}");
        assert!(!run.events().read().unwrap().is_empty(), "{name}");
        let checkpoints = Checkpoints::at(&run.path().join("checkpoints"));
        let latest = checkpoints.latest_valid().unwrap();
        assert!(latest.damaged.is_empty(), "{name}: {:?}", latest.damaged);
        let latest = latest.checkpoint.unwrap();
        assert_eq!(latest.meta["step"], 2, "{name}");
        checkpoints.verify(&latest).unwrap_or_else(|damage| panic!("{name}: {damage}"));
        let words = done(&mut resume(folder, RUN));
        assert!(words.contains("dvae 4/4"), "{name}: {words}");
        let last = Checkpoints::at(&folder.join("runs").join(RUN).join("checkpoints")).list().unwrap();
        assert!(last.damaged.is_empty(), "{name}: {:?}", last.damaged);
        assert_eq!(last.checkpoints.last().unwrap().meta["step"], 4, "{name}");
        assert!(ModelFolder::open(&folder.join("runs").join(RUN).join("model")).is_ok(), "{name}");
    }
}

#[test]
#[ignore = "writes the files that the others read"]
fn write_the_fixture() {
    let name =
        std::env::var("MYXTTS_NEW_FORMATS").expect("MYXTTS_NEW_FORMATS names the new folder, such as v2");
    let kept = formats().join(name);
    assert!(!kept.exists(), "{} exists: stored formats are never overwritten", kept.display());
    let at = tempfile::tempdir().unwrap();
    let folder = at.path();
    fs::create_dir_all(folder.join("corpus/wavs")).unwrap();
    let mut metadata = String::new();
    for (i, words) in WORDS.iter().enumerate() {
        let voice = speak(words, Language::English, &VOICES[i % 2]);
        // Short, at half the sample rate: small files.
        let half: Vec<f32> = voice.iter().copied().step_by(2).take(8000).collect();
        let wav = myxtts_data::audio::wav::encode_pcm16(&half, SAMPLE_RATE / 2);
        fs::write(folder.join(format!("corpus/wavs/clip{i}.wav")), wav).unwrap();
        metadata += &format!("clip{i}|{words}|{words}\n");
    }
    fs::write(folder.join("corpus/metadata.csv"), metadata).unwrap();
    tiny::write_sized(&folder.join("model"), &[Part::Dvae], 8, 8);
    let voice =
        ["voice", "add", "anna", "corpus/wavs/clip0.wav", "corpus/wavs/clip2.wav", "--model", "model"];
    done(&mut myxtts(folder, &voice));
    done(&mut myxtts(folder, &["compact", "model", "-o", "compact"]));
    let mut arguments =
        vec!["train", "corpus", "--name", RUN, "--device", "cpu", "--from", "model", "--stage", "dvae"];
    for setting in [
        "training.dvae_steps=4",
        "training.checkpoint_every=2",
        "training.keep_checkpoints=3",
        "training.validate_every=0",
        "training.sample_every=0",
        "data.dvae_batch_size=2",
        "data.num_workers=1",
    ] {
        arguments.extend(["--set", setting]);
    }
    println!("{}", done(&mut myxtts(folder, &arguments)));
    // As if the run had been killed between checkpoints.
    let run = folder.join("runs").join(RUN);
    fs::remove_dir_all(run.join("model")).unwrap();
    for checkpoint in Checkpoints::at(&run.join("checkpoints")).list().unwrap().checkpoints {
        if checkpoint.meta["step"] != 2 {
            fs::remove_dir_all(run.join("checkpoints").join(checkpoint.name())).unwrap();
        }
    }
    for part in ["samples", "tensorboard"] {
        fs::remove_dir_all(run.join(part)).unwrap();
    }
    copy(folder, &kept);
}
