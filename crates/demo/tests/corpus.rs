//! The demo corpus: a folder in LJSpeech's layout, the same on every machine.

// Clippy exempts functions marked as tests, not their helpers.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use myxtts_data::audio::wav;
use myxtts_demo::{
    self as demo, DemoError, DemoOptions, Language, PretrainingOptions, ReadError, VOICES, Voice,
};
use myxtts_run::progress::Silent;
use proptest::prelude::*;

fn options(utterances: usize) -> DemoOptions {
    DemoOptions { utterances, seed: 7, ..DemoOptions::default() }
}

/// Every file of a folder by its relative path.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            out.extend(files(&path).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            out.insert(name, std::fs::read(&path).unwrap());
        }
    }
    out
}

fn lines(dir: &Path, file: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(dir.join(file)).unwrap();
    assert!(text.ends_with('\n'));
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

#[test]
fn the_folder_has_the_ljspeech_layout_with_speakers() {
    let dir = tempfile::tempdir().unwrap();
    let report = demo::write(dir.path(), &options(24), &Silent).unwrap();
    let metadata = lines(dir.path(), "metadata.csv");
    let speakers = lines(dir.path(), "speakers.csv");
    assert_eq!((report.utterances, metadata.len(), speakers.len()), (24, 24, 24));
    assert_eq!(report.speakers, ["mina", "dara", "kian"]);
    assert_eq!(report.languages, ["en", "fa"]);

    let (mut seconds, mut spelled_out) = (0.0, 0);
    for (line, speaker) in metadata.iter().zip(&speakers) {
        let [id, text, normalised] = line.as_slice() else { panic!("{line:?}") };
        let [same_id, name, language] = speaker.as_slice() else { panic!("{speaker:?}") };
        assert_eq!(id, same_id);
        assert!(report.speakers.contains(&name.as_str()) && report.languages.contains(&language.as_str()));
        assert!(!normalised.contains(|c: char| c.is_numeric()), "{normalised}");
        spelled_out += usize::from(text != normalised);

        let path = dir.path().join("wavs").join(format!("{id}.wav"));
        let decoded = wav::decode(&std::fs::read(&path).unwrap(), &path).unwrap();
        assert_eq!(
            (decoded.clip.sample_rate, decoded.info.channels, decoded.info.bits),
            (22_050, 1, Some(16))
        );
        let samples = &decoded.clip.samples;
        let length = samples.len() as f64 / 22_050.0;
        assert!((1.0..8.0).contains(&length), "{id}: {length} s for {text}");
        seconds += length;

        let level = |part: &[f32]| {
            10.0 * (part.iter().map(|&x| f64::from(x * x)).sum::<f64>() / part.len() as f64 + 1e-12).log10()
        };
        let peak = samples.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
        assert!((0.1..0.9).contains(&peak), "{id}: peak {peak}");
        assert!((-25.0..-20.0).contains(&level(samples)), "{id}: {} dB", level(samples));
        // Both ends can be trimmed; they are quiet but not digital silence.
        for silence in [&samples[..2000], &samples[samples.len() - 1500..]] {
            assert!((-80.0..-60.0).contains(&level(silence)), "{id}: room at {} dB", level(silence));
        }
    }
    assert!(spelled_out >= 2, "numbers in digits: {spelled_out}");
    assert!((report.seconds - seconds).abs() < 1e-6);
}

#[test]
fn threads_do_not_change_a_byte() {
    let [one, four] = [1, 4].map(|threads| {
        let dir = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| demo::write(dir.path(), &options(12), &Silent)).unwrap();
        files(dir.path())
    });
    assert_eq!(one.len(), 12 + 3);
    assert!(one == four);
}

#[test]
fn a_second_run_changes_nothing_and_new_options_replace_the_corpus() {
    let dir = tempfile::tempdir().unwrap();
    demo::write(dir.path(), &options(12), &Silent).unwrap();
    let first = files(dir.path());
    let touched = |name: &str| dir.path().join(name).metadata().unwrap().modified().unwrap();
    let before = touched("metadata.csv");
    demo::write(dir.path(), &options(12), &Silent).unwrap();
    assert!(files(dir.path()) == first);
    assert_eq!(touched("metadata.csv"), before, "an unchanged file was rewritten");

    // Fewer utterances and another seed: the old corpus is removed, a foreign file stays.
    std::fs::write(dir.path().join("wavs/mine.wav"), b"mine").unwrap();
    demo::write(dir.path(), &DemoOptions { seed: 8, ..options(4) }, &Silent).unwrap();
    let second = files(dir.path());
    assert_eq!(second.len(), 4 + 3 + 1, "{:?}", second.keys());
    assert!(second["wavs/en_mina_00001.wav"] != first["wavs/en_mina_00001.wav"]);
    assert_eq!(second["wavs/mine.wav"], b"mine");
}

