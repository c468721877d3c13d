//! Signals at random moments: the first makes a run save and exit with 143, the second makes it exit at once; the run can be
//! resumed in both cases. `MYXTTS_STOPS=100` raises the number of signals from 20. The time that a stop takes is printed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use myxtts_run::checkpoint::Checkpoints;
use myxtts_run::seed::Seed;

use super::train::{corpus, done, myxtts, resume, train_dvae};

/// Far longer than a step of a tiny model, a save and two seconds on a busy machine; far shorter than the steps that were left.
const LONGEST_STOP: Duration = Duration::from_secs(40);

/// Runs a command until stderr contains a text, waits, and sends signals. Returns the exit code, stderr, and the time from the first
/// signal to the exit, which must not be long.
fn stopped(
    command: &mut Command,
    after: &str,
    wait: Duration,
    signals: usize,
) -> (Option<i32>, String, Duration) {
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut words = String::new();
    while !words.contains(after) && stderr.read_line(&mut words).unwrap() > 0 {}
    std::thread::sleep(wait);
    let asked = Instant::now();
    for _ in 0..signals {
        // The process may have exited before the second signal.
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).output().unwrap();
    }
    stderr.read_to_string(&mut words).unwrap();
    let code = child.wait().unwrap().code();
    let took = asked.elapsed();
    assert!(took < LONGEST_STOP, "the stop took {took:.1?}: {words}");
    (code, words, took)
}

/// The steps of a run's newest checkpoint; all of them must be whole.
fn saved(folder: &Path, name: &str) -> u64 {
    let checkpoints = Checkpoints::at(&folder.join("runs").join(name).join("checkpoints"));
    let listing = checkpoints.list().unwrap();
    assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
    for checkpoint in &listing.checkpoints {
        checkpoints.verify(checkpoint).unwrap_or_else(|damage| panic!("{damage}"));
    }
    listing.checkpoints.last().map_or(0, |checkpoint| checkpoint.step)
}

