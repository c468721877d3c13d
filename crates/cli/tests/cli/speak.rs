//! `myxtts speak`: files, reports and exit codes.

use std::path::Path;

use assert_cmd::Command;
use myxtts_data::audio::{decode, wav};
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
    let decoded = decode(&at.path().join("a.wav")).unwrap();
    assert_eq!(decoded.clip.sample_rate, 24_000);
    assert_eq!(decoded.clip.samples.len(), tiny::decoder_sizes().samples_of(tiny::CODES_PER_TEXT));
    assert_eq!(report["codes"], tiny::CODES_PER_TEXT);
    assert_eq!((&report["quality"], &report["ended"]), (&"decoded".into(), &"limit".into()));
    // Speech never ends: two retries, each with its own seed.
    let seeds: Vec<u64> = (0..3).filter_map(|i| report["attempts"][i]["seed"].as_u64()).collect();
    assert_eq!((seeds, &report["flaw"]["kind"]), (vec![0, 1, 2], &"no_end".into()));
    myxtts(at.path(), &say)
        .args(["-o", "b.wav", "--retries", "1"])
        .assert()
        .success()
        .stdout(contains("on cpu").and(contains("24000 Hz")).and(contains("b.wav")))
        .stdout(contains("did not end by itself").and(contains("seed 1: ")).and(contains("seed 2").not()));
    let bytes = |name: &str| std::fs::read(at.path().join(name)).unwrap();
    assert!(bytes("a.wav") == bytes("b.wav"), "the same seed gives the same audio");
    myxtts(at.path(), &say).args(["-o", "c.wav", "--seed", "7"]).assert().success();
    assert!(bytes("a.wav") != bytes("c.wav"), "another seed gives other audio");
    myxtts(at.path(), &say)
        .args(["-o", "d.wav", "--model", "early", "--greedy"])
        .assert()
        .success()
        .stdout(contains("22050 Hz").and(contains("early quality")));
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
    fails(
        &["Hello", "--voice", "ref.wav", "--model", "none"],
        2,
        "no run or model folder named none; there are no runs in runs",
    );
    fails(&["Hello", "--voice", "ref.wav", "--model", "."], 65, "not a model folder");
    fails(&["Hello", "--voice", "none.wav"], 74, "there is no recording none.wav\n");
    fails(
        &["Hello", "--voice", "nobody"],
        2,
        "\"nobody\" is neither a voice of this model (it has none) nor a file",
    );
    let piped = ["speak", "-o", "out.wav", "--device", "cpu", "--voice", "ref.wav"];
    let silent = myxtts(at.path(), &piped).write_stdin("").assert().code(2);
    silent.stderr(contains("no text given: pass TEXT, --file, or text on standard input"));
    let inside = ["speak", "Hello", "--device", "cpu", "--voice", "ref.wav", "-o", "text.wav/out.wav"];
    myxtts(at.path(), &inside).assert().code(2).stderr(contains("text.wav is a file, not a folder"));
    fails(&["Hello", "--voice", "text.wav"], 65, "text.wav");
    fails(&["Hello", "--voice", "silent.wav"], 65, "silent");
    fails(&["...", "--voice", "ref.wav"], 65, "nothing to say");
    fails(&["...\n\n* * *\n\n?!", "--voice", "ref.wav"], 65, "nothing to say");
    fails(&["", "--voice", "ref.wav"], 65, "nothing to say");
    fails(&["Hallo", "--voice", "ref.wav", "--language", "de"], 2, "[de]");
    fails(&["Hello", "--voice", "ref.wav", "--temperature", "0"], 2, "above 0");
    fails(&["Hello"], 2, "--voice");
    let device = ["speak", "Hello", "--voice", "ref.wav", "-o", "out.wav", "--device"];
    myxtts(at.path(), &device).arg("gpu").assert().code(2).stderr(contains("cuda:1"));
    myxtts(at.path(), &device).arg("cuda:99").assert().code(2).stderr(contains("there is no cuda:99"));
}

/// Speaks, and returns the report.
fn say(at: &Path, arguments: &[&str]) -> serde_json::Value {
    let common = ["speak", "--device", "cpu", "--voice", "ref.wav", "--json"];
    let shown = myxtts(at, &common).args(arguments).assert().success();
    serde_json::from_slice(&shown.get_output().stdout).unwrap()
}

const LONG: &str =
    "Hello world. This is a voice.\n\nhello, this is a world, this is a voice, hello. [pause:1s] A voice!";