#[test]
fn a_run_that_was_killed_is_completed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    // A run killed while writing its first file.
    std::fs::write(dir.path().join("demo-corpus.json.unfinished"), b"{").unwrap();
    demo::write(dir.path(), &options(6), &Silent).unwrap();
    let whole = files(dir.path());
    assert_eq!(whole.len(), 6 + 3);
    // A run killed later: no metadata, one audio file missing, one damaged, one partially written.
    std::fs::remove_file(dir.path().join("metadata.csv")).unwrap();
    std::fs::remove_file(dir.path().join("wavs/fa_mina_00002.wav")).unwrap();
    std::fs::write(dir.path().join("wavs/en_dara_00003.wav"), b"RIFF").unwrap();
    std::fs::write(dir.path().join("wavs/fa_dara_00004.wav.unfinished"), b"RI").unwrap();
    demo::write(dir.path(), &options(6), &Silent).unwrap();
    assert!(files(dir.path()) == whole);
}

#[test]
fn a_folder_with_other_content_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metadata.csv"), "LJ001-0001|mine|mine\n").unwrap();
    let rejected = demo::write(dir.path(), &options(2), &Silent);
    assert!(
        matches!(&rejected, Err(DemoError::NotEmpty { dir: named }) if named == dir.path()),
        "{rejected:?}"
    );
    assert_eq!(files(dir.path()).len(), 1, "files were changed");
    demo::write(dir.path(), &DemoOptions { overwrite: true, ..options(2) }, &Silent).unwrap();
    assert_eq!(lines(dir.path(), "metadata.csv").len(), 2);
}

#[test]
fn options_out_of_range_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let invalid = [
        (DemoOptions { speakers: 1001, ..options(2) }, "1 to 1000"),
        (DemoOptions { speakers: 0, ..options(2) }, "1 to 1000"),
        (DemoOptions { languages: vec![], ..options(2) }, "en, fa"),
        (DemoOptions { languages: vec![Language::Persian; 2], ..options(2) }, "once"),
        (options(0), "at least 1"),
    ];
    for (options, expected) in invalid {
        match demo::write(dir.path(), &options, &Silent) {
            Err(DemoError::Options(message)) => assert!(message.contains(expected), "{message}"),
            other => panic!("{options:?}: {other:?}"),
        }
    }
    assert!(files(dir.path()).is_empty());
}

/// One fixed hash per speaker: the samples are the same on every machine. An intended change of the
/// synthesiser changes them; another compiler, platform or thread count must not.
#[test]
fn audio_is_the_same_on_every_machine() {
    let hashes = VOICES.map(|voice| {
        let mut hash = blake3::Hasher::new();
        for sentence in demo::held_out() {
            hash.update(&wav::encode_pcm16(&demo::speak(&sentence.text, sentence.language, &voice), 22_050));
        }
        format!("{} {}", voice.name, &hash.finalize().to_hex()[..16])
    });
    assert_eq!(hashes, ["mina 0a5cccea992ade6c", "dara 19cff71796b94d48", "kian 2436f2133e760161"]);
}

/// The same for words of the dictionary and sampled voices.
#[test]
fn sampled_voices_are_the_same_on_every_machine() {
    let hashes = ["voice-0004", "voice-0300", "voice-1000"].map(|name| {
        let voice = Voice::from_name(name).unwrap();
        let samples =
            demo::speak("Naïve colonels photographed Worcestershire, didn't they?", Language::English, voice);
        blake3::hash(&wav::encode_pcm16(&samples, 22_050)).to_hex()[..16].to_owned()
    });
    assert_eq!(hashes, ["9f274117e36aa3a9", "ab05e30df6125eb2", "e5d6f9b90a013614"]);
}

