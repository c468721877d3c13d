//! `myxtts evaluate --texts` and `myxtts resynthesize`: reports, files and exit codes.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use myxtts_data::audio::{decode, wav};
use myxtts_demo as demo;
use myxtts_model::weights::Part;
use predicates::str::contains;
use serde_json::Value;

use crate::tiny;

fn myxtts(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.current_dir(folder).args(arguments).args(["--device", "cpu"]);
    command
}

/// A model with all parts, recordings, and a list of them in a folder of its own.
fn folder() -> tempfile::TempDir {
    let at = tempfile::tempdir().unwrap();
    tiny::write(&at.path().join("model"), &[Part::Decoder, Part::Speaker, Part::Dvae]);
    tiny::write(&at.path().join("mute"), &[Part::Decoder, Part::Speaker]);
    fs::create_dir_all(at.path().join("data/wavs")).unwrap();
    for (i, name) in ["one", "two"].into_iter().enumerate() {
        let speech = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[i]);
        let bytes = wav::encode_pcm16(&speech, demo::SAMPLE_RATE);
        fs::write(at.path().join(format!("data/wavs/{name}.wav")), &bytes).unwrap();
        fs::write(at.path().join(format!("{name}.wav")), &bytes).unwrap();
    }
    // The third column of LJSpeech is not a recording, and not an error.
    let list = "# heard by both\none|This is my voice.|wavs/two.wav\ntwo|Hello there.|Hello there.\n";
    fs::write(at.path().join("data/list.csv"), list).unwrap();
    at
}

fn report(at: &Path, folder: &str) -> Value {
    serde_json::from_slice(&fs::read(at.join(folder).join("report.json")).unwrap()).unwrap()
}

