//! `myxtts train`: killed, stopped and resumed, with bit-identical results.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Minimal training through every stage.
const STEPS: [(&str, u64); 3] = [("dvae", 8), ("gpt", 24), ("decoder", 8)];

pub fn myxtts(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    command.env_remove("RUST_BACKTRACE").stderr(Stdio::piped());
    command
}

fn train(folder: &Path, name: &str, more: &[&str]) -> Command {
    let steps: Vec<String> = STEPS
        .iter()
        .flat_map(|(stage, n)| ["--set".to_owned(), format!("training.{stage}_steps={n}")])
        .collect();
    let mut arguments = vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny"];
    arguments.extend(steps.iter().map(String::as_str));
    for setting in [
        "data.batch_size=4",
        "data.num_workers=1",
        "training.checkpoint_every=4",
        "training.validate_every=8",
        "training.dropout=0.1",
    ] {
        arguments.extend(["--set", setting]);
    }
    arguments.extend(more);
    myxtts(folder, &arguments)
}

/// Training of a tiny DVAE alone.
pub fn train_dvae(folder: &Path, name: &str, settings: &[&str]) -> Command {
    let mut arguments = vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny"];
    arguments.extend([
        "--stage",
        "dvae",
        "--set",
        "data.num_workers=1",
        "--set",
        "training.validate_every=0",
    ]);
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    myxtts(folder, &arguments)
}

pub fn resume(folder: &Path, name: &str) -> Command {
    myxtts(folder, &["train", "--resume", name, "--device", "cpu"])
}