#[test]
fn a_pretraining_corpus_has_many_voices_and_the_given_texts() {
    let dir = tempfile::tempdir().unwrap();
    let (texts, rejected) =
        demo::read_texts("x|The quixotic ewe owes £3.|\n\nSecond line\n", &[Language::English]);
    assert_eq!((texts.len(), rejected), (2, vec![]));
    let options = PretrainingOptions { utterances: 12, speakers: 6, texts, ..Default::default() };
    let report = demo::write_pretraining(dir.path(), &options, &Silent).unwrap();
    assert_eq!((report.utterances, report.speakers.len(), report.languages), (12, 6, vec!["en"]));
    let metadata = lines(dir.path(), "metadata.csv");
    assert_eq!(metadata.iter().filter(|line| line[1] == "The quixotic ewe owes £3.").count(), 3);
    assert!(metadata.iter().any(|line| line[2] == "the quixotic ewe owes three pounds."), "{metadata:?}");
    let first = files(dir.path());
    assert_eq!(first.len(), 12 + 3);
    let again = demo::write_pretraining(dir.path(), &options, &Silent).unwrap();
    assert!((again.seconds - report.seconds).abs() < 1e-6 && files(dir.path()) == first);
    // Missing files are restored, and new options replace the corpus.
    std::fs::remove_file(dir.path().join(format!("wavs/{}.wav", metadata[5][0]))).unwrap();
    demo::write_pretraining(dir.path(), &options, &Silent).unwrap();
    assert!(files(dir.path()) == first);
    let other = PretrainingOptions { utterances: 4, texts_share: 0.0, seed: 2, ..options };
    demo::write_pretraining(dir.path(), &other, &Silent).unwrap();
    assert_eq!(files(dir.path()).len(), 4 + 3);
    // A pretraining corpus is not replaced by a demo corpus.
    let rejected = demo::write(dir.path(), &self::options(2), &Silent);
    assert!(matches!(rejected, Err(DemoError::NotEmpty { .. })), "{rejected:?}");
    let share = PretrainingOptions { texts_share: 1.5, ..other };
    assert!(matches!(demo::write_pretraining(dir.path(), &share, &Silent), Err(DemoError::Options(_))));
}

#[test]
fn audio_differs_for_other_texts_only() {
    for voice in &VOICES {
        let speak = |text| demo::speak(text, Language::English, voice);
        assert_eq!(speak("a red hat"), speak("a red hat"));
        assert_ne!(speak("a red hat"), speak("a red cat"));
        assert_ne!(speak("is it here?"), speak("is it here."));
    }
    assert_ne!(
        demo::speak("a", Language::English, &VOICES[0]),
        demo::speak("a", Language::English, &VOICES[1])
    );
}

#[test]
fn held_out_sentences_can_be_spoken_and_are_never_generated() {
    let held_out = demo::held_out();
    assert_eq!(held_out.len(), 6);
    let dir = tempfile::tempdir().unwrap();
    demo::write(dir.path(), &options(40), &Silent).unwrap();
    let generated = lines(dir.path(), "metadata.csv");
    for sentence in &held_out {
        assert!(demo::phonemes(&sentence.text, sentence.language).is_ok(), "{}", sentence.text);
        assert!(generated.iter().all(|line| line[1] != sentence.text));
    }
}

#[test]
fn unpronounceable_text_is_reported() {
    let unknown = demo::phonemes("good день", Language::English);
    assert_eq!(unknown, Err(ReadError::UnknownCharacter { character: 'д', language: "en" }));
    assert!(matches!(demo::phonemes(" ?! ", Language::Persian), Err(ReadError::NothingToSay { .. })));
    // `speak` skips it: silence, but no error.
    let silence = demo::speak("день", Language::English, &VOICES[0]);
    assert!(!silence.is_empty() && silence.iter().all(|sample| sample.abs() < 0.01));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A word of letters always has a vowel.
    #[test]
    fn any_word_of_letters_has_a_vowel(english in "[a-z]{1,12}", persian in "[آابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهی]{1,10}") {
        for (word, language) in [(&english, Language::English), (&persian, Language::Persian)] {
            let phrases = demo::phonemes(word, language).unwrap();
            let phones = &phrases[0].words[0].phones;
            prop_assert!(phones.iter().any(|phone| phone.phoneme.is_vowel()), "{word}: {phones:?}");
        }
    }

    #[test]
    fn any_text_is_read_or_rejected_without_panic(text in "\\PC{0,40}") {
        for language in Language::ALL {
            _ = demo::phonemes(&text, language);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_text_gives_finite_samples_within_range(text in "[a-z آ-ی\u{64b}-\u{652}\u{200c}0-9۰-۹.,?!]{0,24}", voice in 0..3_usize) {
        for language in Language::ALL {
            let samples = demo::speak(&text, language, &VOICES[voice]);
            prop_assert!(samples.iter().all(|sample| sample.is_finite() && sample.abs() < 0.9));
        }
    }
}
