//! The number of threads that compute is bounded on request, and does not change the audio.
//!
//! The pool belongs to the process: the test binary starts itself, once for each number.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_speak::Synthesizer;
use myxtts_speak::threads::limit_threads;
use myxtts_tensor::Device;
use std::process::Command;

/// Holds the limit in the child process; empty for none.
const CHILD: &str = "MYXTTS_TEST_SPEAK_THREADS_CHILD";

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Prints the number of threads that speaking has started and a hash of the audio. Does nothing in the parent process.
#[test]
fn child() {
    let Ok(limit) = std::env::var(CHILD) else { return };
    let before = threads();
    if !limit.is_empty() {
        limit_threads(limit.parse().unwrap()).unwrap();
    }
    let at = tempfile::tempdir().unwrap();
    tiny::write(at.path(), &[Part::Decoder, Part::Speaker]);
    let folder = ModelFolder::open(at.path()).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let voice = synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }]).unwrap();
    let options = synthesizer.default_sampling();
    let spoken = synthesizer.speak("hello world", "en", &voice, &options).unwrap();
    let bytes: Vec<u8> = spoken.samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    println!("started [{}, \"{}\"]", threads() - before, blake3::hash(&bytes));
    assert!(limit_threads(2).is_err(), "the threads have started");
}

fn started(limit: &str) -> (usize, String) {
    let name = concat!(module_path!(), "::child").split_once("::").unwrap().1;
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(CHILD, limit)
        .env_remove("RAYON_NUM_THREADS")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    let line = shown.lines().find_map(|line| line.split_once("started ").map(|(_, rest)| rest)).unwrap();
    serde_json::from_str(line).unwrap()
}

#[test]
fn threads_are_bounded_and_the_audio_is_the_same_for_any_number() {
    let (default, audio) = started("");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(default, cpus, "by default there is one thread for each CPU");
    for limit in [1, 2, 5] {
        assert_eq!(started(&limit.to_string()), (limit, audio.clone()), "at most {limit}");
    }
}
