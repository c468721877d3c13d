//! Corpora with few or no usable clips: each gives a message the user can act on, and none a crash.

use std::fs;
use std::path::Path;

use super::train::myxtts;

/// Writes a demo corpus.
fn corpus(clips: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let count = clips.to_string();
    let made = myxtts(folder.path(), &["demo-corpus", "corpus", "--utterances", &count]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

/// Minimal training with these settings. Returns the exit code and stderr.
fn trained(folder: &Path, name: &str, stage: &str, settings: &[&str]) -> (Option<i32>, String) {
    let mut arguments = vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny"];
    if stage != "all" {
        arguments.extend(["--stage", stage]);
    }
    let little = ["dvae", "gpt", "decoder"].map(|stage| format!("training.{stage}_steps=1"));
    let always = ["data.batch_size=2", "data.num_workers=1"];
    for setting in little.iter().map(String::as_str).chain(always).chain(settings.iter().copied()) {
        arguments.extend(["--set", setting]);
    }
    let output = myxtts(folder, &arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!words.contains("panicked"), "{words}");
    (output.status.code(), words)
}

fn assert_contains(words: &str, sentences: &[&str]) {
    for sentence in sentences {
        assert!(words.contains(sentence), "nothing of {sentence:?} in:\n{words}");
    }
}

#[test]
fn an_empty_validation_set_is_reported_before_training() {
    let folder = corpus(6);
    let (code, words) = trained(folder.path(), "none", "dvae", &["data.val_fraction=0"]);
    assert_eq!(code, Some(0), "{words}");
    assert_contains(
        &words,
        &["6 training clips, 0 validation clips", "the validation set is empty", "data.val_fraction"],
    );
    let (code, words) = trained(folder.path(), "some", "dvae", &["data.val_fraction=0.2"]);
    assert_eq!(code, Some(0), "{words}");
    assert!(!words.contains("the validation set is empty"), "{words}");
}

/// All three stages run, although each needs batches, a reference and validation codes.
#[test]
fn one_clip_is_trained_on_and_the_consequences_are_reported() {
    let folder = corpus(1);
    let (code, words) = trained(folder.path(), "one", "all", &["data.val_fraction=0.5"]);
    assert_eq!(code, Some(0), "{words}");
    assert_contains(
        &words,
        &[
            "1 training clips, 0 validation clips",
            "there is one clip",
            "a second clip",
            "speakers with one clip: mina",
        ],
    );
    assert!(folder.path().join("runs/one/model/decoder.safetensors").is_file(), "{words}");
}

#[test]
fn characters_outside_the_vocabulary_are_reported_with_their_clip() {
    let folder = corpus(6);
    let listed = folder.path().join("corpus/metadata.csv");
    let (code, words) = trained(folder.path(), "first", "dvae", &[]);
    assert_eq!(code, Some(0), "{words}");
    let vocabulary = folder.path().join("vocabulary.json");
    fs::copy(folder.path().join("corpus/.myxtts-cache/tokenizer.json"), &vocabulary).unwrap();
    let text = fs::read_to_string(&listed).unwrap();
    let id = text.split('|').next().unwrap().to_owned();
    let rest = text.split_once('\n').unwrap().1;
    fs::write(&listed, format!("{id}|Hello \u{6f22}\u{5b57}.|Hello \u{6f22}\u{5b57}.\n{rest}")).unwrap();
    let named = "data.tokenizer=vocabulary.json";
    // One failed clip of six exceeds the failure budget, unless it is raised.
    let (code, words) = trained(folder.path(), "strict", "dvae", &[named]);
    assert_eq!(code, Some(65), "{words}");
    assert_contains(&words, &[&id, "\u{6f22}", "myxtts tokenizer extend", "1 of 6"]);
    assert!(!folder.path().join("runs/strict").exists(), "{words}");
    let (code, words) = trained(folder.path(), "strict", "dvae", &[named, "data.failure_budget=0.5"]);
    assert_eq!(code, Some(0), "{words}");
    assert_contains(&words, &[&id, "\u{6f22}", "1 of 6 clips cannot be used", "dvae 1/1"]);
    // A run with a checkpoint is kept, even if its corpus is gone.
    fs::write(&listed, "").unwrap();
    let output = myxtts(folder.path(), &["train", "--resume", "strict", "--device", "cpu"]).output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    let kept = folder.path().join("runs/strict/checkpoints");
    assert!(fs::read_dir(kept).unwrap().count() > 0, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn clips_over_the_limit_are_named_and_no_run_starts_if_all_are() {
    let folder = corpus(6);
    let (code, words) =
        trained(folder.path(), "all", "dvae", &["data.max_seconds=0.8", "data.failure_budget=1"]);
    assert_eq!(code, Some(65), "{words}");
    assert_contains(
        &words,
        &["mel frames", "the maximum is", "6 of 6 clips cannot be used", "no clip is left to train on"],
    );
    assert_contains(&words, &["no stage was started", "the name all is free"]);
    assert!(!folder.path().join("runs/all").exists(), "{words}");
    let seconds = longest(&folder.path().join("corpus/wavs"));
    let limit = format!("data.max_seconds={:.2}", seconds - 0.3);
    let (code, words) = trained(
        folder.path(),
        "all",
        "dvae",
        &[&limit, "data.failure_budget=0.9", "data.trim_silence=false"],
    );
    assert_eq!(code, Some(0), "{words}");
    assert_contains(&words, &["mel frames", "the maximum is", "clips cannot be used", "dvae 1/1"]);
}

/// Seconds of the longest WAV file of a folder (16 bit, mono).
fn longest(folder: &Path) -> f64 {
    let files = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let seconds = files.map(|wav| {
        let rate = u32::from_le_bytes(wav[24..28].try_into().unwrap());
        (wav.len() - 44) as f64 / 2.0 / f64::from(rate)
    });
    seconds.fold(0.0, f64::max)
}

/// Audio with NaN or Inf never becomes a record: the clip is named before training.
#[test]
fn audio_with_nan_or_inf_is_named() {
    let folder = corpus(6);
    let wavs = folder.path().join("corpus/wavs");
    let path = fs::read_dir(&wavs).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let samples = vec![f32::NAN; 48_000];
    fs::write(&path, float_wav(&samples)).unwrap();
    let (code, words) = trained(folder.path(), "nan", "dvae", &["data.failure_budget=0.5"]);
    assert_eq!(code, Some(0), "{words}");
    let id = path.file_stem().unwrap().to_string_lossy().into_owned();
    assert_contains(&words, &[&id, "NaN or infinite", "1 of 6 clips cannot be used"]);
}

/// A WAV file of 32-bit floats at 24 kHz.
fn float_wav(samples: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + data.len() as u32).to_le_bytes());
    wav.extend(b"WAVEfmt ");
    wav.extend(16u32.to_le_bytes());
    // IEEE float, one channel.
    wav.extend([3, 0, 1, 0]);
    wav.extend(24_000u32.to_le_bytes());
    wav.extend(96_000u32.to_le_bytes());
    wav.extend([4, 0, 32, 0]);
    wav.extend(b"data");
    wav.extend((data.len() as u32).to_le_bytes());
    wav.extend(data);
    wav
}