/// A corpus of a few clips, without a cache.
pub fn corpus() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = myxtts(folder.path(), &["demo-corpus", "corpus", "--utterances", "16"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

pub fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {words}", output.status);
    words
}

/// Bytes of the tensors of a run's model.
fn weights(folder: &Path, name: &str) -> Vec<(String, Vec<u8>)> {
    let model = folder.join("runs").join(name).join("model");
    ["gpt", "dvae", "decoder", "speaker"]
        .map(|part| {
            let file = format!("{part}.safetensors");
            let bytes = fs::read(model.join(&file)).unwrap();
            (file, bytes)
        })
        .to_vec()
}

fn same(a: &[(String, Vec<u8>)], b: &[(String, Vec<u8>)]) {
    for ((name, a), (_, b)) in a.iter().zip(b) {
        assert!(a == b, "{name} differs from the undisturbed run's");
    }
}

/// Lines of a kind in a run's log of events.
fn events(folder: &Path, name: &str, kind: &str) -> usize {
    let log = fs::read_to_string(folder.join("runs").join(name).join("events.jsonl")).unwrap_or_default();
    log.lines().filter(|line| line.contains(&format!("\"{kind}\""))).count()
}

/// Waits until the child has written a number of events of a kind, or has exited.
fn until(child: &mut Child, folder: &Path, name: &str, kind: &str, count: usize) {
    let start = Instant::now();
    while events(folder, name, kind) < count {
        assert!(start.elapsed() < Duration::from_secs(240), "nothing happens");
        if child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_and_resumed_run_is_bit_identical_to_an_undisturbed_one() {
    let folder = corpus();
    let folder = folder.path();
    // One run speaks no samples, the other does and loads data in the slow ways. Neither that nor being killed may change the
    // weights.
    done(&mut train(folder, "whole", &SILENT));
    let whole = weights(folder, "whole");
    let speaking = [
        "--set",
        "training.sample_every=8",
        "--disable-native-loading",
        "--disable-gpu-prefetch",
        "--disable-cpu-gpu-overlap",
    ];

    // Killed five times, each a few checkpoints later, at a slightly random time.
    let mut child = train(folder, "killed", &speaking).spawn().unwrap();
    for kill in 1..=5usize {
        until(&mut child, folder, "killed", "checkpoint", 2 * kill - 1);
        std::thread::sleep(Duration::from_millis(37 * kill as u64 % 150));
        let _ = child.kill();
        let _ = child.wait();
        child = resume(folder, "killed").spawn().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("no cache: features are computed"), "{words}");
    same(&weights(folder, "killed"), &whole);
    assert!(events(folder, "killed", "stage") > 3, "it was never killed inside a stage");
    for sample in ["dvae-000008-", "gpt-000024-", "decoder-000008-"] {
        assert!(is_kept(folder, "killed", sample), "{sample} was not spoken");
    }
    // After this few steps a model may produce no speech.
    let early = ["gpt-000008-", "gpt-000016-"].iter().any(|sample| is_kept(folder, "killed", sample));
    assert!(early, "nothing was spoken inside a stage");
    assert!(!is_kept(folder, "whole", "gpt-"), "this run must have no samples");
    let again = resume(folder, "whole").output().unwrap();
    let words = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && words.contains("whole is finished"), "{words}");
    same(&weights(folder, "whole"), &whole);
    assert!(is_kept(folder, "whole", "") && events(folder, "whole", "sample") > 0, "no final samples");
}

/// No samples before the end.
const SILENT: [&str; 2] = ["--set", "training.sample_every=0"];

/// Whether a sample with this name prefix exists as audio and image, and both also in TensorBoard's files.
fn is_kept(folder: &Path, name: &str, start: &str) -> bool {
    let files = |place: &str| -> Vec<(String, Vec<u8>)> {
        let folder = fs::read_dir(folder.join("runs").join(name).join(place)).unwrap();
        let files = folder.map(|file| file.unwrap());
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
    };
    let (samples, board) = (files("samples"), files("tensorboard"));
    ["wav", "png"].iter().all(|kind| {
        samples.iter().any(|(name, bytes)| {
            let told = |file: &[u8]| file.windows(bytes.len()).any(|window| window == bytes);
            let shown = || board.iter().any(|(_, file)| told(file));
            name.starts_with(start) && name.ends_with(kind) && bytes.len() > 60 && shown()
        })
    })
}

/// `MYXTTS_PYTHON` names a Python that has the package `tensorboard`:
/// `cargo test -p myxtts --test cli -- --ignored tensorboard`.
#[test]
#[ignore = "needs Python with tensorboard"]
fn tensorboard_reads_the_samples_of_a_run() {
    let folder = corpus();
    let folder = folder.path();
    done(&mut train(folder, "heard", &["--set", "training.sample_every=12"]));
    let python = std::env::var("MYXTTS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../parity/tensorboard_reads.py");
    let run = folder.join("runs/heard");
    let output = Command::new(python).arg(script).arg("--run").arg(run).output().unwrap();
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    println!("{printed}");
}

#[test]
fn simulated_gpus_train_every_stage_and_another_number_resumes() {
    let folder = corpus();
    let folder = folder.path();
    let words =
        |command: &mut Command| String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    let mut arguments = vec!["train", "corpus", "--name", "mirrored", "--preset", "tiny", "--multi-gpu"];
    arguments.extend(["--simulate-gpus", "3", "--visible-gpus", "2,0", "--batch-size", "4"]);
    arguments.extend(["--num-workers", "1", "--set", "training.dvae_steps=2"]);
    arguments.extend(["--set", "training.gpt_steps=3", "--set", "training.decoder_steps=2"]);
    let printed = done(&mut myxtts(folder, &arguments));
    assert!(
        printed.contains("trains on mirrored on GPUs 2 and 0 (simulated): training.multi_gpu is on"),
        "{printed}"
    );
    assert!(printed.contains("2 replicas (cpu, cpu)"), "{printed}");
    assert_eq!(weights(folder, "mirrored").len(), 4);
    let run = folder.join("runs/mirrored");
    let events = fs::read_to_string(run.join("events.jsonl")).unwrap();
    assert!(events.contains(r#""kind":"strategy""#) && events.contains(r#"{"mirrored":[2,0]}"#), "{events}");
    assert!(fs::read_to_string(run.join("plan.json")).unwrap().contains("mirrored on GPUs 2 and 0"));
    // The run is finished: resuming only reports the devices.
    let other = ["train", "--resume", "mirrored", "--simulate-gpus", "1", "--visible-gpus", "0"];
    let printed = done(&mut myxtts(folder, &other));
    assert!(printed.contains("one device, GPU 0 (simulated)"), "{printed}");
    // Sixteen rows over three replicas.
    let uneven =
        ["train", "corpus", "--name", "uneven", "--multi-gpu", "--simulate-gpus", "3", "--batch-size", "16"];
    let printed = words(&mut myxtts(folder, &uneven));
    assert!(printed.contains("data.batch_size = 16") && printed.contains("15 or 18"), "{printed}");
    assert!(!folder.join("runs/uneven").exists(), "an invalid command created a run");
}

#[test]
fn a_data_gpu_prepares_batches_if_both_gpus_are_named() {
    let folder = corpus();
    let folder = folder.path();
    let mut arguments =
        vec!["train", "corpus", "--name", "apart", "--preset", "tiny", "--simulate-gpus", "2"];
    arguments.extend([
        "--data-gpu",
        "0",
        "--model-gpu",
        "1",
        "--buffer-size",
        "5",
        "--model-start-delay",
        "0.1",
    ]);
    arguments.extend(["--batch-size", "4", "--num-workers", "1", "--set", "training.dvae_steps=2"]);
    arguments.extend(["--set", "training.gpt_steps=3", "--set", "training.decoder_steps=1"]);
    let printed = done(&mut myxtts(folder, &arguments));
    for words in [
        "trains on one device, GPU 1 (simulated)",
        "GPU 0 prepares batches and 1 trains; up to 5 wait between them",
        "mels are computed on cpu from waveforms",
        "conditioning is computed on cpu from waveforms",
        "the model starts when 5 batches are ready, after at least 0.1 s",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    for part in ["gpt", "decoder"] {
        assert!(folder.join(format!("runs/apart/model/{part}.safetensors")).is_file(), "{part}");
    }
}

#[test]
fn a_model_without_a_gpt_was_said_to_speak() {
    let folder = corpus();
    let output = train_dvae(folder.path(), "codes", &["training.dvae_steps=1"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("runs/codes/model"), "{output:?}");
    assert!(!printed.contains("myxtts speak"), "{printed}");
}

/// Schedulers start the same command again, also one with `--stage` and `--from`, which `--resume` refuses.
#[test]
fn the_same_command_resumes_its_run() {
    let folder = corpus();
    let folder = folder.path();
    let start = |more: &[&str]| {
        let mut command = train_dvae(folder, "again", &["training.dvae_steps=2"]);
        let output = command.args(more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, words) = start(&["--or-resume"]);
    assert_eq!(code, Some(0), "{words}");
    let (code, words) = start(&["--or-resume"]);
    assert!(code == Some(0) && words.contains("again is finished"), "{code:?}: {words}");
    let (code, words) = start(&[]);
    assert!(code == Some(2) && words.contains("already exists"), "{code:?}: {words}");
    // What the run began with cannot change, and a run without a name cannot be found again.
    let (code, words) = start(&["--or-resume", "--from", "elsewhere"]);
    assert!(code == Some(2) && words.contains("began with --stage dvae and no --from"), "{code:?}: {words}");
    let unnamed = myxtts(folder, &["train", "corpus", "--or-resume"]).output().unwrap();
    assert_eq!(unnamed.status.code(), Some(2));
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |arguments: &[&str]| {
        let output = myxtts(folder.path(), arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, words) = wrong(&["train", "--resume", "nothing", "--device", "cpu"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("nothing"), "{words}");
    let (code, words) = wrong(&["train", "--stage", "vocoder"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("decoder"), "{words}");
    let (code, words) = wrong(&["train", "nowhere", "--device", "cpu"]);
    assert_ne!(code, Some(0), "{words}");
    assert!(words.contains("nowhere"), "{words}");
    let (code, words) = wrong(&["train", "--device", "gpu7"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("gpu7"), "{words}");
    let runs = || fs::read_dir(folder.path().join("runs")).map_or(0, Iterator::count);
    let before = runs();
    for (arguments, expected) in [
        (
            vec!["--visible-gpus", "0,5", "--simulate-gpus", "2"],
            "GPU 5, and there are 0 (simulated), 1 (simulated)",
        ),
        (vec!["--visible-gpus", "0,0", "--simulate-gpus", "2"], "0 twice"),
        (vec!["--visible-gpus", "0;1", "--simulate-gpus", "2"], "distinct GPU indices"),
        (vec!["--model-gpu", "3", "--simulate-gpus", "2"], "data.model_gpu names GPU 3"),
        (vec!["--data-gpu", "3", "--simulate-gpus", "2"], "data.data_gpu names GPU 3"),
        (vec!["--multi-gpu", "--device", "cpu"], "--device cpu and training.multi_gpu"),
        (vec!["--visible-gpus", "1", "--device", "cuda:0", "--simulate-gpus", "2"], "not one of the visible"),
        (vec!["--multi-gpu", "--device", "cuda:63", "--simulate-gpus", "2"], "--device names GPU 63"),
    ] {
        let (code, words) = wrong(&[&["train"], &arguments[..]].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {words}");
        assert!(words.contains(expected), "{arguments:?}: {words}");
    }
    assert_eq!(runs(), before, "an invalid command created a run");
}
