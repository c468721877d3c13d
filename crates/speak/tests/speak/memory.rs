//! Memory, open files and threads do not grow with the number of utterances.
//!
//! The test binary starts itself as the measured process, so that no other test is counted. `MYXTTS_UTTERANCES=1000` raises the
//! number.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_demo as demo;
use myxtts_model::SamplingOptions;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_speak::{SpeakOptions, Synthesizer};
use myxtts_tensor::Device;
use std::fs;
use std::process::Command;

const CHILD: &str = "MYXTTS_TEST_SPEAK_FLAT_CHILD";

/// Number of utterances; the first tenth is warm-up.
const UTTERANCES: usize = 200;

/// Allowed growth after the warm-up in KiB; the requirement for a thousand utterances of a large model is 16 MiB.
const GROWTH_KIB: i64 = 2 << 10;

fn utterances() -> usize {
    std::env::var("MYXTTS_UTTERANCES").map_or(UTTERANCES, |count| count.parse().unwrap())
}

/// Anonymous memory of this process in KiB, its open files and its threads.
fn resources() -> [i64; 3] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let entries = |folder: &str| fs::read_dir(folder).unwrap().count() as i64;
    [
        line.trim().trim_end_matches(" kB").parse().unwrap(),
        entries("/proc/self/fd"),
        entries("/proc/self/task"),
    ]
}

/// The measured process. Does nothing in the parent process.
#[test]
fn child() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    let at = tempfile::tempdir().unwrap();
    tiny::write_ending(&at.path().join("model"), &[Part::Decoder, Part::Speaker], 0.0);
    let folder = ModelFolder::open(&at.path().join("model")).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let clip = Clip { samples, sample_rate: demo::SAMPLE_RATE };
    let voice = synthesizer.encode_voice(std::slice::from_ref(&clip)).unwrap();
    let all = utterances();
    for number in 0..all {
        if number == all / 10 || number + 1 == all {
            println!("held {:?}", resources());
        }
        let text = "hello world ".repeat(1 + number % 4);
        let sampling =
            SamplingOptions { seed: number as u64, repetition_penalty: 1.0, ..SamplingOptions::default() };
        let options = SpeakOptions { retries: usize::from(number % 10 == 0), ..sampling.into() };
        match number % 3 {
            0 => synthesizer.speak_with(&text, "en", &voice, &options).unwrap(),
            1 => synthesizer.speak_streamed(&text, "en", &voice, &options, &mut |_| true).unwrap(),
            _ => synthesizer.speak_streamed(&text, "en", &voice, &options, &mut |_| false).unwrap(),
        };
        if number % 50 == 0 {
            assert_eq!(synthesizer.encode_voice(std::slice::from_ref(&clip)).unwrap(), voice);
        }
    }
}

#[test]
fn hundreds_of_utterances_do_not_grow_memory_files_or_threads() {
    let name = concat!(module_path!(), "::child").split_once("::").unwrap().1;
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    // The test harness may have written to the same line.
    let lines = shown.lines().filter_map(|line| line.split_once("held ").map(|(_, held)| held));
    let measured: Vec<[i64; 3]> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let [before, after] = measured[..] else { panic!("{shown}") };
    let grown: Vec<i64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    println!(
        "{} utterances: memory {:+} KiB, files {:+}, threads {:+}",
        utterances(),
        grown[0],
        grown[1],
        grown[2]
    );
    assert!(grown[0] <= GROWTH_KIB && grown[1] <= 0 && grown[2] <= 0, "{before:?} became {after:?}");
}