#[test]
fn a_list_is_spoken_and_measured_and_a_seed_repeats_it() {
    let at = folder();
    let say = ["evaluate", "model", "--texts", "data/list.csv", "--voice", "one.wav", "--language", "en"];
    myxtts(at.path(), &say).args(["-o", "a", "--seed", "5"]).assert().success().stdout(contains("2 of 2"));
    let found = report(at.path(), "a");
    let items = found["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["id"], &items[1]["file"]), (2, &"one".into(), &"two.wav".into()));
    for item in items {
        assert_eq!((&item["ended"], &item["error"]), (&"limit".into(), &Value::Null));
        let decoded = decode(&at.path().join("a").join(item["file"].as_str().unwrap())).unwrap().clip;
        assert_eq!(decoded.sample_rate, 24_000);
        let speech = item["seconds"].as_f64().unwrap();
        assert!((decoded.seconds() - speech - 0.3).abs() < 1e-3, "0.3 s of silence follow the speech");
        assert!(item["distortion"].as_f64().is_some(), "the recording lies in wavs/: {item}");
        assert!(item["similarity"].as_f64().is_some() && item["transcript"].is_null(), "{item}");
    }
    for key in ["distortion", "similarity", "duration_ratio", "looping", "silent"] {
        let figure = &found["figures"][key];
        let [low, value, high] = ["low", "value", "high"].map(|key| figure[key].as_f64().unwrap());
        assert!(low <= value && value <= high && figure["count"] == 2, "{key}: {figure}");
    }
    let bytes = |folder: &str, id: &str| fs::read(at.path().join(folder).join(format!("{id}.wav"))).unwrap();
    // The result depends only on the seed, not on the other texts of the list.
    fs::write(at.path().join("data/other.csv"), "two|Hello there.\n").unwrap();
    let other = ["evaluate", "model", "--texts", "data/other.csv", "--voice", "one.wav", "--language", "en"];
    myxtts(at.path(), &other).args(["-o", "b", "--seed", "5", "--json"]).assert().success();
    assert!(bytes("a", "two") == bytes("b", "two"));
    myxtts(at.path(), &other).args(["-o", "c", "--seed", "6"]).assert().success();
    assert!(bytes("a", "two") != bytes("c", "two"));
}

#[test]
fn recordings_go_through_the_dvae_and_through_all_parts() {
    let at = folder();
    let pass = ["resynthesize", "model", "data/list.csv", "--language", "en"];
    myxtts(at.path(), &pass).args(["-o", "out"]).assert().success().stdout(contains("nats per code"));
    let found = report(at.path(), "out");
    let original = decode(&at.path().join("data/wavs/one.wav")).unwrap().clip;
    for (way, rate) in [("original", 22_050), ("dvae", 22_050), ("decoder", 24_000)] {
        let decoded = decode(&at.path().join(format!("out/{way}/one.wav"))).unwrap().clip;
        assert_eq!(decoded.sample_rate, rate);
        assert!((decoded.seconds() - original.seconds()).abs() < 0.1, "{way}: {} s", decoded.seconds());
        let figures = &found["ways"][way];
        assert_eq!(figures["distortion"].is_null(), way == "original", "{way}: {figures}");
        assert_eq!(figures["seconds"]["count"], 2);
    }
    assert!(found["fit"]["loss"].as_f64().unwrap() > 0.0);
    assert_eq!(found["items"].as_array().unwrap().len(), 2);
    // A single recording, with its text in a file next to it or as an argument.
    fs::write(at.path().join("one.txt"), "This is\nmy voice.").unwrap();
    myxtts(at.path(), &["resynthesize", "model", "one.wav", "-o", "alone", "--language", "en"])
        .assert()
        .success();
    assert_eq!(report(at.path(), "alone")["items"][0]["text"], "This is my voice.");
}

/// A run that has only a DVAE so far can be resynthesised as well.
#[test]
fn a_model_with_only_a_dvae_resynthesizes_recordings() {
    let at = folder();
    let corpus = super::train::corpus();
    let train =
        ["train", "corpus", "--name", "first", "--stage", "dvae", "--dvae-steps", "2", "--preset", "tiny"];
    myxtts(corpus.path(), &train).assert().success();
    let model = corpus.path().join("runs/first/model").display().to_string();
    let pass = ["resynthesize", &model, "data/list.csv", "--language", "en", "-o", "out"];
    myxtts(at.path(), &pass).assert().success();
    assert!(at.path().join("out/dvae/one.wav").is_file() && !at.path().join("out/decoder").exists());
    let found = report(at.path(), "out");
    assert!(found["fit"].is_null() && found["failed"] == 0, "{found}");
    assert_eq!(found["ways"]["dvae"]["seconds"]["count"], 2);
    // A model without a GPT names no language, and recognisers were given none.
    let pass = [
        "resynthesize",
        &model,
        "data/list.csv",
        "-o",
        "unnamed",
        "--recognizer-command",
        "echo {language} {wav}",
    ];
    myxtts(at.path(), &pass).assert().success();
    let found = report(at.path(), "unnamed");
    let heard = found["items"][0]["ways"]["original"]["transcript"].as_str().unwrap();
    assert!(heard.starts_with("en "), "{heard}");
}

#[test]
fn mistakes_have_their_messages_and_exit_codes() {
    let at = folder();
    let fails = |arguments: &[&str], code: i32, message: &str| {
        myxtts(at.path(), arguments).assert().code(code).stderr(contains(message));
        assert!(!at.path().join("out").exists(), "{arguments:?}");
    };
    let list = |text: &str| fs::write(at.path().join("data/bad.csv"), text).unwrap();
    let texts = ["evaluate", "model", "--texts", "data/bad.csv", "-o", "out"];
    let with = |more: &[&'static str]| [&texts[..], more].concat();
    list("one|Hello.\n");
    for number in ["nan", "inf", "-1", "0", "x"] {
        fails(&with(&["--temperature", number]), 2, "temperature");
        fails(&with(&["--repetition-penalty", number]), 2, "repetition-penalty");
    }
    fails(&with(&["--guidance", "-1"]), 2, "of at least 0");
    fails(&with(&["--guidance", "nan"]), 2, "of at least 0");
    fails(&with(&["--top-p", "1.5"]), 2, "at most 1");
    fails(&with(&["--top-p", "nan"]), 2, "at most 1");
    fails(&with(&["--limit", "0"]), 2, "above 0");
    fails(&["evaluate", "model", "--sentences", "0"], 2, "above 0");
    fails(&["evaluate", "model", "--candidates", "-3"], 2, "candidates");
    fails(&["evaluate", "model", "--texts", "data/list.csv"], 2, "--output");
    fails(&["evaluate", "model"], 2, "is a model folder, which has no validation set");
    fails(&["evaluate", "nothing"], 2, "nothing");
    fails(&["evaluate", "data"], 2, "neither a model folder (no manifest.json) nor a run folder");
    fails(&texts, 2, "line 1: one has no reference");
    fails(&with(&["--voice", "none.wav"]), 74, "none.wav");
    fails(&with(&["--recognizer-command", "whisper", "--voice", "one.wav"]), 2, "{wav}");
    fails(&with(&["--recognizer-url", "ftp://x", "--voice", "one.wav"]), 2, "http://");
    list("");
    fails(&texts, 65, "not a list of texts");
    list("../up|Hello.\n");
    fails(&texts, 65, "line 1: the id ../up cannot be a file name");
    list("a|Hello.\n\na|Again.\n");
    fails(&texts, 65, "line 3: the id a is already used in line 1");
    list("a|Hello.|wavs/none.wav\n");
    fails(&texts, 65, "the recording data/wavs/none.wav does not exist");
    fs::write(at.path().join("data/bad.csv"), b"a|\xff\xfe").unwrap();
    fails(&texts, 65, "line 1 is not UTF-8");
    fails(&["resynthesize", "mute", "data/list.csv", "-o", "out"], 65, "has no DVAE");
    fails(&["resynthesize", "model", "two.wav", "-o", "out"], 2, "two.txt");
    fails(&["resynthesize", "model", "none.csv", "-o", "out"], 74, "none.csv");
    list("missing|Hello.\n");
    fails(&["resynthesize", "model", "data/bad.csv", "-o", "out"], 2, "no audio file missing.*");
    fails(
        &["resynthesize", "model", "one.wav", "data/wavs/one.wav", "--text", "x", "-o", "out"],
        2,
        "one.wav",
    );
}

#[test]
fn a_text_that_cannot_be_spoken_is_named_and_the_others_are_spoken() {
    let at = folder();
    let long = "hello world ".repeat(90);
    let list = format!("short|\u{1b}[31mHello\u{1b}[0m there.\nlong|{long}\nmarks|...\n");
    fs::write(at.path().join("list.txt"), list).unwrap();
    myxtts(at.path(), &["evaluate", "model", "--texts", "list.txt", "--voice", "one.wav", "-o", "out"])
        .args(["--language", "en"])
        .assert()
        .code(65)
        .stderr(contains("long was not spoken"))
        .stdout(contains("1 of 3"));
    let found = report(at.path(), "out");
    assert!(at.path().join("out/short.wav").is_file() && !at.path().join("out/long.wav").exists());
    assert_eq!((&found["failed"], &found["items"][1]["silent"]), (&2.into(), &true.into()));
    assert!(found["items"][2]["error"].as_str().unwrap().contains("nothing to say"));
}

#[cfg(unix)]
#[test]
fn a_user_supplied_recogniser_gives_error_rates_and_pages_have_players() {
    let at = folder();
    let say = ["evaluate", "model", "--texts", "data/list.csv", "--voice", "one.wav", "--language", "en"];
    let hears = "sh -c 'echo this is your voice' {wav}";
    myxtts(at.path(), &say).args(["-o", "out", "--recognizer-command", hears]).assert().success();
    let found = report(at.path(), "out");
    assert_eq!(
        (&found["items"][0]["words"]["errors"], &found["items"][0]["words"]["of"]),
        (&1.into(), &4.into())
    );
    // Four words and two: one is wrong in the first, all and two more in the second.
    assert_eq!(found["figures"]["wer"]["value"], 5.0 / 6.0, "{}", found["figures"]);
    let page = fs::read_to_string(at.path().join("out/report.html")).unwrap();
    for wanted in ["src=\"original/one.wav\"", "src=\"one.wav\"", "word error rate", "this is your voice"] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(at.path().join("out/original/two.wav").is_file());
    let pass = ["resynthesize", "model", "data/list.csv", "--language", "en", "-o", "parts"];
    myxtts(at.path(), &pass).args(["--recognizer-command", hears]).assert().success();
    let ways = &report(at.path(), "parts")["ways"];
    assert_eq!(ways["original"]["wer"]["value"], ways["decoder"]["wer"]["value"]);
    let page = fs::read_to_string(at.path().join("parts/report.html")).unwrap();
    assert!(page.contains("src=\"dvae/one.wav\"") && page.contains("src=\"decoder/two.wav\""), "{page}");
    // A recogniser that fails: everything else is still measured.
    let broken = "sh -c 'echo no model >&2; exit 1' {wav}";
    myxtts(at.path(), &say)
        .args(["-o", "broken", "--recognizer-command", broken])
        .assert()
        .code(74)
        .stderr(contains("no model; the recogniser is no longer used").count(1));
    let found = report(at.path(), "broken");
    assert!(found["figures"]["wer"].is_null() && found["figures"]["distortion"]["count"] == 2);
    assert!(found["recognizer_error"].as_str().unwrap().contains("no model"));
}