#[test]
fn long_text_is_spoken_in_pieces_from_any_source() {
    let at = folder();
    std::fs::write(at.path().join("book.txt"), LONG).unwrap();
    let report = say(at.path(), &[LONG, "-o", "a.wav"]);
    let pieces = report["pieces"].as_array().unwrap();
    assert!(pieces.len() >= 4, "{report}");
    let decoded = decode(&at.path().join("a.wav")).unwrap();
    let seconds = report["seconds"].as_f64().unwrap();
    assert!((decoded.clip.seconds() - seconds).abs() < 1e-6);
    // The pause mark becomes silence and is not spoken.
    let last = pieces.len() - 1;
    let gap = pieces[last]["start"].as_f64().unwrap() - pieces[last - 1]["end"].as_f64().unwrap();
    assert!((gap - 1.0).abs() < 1e-3, "{gap}");
    assert!(!report.to_string().contains("pause:"));
    // The same from a file and from standard input; no other files are left.
    say(at.path(), &["--file", "book.txt", "-o", "b.wav", "--srt", "b.srt"]);
    let piped = ["speak", "--device", "cpu", "--voice", "ref.wav", "-o", "c.wav"];
    myxtts(at.path(), &piped).write_stdin(LONG).assert().success().stdout(contains("pieces"));
    let bytes = |name: &str| std::fs::read(at.path().join(name)).unwrap();
    assert!(bytes("a.wav") == bytes("b.wav") && bytes("a.wav") == bytes("c.wav"));
    let srt = String::from_utf8(bytes("b.srt")).unwrap();
    assert!(srt.starts_with("1\n00:00:00,000 --> ") && srt.matches(" --> ").count() == pieces.len(), "{srt}");
    let left = std::fs::read_dir(at.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<String> = left.map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.contains(".part") || name.contains(".journal")), "{left:?}");
}

#[test]
fn an_interrupted_book_needs_resume_and_is_then_byte_identical() {
    let at = folder();
    say(at.path(), &[LONG, "-o", "whole.wav"]);
    // A text with invalid UTF-8 in the middle.
    let mut broken = LONG.as_bytes().to_vec();
    broken.extend([b' '; 20_000]);
    broken.push(0xff);
    std::fs::write(at.path().join("broken.txt"), &broken).unwrap();
    let say_file = ["speak", "--device", "cpu", "--voice", "ref.wav", "-o", "book.wav", "--file"];
    myxtts(at.path(), &say_file).arg("broken.txt").assert().code(65).stderr(contains("not UTF-8"));
    assert!(!at.path().join("book.wav").exists() && at.path().join("book.wav.journal").exists());
    std::fs::write(at.path().join("book.txt"), LONG).unwrap();
    myxtts(at.path(), &say_file).arg("book.txt").assert().code(2).stderr(contains("--resume continues it"));
    myxtts(at.path(), &say_file)
        .args(["book.txt", "--resume", "--seed", "5"])
        .assert()
        .code(2)
        .stderr(contains("other settings"));
    let report = say(at.path(), &["--file", "book.txt", "-o", "book.wav", "--resume"]);
    assert!(report["resumed"].as_u64().unwrap() > 0, "{report}");
    let bytes = |name: &str| std::fs::read(at.path().join(name)).unwrap();
    assert!(bytes("book.wav") == bytes("whole.wav"));
}

#[test]
fn formats_follow_the_name_or_the_flag_and_streams_go_to_standard_output() {
    let at = folder();
    let expected = tiny::decoder_sizes().samples_of(tiny::CODES_PER_TEXT);
    for (name, arguments) in [
        ("a.flac", vec![]),
        ("a.mp3", vec![]),
        ("b.wav", vec!["--format", "wav24"]),
        ("s.flac", vec!["--stream"]),
    ] {
        let report = say(at.path(), &[&["Hello world", "-o", name], &arguments[..]].concat());
        assert_eq!(decode(&at.path().join(name)).unwrap().clip.samples.len(), expected, "{report}");
    }
    say(at.path(), &["Hello world", "-o", "a.opus"]);
    assert!(std::fs::read(at.path().join("a.opus")).unwrap().starts_with(b"OggS"));
    let piped = |arguments: &[&str]| {
        let common = ["speak", "Hello world", "--device", "cpu", "--voice", "ref.wav", "-o", "-"];
        let shown =
            myxtts(at.path(), &common).args(arguments).assert().success().stderr(contains("24000 Hz"));
        shown.get_output().stdout.clone()
    };
    let raw = piped(&["--format", "pcm"]);
    assert_eq!(raw.len(), 2 * expected);
    let wav = piped(&["--stream"]);
    assert_eq!(wav[4..8], [0xff; 4]);
    // The same codes; in windows the decoder rounds in another order.
    let values = |bytes: &[u8]| -> Vec<i32> {
        bytes.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]]).into()).collect()
    };
    let (streamed, whole) = (values(&wav[44..]), values(&raw));
    assert_eq!(streamed.len(), whole.len());
    assert!(streamed.iter().zip(&whole).all(|(a, b)| a.abs_diff(*b) <= 33), "1e-3 of full scale");
    let report = say(at.path(), &["Hello world", "-o", "fast.wav", "--speed", "2"]);
    let fast = decode(&at.path().join("fast.wav")).unwrap().clip.samples.len();
    assert_eq!(fast, expected.div_ceil(2), "{report}");
    let fails = |arguments: &[&str], message: &str| {
        let common = ["speak", "Hello world", "--device", "cpu", "--voice", "ref.wav"];
        myxtts(at.path(), &common).args(arguments).assert().code(2).stderr(contains(message));
    };
    fails(&["-o", "a.m4a"], "there are wav, wav24, wav-float, flac, mp3, opus, pcm");
    fails(&["-o", "a"], "has no extension that gives the format");
    fails(&["-o", "a.wav", "--format", "aac"], "no encoder for \"aac\"");
    fails(&["-o", "a.wav", "--speed", "3"], "0.5 to 2");
    fails(&["-o", "a.opus", "--model", "early"], "22050 Hz");
    fails(&["--resume"], "-o");
    fails(&["--file", "x.txt"], "--file");
}