#[test]
fn signals_at_random_moments_end_a_run_cleanly_and_it_resumes() {
    let stops: u64 = std::env::var("MYXTTS_STOPS").map_or(20, |n| n.parse().unwrap());
    let folder = corpus();
    let folder = folder.path();
    let seed = Seed::new(4).derive("stops");
    let (mut steps, mut before) = (0, 0);
    let mut times = Vec::new();
    for attempt in 0..stops {
        let mut command = match attempt {
            // More steps than there is time for: it does not finish by itself.
            0 => {
                train_dvae(folder, "stopped", &["training.dvae_steps=100000", "training.checkpoint_every=0"])
            }
            _ => resume(folder, "stopped"),
        };
        // Half of the signals while it reads or builds, the others while it trains, however slow the machine is.
        let after = if attempt % 3 == 1 { "\n" } else { "windows of" };
        let wait = Duration::from_millis(seed.below(attempt, 200));
        let (code, words, took) = stopped(&mut command, after, wait, 1);
        times.push(took);
        assert_eq!(code, Some(143), "signal {attempt}: {words}");
        assert!(words.contains("--resume stopped"), "signal {attempt}: {words}");
        let now = saved(folder, "stopped");
        if words.contains("before the first step") {
            before += 1;
            assert_eq!(now, steps, "signal {attempt}: {words}");
        } else {
            // A stage that is still being set up has saved nothing new.
            assert!(
                now > steps || !words.contains("windows of"),
                "signal {attempt}: no step was saved: {words}"
            );
            assert!(words.contains(&format!("at step {now} of")), "signal {attempt}: {words}");
        }
        steps = now;
    }
    times.sort();
    println!(
        "{stops} signals, {steps} steps saved, {before} before the first step; from signal to exit: median {:.2?}, longest {:.2?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    assert!(steps >= stops / 2 && before < stops, "no signal arrived during training");
    // The promise is a step, a save and 2 s; the median allows for a busy machine, and for one slow stop.
    assert!(times[times.len() / 2] < Duration::from_secs(5), "{times:?}");
}

#[test]
fn a_second_signal_exits_at_once_without_damage() {
    let folder = corpus();
    let folder = folder.path();
    let settings = ["training.dvae_steps=6", "training.checkpoint_every=1"];
    done(&mut train_dvae(folder, "straight", &settings));
    for attempt in 0..4 {
        let mut command =
            if attempt == 0 { train_dvae(folder, "twice", &settings) } else { resume(folder, "twice") };
        let (code, words, _) = stopped(&mut command, "windows of", Duration::from_millis(60 * attempt), 2);
        // It may have finished before the signal.
        assert!(code == Some(143) || code == Some(0), "signals {attempt}: {code:?} {words}");
        saved(folder, "twice");
    }
    done(&mut resume(folder, "twice"));
    let model = |name: &str| fs::read(folder.join("runs").join(name).join("model/dvae.safetensors")).unwrap();
    assert!(model("twice") == model("straight"), "the run that exited at once differs");
}

/// The stages of a run, in their order.
const STAGES: [&str; 3] = ["dvae", "gpt", "decoder"];

/// Stopped in each of its stages, a run saves its current step; resumed to the end it equals an undisturbed run.
#[test]
fn a_signal_in_any_stage_saves_the_last_step() {
    let folder = corpus();
    let folder = folder.path();
    let run = |name: &str| {
        let mut arguments = vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny"];
        for setting in [
            "data.batch_size=4",
            "data.num_workers=1",
            "training.dvae_steps=5",
            "training.gpt_steps=5",
            "training.decoder_steps=5",
            "training.checkpoint_every=0",
            "training.validate_every=0",
            "training.sample_every=0",
        ] {
            arguments.extend(["--set", setting]);
        }
        myxtts(folder, &arguments)
    };
    done(&mut run("straight"));
    let mut command = run("stopped");
    for stage in STAGES {
        // The first step is reported at once.
        let (code, words, took) = stopped(&mut command, &format!("\n{stage} 1/5: "), Duration::ZERO, 1);
        println!("{stage}: {took:.2?} from signal to exit");
        assert_eq!(code, Some(143), "{stage}: {words}");
        assert!(words.contains("--resume stopped"), "{stage}: {words}");
        let (step, told) = stage_step(folder, "stopped");
        assert_eq!(told, stage, "{words}");
        assert!((1..5).contains(&step), "{stage}: at step {step}: {words}");
        assert!(words.contains(&format!("at step {step} of")), "{stage}: {words}");
        command = resume(folder, "stopped");
    }
    done(&mut command);
    for part in ["dvae", "gpt", "decoder", "speaker"] {
        let model = |name: &str| {
            fs::read(folder.join("runs").join(name).join(format!("model/{part}.safetensors"))).unwrap()
        };
        assert!(model("stopped") == model("straight"), "{part} of the stopped run differs");
    }
}

/// The step of its stage that a run's newest checkpoint holds, and the stage; all checkpoints must be whole.
fn stage_step(folder: &Path, name: &str) -> (u64, String) {
    saved(folder, name);
    let checkpoints = Checkpoints::at(&folder.join("runs").join(name).join("checkpoints"));
    let newest = checkpoints.latest_valid().unwrap().checkpoint.unwrap();
    (newest.meta["step"].as_u64().unwrap(), newest.meta["stage"].as_str().unwrap().to_owned())
}

/// A measurement keeps no partial results: it exits at the first signal.
#[test]
fn a_measurement_ends_with_the_first_signal() {
    let folder = corpus();
    let folder = folder.path();
    let arguments =
        ["tune", "corpus", "--device", "cpu", "--preset", "tiny", "--steps", "100000", "--exhaustive"];
    let mut child = myxtts(folder, &arguments).spawn().unwrap();
    // Audio codes are written after the corpus is open and before the first step.
    let codes = folder.join("corpus/.myxtts-cache/codes.bin");
    while !codes.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the signal");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