#[test]
fn length_penalty_without_candidates_is_noted_and_changes_nothing() {
    let at = folder();
    let speak = |arguments: &[&str], output: &str| {
        let common = ["speak", "Hello world", "--voice", "ref.wav", "--device", "cpu", "-o", output];
        let shown = myxtts(at.path(), &common).args(arguments).assert().success();
        String::from_utf8(shown.get_output().stderr.clone()).unwrap()
    };
    let bytes = |name: &str| std::fs::read(at.path().join(name)).unwrap();
    assert!(!speak(&[], "plain.wav").contains("--length-penalty"));
    // A model without a proofreader, one candidate, greedy and streamed speech: each has its reason.
    let shown = speak(&["--length-penalty", "1"], "penalised.wav");
    assert!(shown.contains("--length-penalty has no effect: this model cannot check its codes"), "{shown}");
    assert!(bytes("plain.wav") == bytes("penalised.wav"));
    for (arguments, reason) in [
        (&["--model", "early", "--length-penalty", "-1"][..], "--takes N generates more"),
        (&["--model", "early", "--takes", "3", "--greedy", "--length-penalty", "1"], "--greedy has one"),
        (&["--model", "early", "--takes", "3", "--stream", "--length-penalty", "1"], "streamed and played"),
    ] {
        let shown = speak(arguments, "other.wav");
        assert!(shown.contains(reason), "{arguments:?}: {shown}");
    }
    let ranked = ["--model", "early", "--takes", "3", "--length-penalty", "1"];
    assert!(!speak(&ranked, "ranked.wav").contains("--length-penalty"));
    let common = ["speak", "Hello", "--voice", "ref.wav", "--length-penalty"];
    for wrong in ["11", "nan", "x"] {
        myxtts(at.path(), &common).arg(wrong).assert().code(2).stderr(contains("from -10 to 10"));
    }
}

/// Threads of a process that has begun to speak and waits for its output to be read.
#[cfg(target_os = "linux")]
fn threads_while_speaking(at: &Path, limit: &str) -> usize {
    use std::io::Read;
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_myxtts"))
        .current_dir(at)
        .args(["speak", LONG, "--voice", "ref.wav", "--device", "cpu", "--format", "pcm", "-o", "-"])
        .args(["--threads", limit])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count();
    child.kill().unwrap();
    child.wait().unwrap();
    threads
}

#[cfg(target_os = "linux")]
#[test]
fn threads_are_bounded_on_request() {
    let at = folder();
    let one = threads_while_speaking(at.path(), "1");
    // The main thread and one that waits for signals are not among those that compute.
    assert!(one <= 3, "{one} threads");
    assert_eq!(threads_while_speaking(at.path(), "4"), one + 3);
    let wrong = ["speak", "Hello", "--threads", "0"];
    myxtts(at.path(), &wrong).assert().code(2).stderr(contains("above 0"));
}

#[test]
fn defaults_find_a_model_a_voice_a_language_and_a_name() {
    let at = folder();
    let add = ["voice", "add", "anna", "ref.wav", "--device", "cpu"];
    myxtts(at.path(), &add).assert().success();
    let bare = ["speak", "Hello world", "--device", "cpu", "--json"];
    let report = |arguments: &[&str]| -> serde_json::Value {
        let shown = myxtts(at.path(), arguments).assert().success();
        serde_json::from_slice(&shown.get_output().stdout).unwrap()
    };
    let first = report(&bare);
    assert_eq!((&first["model"], &first["voice"][0]), (&"model".into(), &"anna".into()));
    assert_eq!((&first["output"], &first["language"]), (&"speech.wav".into(), &"en".into()));
    assert_eq!(report(&bare)["output"], "speech-2.wav");
    let persian = report(&["speak", "سلام دنیا", "--device", "cpu", "--json", "--format", "mp3"]);
    assert_eq!((&persian["output"], &persian["language"]), (&"speech.mp3".into(), &"fa".into()));
    // Without ./model: the model that came with the program, in models/.
    std::fs::create_dir(at.path().join("models")).unwrap();
    std::fs::rename(at.path().join("model"), at.path().join("models/bundled")).unwrap();
    assert_eq!(report(&bare)["model"], "models/bundled");
    std::fs::rename(at.path().join("models"), at.path().join("elsewhere")).unwrap();
    myxtts(at.path(), &bare)
        .assert()
        .code(2)
        .stderr(contains("no model found in ./model, runs/*/model or models/").and(contains("--model")));
}

#[cfg(unix)]
#[test]
fn audio_is_played_by_the_installed_player() {
    use std::os::unix::fs::PermissionsExt;
    let at = folder();
    let play = ["speak", "Hello world", "--device", "cpu", "--voice", "ref.wav", "--play"];
    let empty = at.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    myxtts(at.path(), &play)
        .env("PATH", &empty)
        .assert()
        .code(2)
        .stderr(contains("ffplay, aplay, paplay, afplay"));
    let player = at.path().join("bin");
    std::fs::create_dir(&player).unwrap();
    let script = format!("#!/bin/sh\ncat > {}/heard.wav\n", at.path().display());
    std::fs::write(player.join("aplay"), script).unwrap();
    std::fs::set_permissions(player.join("aplay"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", player.display());
    // Another player may be installed, and would come first.
    if Path::new("/usr/bin/ffplay").exists() {
        std::fs::rename(player.join("aplay"), player.join("ffplay")).unwrap();
    }
    myxtts(at.path(), &play).args(["-o", "kept.wav"]).env("PATH", path).assert().success();
    let played = decode(&at.path().join("heard.wav")).unwrap().clip.samples;
    assert!(played == decode(&at.path().join("kept.wav")).unwrap().clip.samples);
    // A player that fails is an error, whether it has read the audio or not.
    let name = if Path::new("/usr/bin/ffplay").exists() { "ffplay" } else { "aplay" };
    for script in ["#!/bin/sh\ncat > /dev/null\nexit 3\n", "#!/bin/sh\nexit 3\n"] {
        std::fs::write(player.join(name), script).unwrap();
        myxtts(at.path(), &play)
            .env("PATH", format!("{}:/usr/bin:/bin", player.display()))
            .assert()
            .code(74)
            .stderr(contains(format!("the player {name} failed")).and(contains("3")).and(contains("-o")));
    }
}

#[cfg(unix)]
#[test]
fn a_stopped_or_killed_book_resumes() {
    use std::time::{Duration, Instant};
    let at = folder();
    std::fs::write(at.path().join("book.txt"), "Hello world. This is a voice, a world.\n\n".repeat(12))
        .unwrap();
    let arguments = ["--file", "book.txt", "--greedy", "-o"];
    say(at.path(), &[&arguments[..], &["whole.flac"]].concat());
    for (signal, code) in [("TERM", Some(143)), ("KILL", None)] {
        let common = ["speak", "--device", "cpu", "--voice", "ref.wav", "-o", "book.flac", "--greedy"];
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_myxtts"))
            .current_dir(at.path())
            .args(common)
            .args(["--file", "book.txt"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let journal = at.path().join("book.flac.journal");
        let spoken = || std::fs::read_to_string(&journal).unwrap_or_default().lines().count();
        let began = Instant::now();
        // A header and two pieces.
        while spoken() < 3 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = ["-s", signal, &child.id().to_string()].map(str::to_owned);
        assert!(std::process::Command::new("kill").args(kill).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), code);
        assert!(!at.path().join("book.flac").exists() && spoken() >= 3);
        let report = say(at.path(), &[&arguments[..], &["book.flac", "--resume"]].concat());
        assert!(report["resumed"].as_u64().unwrap() >= 2, "{report}");
        let bytes = |name: &str| std::fs::read(at.path().join(name)).unwrap();
        assert!(bytes("book.flac") == bytes("whole.flac"), "{signal}");
        std::fs::remove_file(at.path().join("book.flac")).unwrap();
    }
}
