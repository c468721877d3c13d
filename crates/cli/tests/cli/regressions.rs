//! Regressions: closed pipes and terminals, overwritten files, runs that could not be resumed.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use myxtts_model::weights::Part;
use myxtts_run::lock::{FolderLock, LOCK_FILE};

use super::train::{corpus, myxtts, resume, train_dvae};
use crate::tiny;

fn words(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_closed_output_pipe_ended_training_with_a_panic() {
    let folder = corpus();
    let folder = folder.path();
    // `train 2>&1 | head -0`, and a full log device.
    let mut closed = train_dvae(folder, "closed", &["training.dvae_steps=3"]).spawn().unwrap();
    drop((closed.stderr.take(), closed.stdout.take()));
    assert_eq!(closed.wait().unwrap().code(), Some(0));
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let mut command = train_dvae(folder, "full", &["training.dvae_steps=3"]);
    assert_eq!(command.stderr(full()).stdout(full()).status().unwrap().code(), Some(0));
    for name in ["closed", "full"] {
        assert!(folder.join("runs").join(name).join("model/dvae.safetensors").is_file(), "{name}");
    }
}

/// Waits for the first checkpoint, then sends signals.
fn interrupted(command: &mut Command, run: &Path, signals: &[&str]) -> (Option<i32>, String) {
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    let log = run.join("events.jsonl");
    while !fs::read_to_string(&log).is_ok_and(|log| log.contains(r#""kind":"checkpoint""#)) {
        assert!(start.elapsed() < Duration::from_secs(120), "nothing happens");
        if child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for signal in signals {
        let _ = Command::new("kill").args([*signal, &child.id().to_string()]).status().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), words(&output))
}

/// Whether this process was started with SIGHUP ignored.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Signal 1 is the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn a_closed_terminal_cost_the_steps_since_the_last_checkpoint() {
    if hangup_is_ignored() {
        println!("a_closed_terminal: skipped, SIGHUP is ignored here (nohup), and every child inherits that");
        return;
    }
    let folder = corpus();
    let folder = folder.path();
    // So few checkpoints that a last step that is not saved shows.
    let endless = ["training.dvae_steps=100000", "training.checkpoint_every=10"];
    // The shell sends one, the kernel another.
    let run = folder.join("runs/hung-up");
    let (code, words) = interrupted(&mut train_dvae(folder, "hung-up", &endless), &run, &["-HUP", "-HUP"]);
    assert_eq!(code, Some(143), "{words}");
    assert!(words.contains("--resume hung-up"), "{words}");
    let saved = myxtts_run::checkpoint::Checkpoints::at(&run.join("checkpoints")).list().unwrap();
    let step = saved.checkpoints.last().unwrap().step;
    assert!(words.contains(&format!("at step {step} of")), "the last step is not saved: {words}");
    // Under `nohup` it continues.
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_myxtts");
    let settings =
        "--stage dvae --preset tiny --device cpu --set data.num_workers=1 --set training.dvae_steps=40";
    let script = format!(
        "trap '' HUP; exec {program} train corpus --name kept {settings} --set training.checkpoint_every=2"
    );
    command.current_dir(folder).args(["-c", &script]).stdin(Stdio::null()).stderr(Stdio::piped());
    let (code, words) = interrupted(&mut command, &folder.join("runs/kept"), &["-HUP"]);
    assert_eq!(code, Some(0), "{words}");
}

#[test]
fn speak_overwrote_devices_links_and_its_own_reference() {
    let at = tempfile::tempdir().unwrap();
    tiny::write(&at.path().join("model"), &[Part::Dvae]);
    let voice =
        myxtts_demo::speak("This is my voice.", myxtts_demo::Language::English, &myxtts_demo::VOICES[0]);
    let wav = myxtts_data::audio::wav::encode_pcm16(&voice, myxtts_demo::SAMPLE_RATE);
    fs::write(at.path().join("ref.wav"), &wav).unwrap();
    let speak = |output: &str| {
        let common = ["speak", "Hello", "--voice", "ref.wav", "--device", "cpu", "--greedy", "-o", output];
        myxtts(at.path(), &common).output().unwrap()
    };
    // Inputs are never overwritten, whatever name they are given by.
    symlink("ref.wav", at.path().join("other.wav")).unwrap();
    for input in ["ref.wav", "other.wav", "model/manifest.json", "model"] {
        let output = speak(input);
        assert_eq!(output.status.code(), Some(2), "{input}: {}", words(&output));
        assert!(words(&output).contains(input), "{}", words(&output));
    }
    assert!(fs::read(at.path().join("ref.wav")).unwrap() == wav);
    let output = speak("missing/out.wav");
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains("the folder missing does not exist"), "{}", words(&output));
    // A link stays a link, and its target is written.
    fs::write(at.path().join("real.wav"), "old").unwrap();
    symlink("real.wav", at.path().join("link.wav")).unwrap();
    symlink("later.wav", at.path().join("dangling.wav")).unwrap();
    for (name, file) in [("link.wav", "real.wav"), ("dangling.wav", "later.wav"), ("new.wav", "new.wav")] {
        let output = speak(name);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", words(&output));
        assert!(fs::read(at.path().join(file)).unwrap().starts_with(b"RIFF"), "{name}");
    }
    assert!(at.path().join("link.wav").symlink_metadata().unwrap().is_symlink());
    // A device and a named pipe are written to.
    assert_eq!(speak("/dev/null").status.code(), Some(0));
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert_eq!(speak("/dev/full").status.code(), Some(74));
    let pipe = at.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    let output = speak("pipe");
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    // The same audio; the sizes in the header of a pipe cannot be corrected at the end.
    let (piped, written) = (reader.join().unwrap(), fs::read(at.path().join("new.wav")).unwrap());
    assert!(piped.starts_with(b"RIFF") && piped.len() == written.len() && piped[44..] == written[44..]);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn check_overwrote_the_metadata_with_its_report() {
    let folder = corpus();
    let folder = folder.path();
    let metadata = fs::read(folder.join("corpus/metadata.csv")).unwrap();
    let clip = fs::read_dir(folder.join("corpus/wavs")).unwrap().next().unwrap().unwrap().file_name();
    let clip = format!("corpus/wavs/{}", clip.to_str().unwrap());
    for input in ["corpus/metadata.csv", "corpus/speakers.csv", &clip, "corpus"] {
        for argument in [format!("--report={input}"), format!("--json={input}")] {
            let output = myxtts(folder, &["check", "corpus", &argument]).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{argument}: {}", words(&output));
        }
    }
    assert!(fs::read(folder.join("corpus/metadata.csv")).unwrap() == metadata);
    for output in ["corpus/report.jsonl", "corpus/report.jsonl", "/dev/null"] {
        let done = myxtts(folder, &["check", "corpus", "--report", output]).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{output}: {}", words(&done));
    }
}

#[test]
fn a_run_without_its_request_could_not_be_resumed() {
    let folder = corpus();
    let folder = folder.path();
    let run = folder.join("runs/lost");
    let settings = ["training.dvae_steps=2", "training.gpt_steps=2", "training.decoder_steps=2"];
    assert!(train_dvae(folder, "lost", &settings).status().unwrap().success());
    for damage in [None, Some("{\"stage\":")] {
        match damage {
            None => fs::remove_file(run.join("request.json")).unwrap(),
            Some(text) => fs::write(run.join("request.json"), text).unwrap(),
        }
        let output = resume(folder, "lost").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", words(&output));
        assert!(words(&output).contains("taken from the event log"), "{}", words(&output));
        // It trained this stage alone, and still does.
        assert!(!run.join("model/decoder.safetensors").exists());
        assert!(fs::read_to_string(run.join("request.json")).unwrap().contains("dvae"));
    }
    // Without an event log, the message says what to write.
    fs::remove_file(run.join("request.json")).unwrap();
    fs::write(run.join("events.jsonl"), "").unwrap();
    let output = resume(folder, "lost").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains("write it again"), "{}", words(&output));
    fs::write(run.join("request.json"), "{\"stage\":\"dvae\",\"from\":null}").unwrap();
    let output = resume(folder, "lost").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}

/// The disk fails at each operation of the start in turn: each is a disk error, and the name can be used afterwards.
#[test]
fn disk_errors_while_a_run_was_created_were_called_usage_errors() {
    let folder = corpus();
    let folder = folder.path();
    let settings = ["training.dvae_steps=1"];
    let before = train_dvae(folder, "prepared", &settings).output().unwrap();
    assert_eq!(before.status.code(), Some(0), "{}", words(&before));
    for every in [1, 2, 3, 5, 8, 13] {
        let mut command = train_dvae(folder, "full", &settings);
        let output = command.env("MYXTTS_FAIL_WRITE_EVERY", every.to_string()).output().unwrap();
        assert_eq!(output.status.code(), Some(74), "every {every}: {}", words(&output));
        assert!(words(&output).contains("no space left"), "{}", words(&output));
        assert!(!words(&output).contains("run the same command again"), "{}", words(&output));
        let is_run = folder.join("runs/full/plan.json").exists();
        assert_eq!(is_run, words(&output).contains("--resume full"), "every {every}: {}", words(&output));
        if is_run {
            let output = resume(folder, "full").output().unwrap();
            assert_eq!(output.status.code(), Some(0), "every {every}: {}", words(&output));
            fs::remove_dir_all(folder.join("runs/full")).unwrap();
        }
    }
    let output = train_dvae(folder, "full", &settings).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}

#[test]
fn missing_columns_panicked_and_blocked_the_name_of_the_run() {
    let folder = corpus();
    let output = train_dvae(folder.path(), "columns", &["data.cache_columns=tokens"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains("lacks dvae_mel"), "{}", words(&output));
    assert!(!folder.path().join("runs/columns").exists());
}

/// A killed process holds its lock until the system has ended it, which may take seconds.
#[test]
fn resume_was_refused_while_the_killed_process_was_exiting() {
    let folder = corpus();
    let folder = folder.path();
    assert!(train_dvae(folder, "dying", &["training.dvae_steps=1"]).status().unwrap().success());
    let run = folder.join("runs/dying");
    let lock = FolderLock::acquire(&run).unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    fs::write(run.join(LOCK_FILE), format!("{}\n", gone.id())).unwrap();
    let child = resume(folder, "dying").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    drop(lock);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    assert!(words(&output).contains("waiting up to 30 s"), "{}", words(&output));
    // A process that is not exiting is not waited for.
    let _lock = FolderLock::acquire(&run).unwrap();
    let output = resume(folder, "dying").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains("is in use by"), "{}", words(&output));
}

/// Runs a command with a time limit; `None` if it does not end.
fn within(command: &mut Command, limit: Duration) -> Option<std::process::Output> {
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(child.wait_with_output().unwrap())
}

#[test]
fn a_named_pipe_instead_of_a_file_blocked_forever() {
    let at = corpus();
    let folder = at.path();
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    fs::create_dir(folder.join("texts")).unwrap();
    fs::write(folder.join("texts/a.wav"), "").unwrap();
    fs::write(folder.join("texts/b.txt"), "b").unwrap();
    fs::write(folder.join("texts/b.wav"), "").unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("texts/a.txt")).status().unwrap().success());
    tiny::write(&folder.join("speaking"), &[Part::Dvae, Part::Decoder, Part::Speaker]);
    let clip = fs::read_dir(folder.join("corpus/wavs")).unwrap().next().unwrap().unwrap().path();
    for arguments in [
        &["import", "pipe", "-o", "model"][..],
        &["check", "corpus", "--config", "pipe"],
        &["check", "corpus", "--set", "data.tokenizer=pipe"],
        &["check", "pipe"],
        &["check", "texts", "--format", "folder"],
        &["tokenizer", "train", "--data", "pipe", "-o", "v.json", "--language", "en"],
        &["evaluate", "speaking", "--texts", "pipe", "-o", "spoken", "--device", "cpu"],
        &["resynthesize", "speaking", "pipe", "-o", "heard", "--device", "cpu"],
        &["resynthesize", "speaking", "texts/a.wav", "-o", "heard", "--device", "cpu"],
        &["inspect", "mel", clip.to_str().unwrap(), "--mel-stats", "pipe"],
    ] {
        let output = within(&mut myxtts(folder, arguments), Duration::from_secs(60));
        let output = output.unwrap_or_else(|| panic!("{arguments:?} waits"));
        let all = words(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}: {all}");
        // Where a folder is expected, a pipe is refused; where a transcript may be missing, it is no transcript.
        let refusals = ["named pipe", "matches no corpus layout", "a.wav has no transcript"];
        assert!(refusals.iter().any(|refusal| all.contains(refusal)), "{arguments:?}: {all}");
    }
}

/// Any path was replaced by a rename, and a missing folder was found after the work.
#[test]
fn the_picture_of_a_batch_replaced_links_and_inputs() {
    let at = corpus();
    let folder = at.path();
    assert!(myxtts(folder, &["prepare", "corpus"]).output().unwrap().status.success());
    fs::write(folder.join("old.png"), "old").unwrap();
    symlink("old.png", folder.join("link.png")).unwrap();
    symlink("/dev/null", folder.join("nowhere.png")).unwrap();
    let draw = |corpus: &str, png: &str| {
        let output =
            myxtts(folder, &["inspect", "batch", corpus, "--batch-size", "2", "--png", png]).output();
        let output = output.unwrap();
        (output.status.code(), words(&output))
    };
    let (code, said) = draw("corpus", "link.png");
    assert_eq!(code, Some(0), "{said}");
    assert!(folder.join("link.png").is_symlink(), "the link was replaced");
    assert!(fs::read(folder.join("old.png")).unwrap().starts_with(b"\x89PNG"));
    let (code, said) = draw("corpus", "nowhere.png");
    assert_eq!(code, Some(0), "{said}");
    assert!(folder.join("nowhere.png").is_symlink(), "the device was replaced");
    let metadata = fs::read(folder.join("corpus/metadata.csv")).unwrap();
    let (code, said) = draw("corpus/metadata.csv", "corpus/metadata.csv");
    assert_eq!((code, said.contains("would be overwritten")), (Some(2), true), "{said}");
    assert_eq!(fs::read(folder.join("corpus/metadata.csv")).unwrap(), metadata);
    // Before the cache is opened: there is none.
    let (code, said) = draw("nothing", "missing/a.png");
    assert_eq!((code, said.contains("the folder missing does not exist")), (Some(2), true), "{said}");
}

#[test]
fn conflicting_arguments_were_reported_after_the_work() {
    let at = corpus();
    let folder = at.path();
    tiny::write(&folder.join("codeless"), &[Part::Decoder, Part::Speaker]);
    let refused = |arguments: &[&str], code: i32, sentence: &str| {
        let common = ["train", "corpus", "--device", "cpu", "--name", "x"];
        let output = myxtts(folder, &[&common, arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", words(&output));
        assert!(words(&output).contains(sentence), "{arguments:?}: {}", words(&output));
        assert!(!folder.join("runs/x").exists(), "{arguments:?}");
    };
    refused(&["--from", "codeless"], 2, "has a GPT and no DVAE");
    refused(&["--from", "codeless"], 2, "--dvae");
    let none = [
        "--set",
        "training.dvae_steps=0",
        "--set",
        "training.gpt_steps=0",
        "--set",
        "training.decoder_steps=0",
    ];
    refused(&none, 2, "nothing would be trained");
    refused(&["--stage", "gpt", "--set", "training.gpt_steps=0"], 2, "training.gpt_steps is 0");
    // The other parts are there, and no stage trains them again.
    tiny::write(&folder.join("whole"), &[Part::Dvae, Part::Decoder, Part::Speaker]);
    let nothing = ["--from", "whole", "--set", "training.gpt_steps=0"];
    refused(&nothing, 2, "training.gpt_steps is 0, and whole has all other parts");
    refused(&nothing, 2, "--decoder-steps N trains its decoder");
    refused(&[&nothing[..], &["--decoder-steps", "0"]].concat(), 2, "nothing would be trained");
    refused(&["--preset", "v2", "--batch-size", "4096", "--set", "data.buckets=1"], 2, "fits, with");
    // Only the GPT's batches were planned.
    let large = [
        "--preset",
        "v2",
        "--set",
        "data.decoder_batch_size=4096",
        "--set",
        "training.dvae_steps=0",
        "--set",
        "training.gpt_steps=0",
    ];
    refused(&large, 2, "data.decoder_batch_size = 4096 is planned to take");
}

#[test]
fn a_run_resumed_with_0_steps_named_a_model_that_was_not_there() {
    let at = corpus();
    let folder = at.path();
    let run = folder.join("runs/emptied");
    let endless = ["training.dvae_steps=100000", "training.checkpoint_every=2"];
    let (code, said) = interrupted(&mut train_dvae(folder, "emptied", &endless), &run, &["-TERM"]);
    assert_eq!(code, Some(143), "{said}");
    let with = |steps: &str| {
        let output = resume(folder, "emptied").args(["--set", steps]).output().unwrap();
        (output.status.code(), words(&output))
    };
    let (code, said) = with("training.dvae_steps=0");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("training.dvae_steps is 0: nothing would be trained"), "{said}");
    // Its checkpoint is still there.
    let (code, said) = with("training.dvae_steps=1");
    assert_eq!(code, Some(0), "{said}");
    assert!(run.join("model/dvae.safetensors").is_file());
}

#[test]
fn a_corpus_that_was_edited_between_two_stages_went_unnoticed() {
    let at = corpus();
    let folder = at.path();
    let stage = |more: &[&str]| {
        let common = ["train", "corpus", "--name", "edited", "--device", "cpu", "--preset", "tiny"];
        let mut command = myxtts(folder, &[&common, more].concat());
        for setting in ["dvae_steps=2", "gpt_steps=100000", "decoder_steps=0", "checkpoint_every=1"] {
            command.args(["--set", &format!("training.{setting}")]);
        }
        command.args(["--set", "data.batch_size=2", "--set", "data.num_workers=1"]);
        command
    };
    let run = folder.join("runs/edited");
    let (code, printed) = interrupted(&mut stage(&[]), &run, &["-TERM"]);
    assert_eq!(code, Some(143), "{printed}");
    let metadata = folder.join("corpus/metadata.csv");
    let text = fs::read_to_string(&metadata).unwrap();
    fs::write(&metadata, text.split_once('\n').unwrap().1).unwrap();
    let output = resume(folder, "edited").output().unwrap();
    assert_eq!(output.status.code(), Some(65), "{}", words(&output));
    assert!(words(&output).contains("it had 16 usable clips and has 15"), "{}", words(&output));
    // The same number of clips, one of them with another text.
    let (first, rest) = text.split_once('\n').unwrap();
    let (id, second) = (first.split('|').next().unwrap(), rest.split('|').nth(1).unwrap());
    fs::write(&metadata, format!("{id}|{second}|{second}\n{rest}")).unwrap();
    let output = resume(folder, "edited").output().unwrap();
    assert_eq!(output.status.code(), Some(65), "{}", words(&output));
    assert!(words(&output).contains("or some have changed"), "{}", words(&output));
    // With the corpus restored, it resumes.
    fs::write(&metadata, text).unwrap();
    let mut child = resume(folder, "edited").spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(child.try_wait().unwrap().is_none(), "the run does not continue");
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(143));
}

#[test]
fn unreadable_lines_counted_only_in_check() {
    let at = corpus();
    let folder = at.path();
    let metadata = folder.join("corpus/metadata.csv");
    let text = fs::read(&metadata).unwrap();
    let unreadable: Vec<u8> = (0..16).flat_map(|_| b"id|text \xff\xfe|text\n".to_vec()).collect();
    for (what, more) in [("the same lines again", text.clone()), ("lines that are not UTF-8", unreadable)] {
        fs::write(&metadata, [&text[..], &more].concat()).unwrap();
        let few = ["--set", "data.num_workers=1"];
        for command in [
            &["check", "corpus"][..],
            &["prepare", "corpus"],
            &["train", "corpus", "--name", "half", "--device", "cpu", "--preset", "tiny", "--stage", "dvae"],
            &[
                "train",
                "corpus",
                "--name",
                "half",
                "--device",
                "cpu",
                "--preset",
                "tiny",
                "--disable-native-loading",
            ],
        ] {
            let output = myxtts(folder, &[command, &few].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(65), "{what}, {command:?}: {}", words(&output));
        }
        // A larger budget accepts it in every command.
        let output =
            myxtts(folder, &["prepare", "corpus", "--set", "data.failure_budget=0.5"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{what}: {}", words(&output));
    }
}

#[test]
fn a_limit_blamed_a_setting_that_was_not_set() {
    let at = corpus();
    for (setting, key) in
        [("data.max_seconds=0.6", "(data.max_seconds)"), ("data.max_mel_frames=60", "(data.max_mel_frames)")]
    {
        let arguments = ["prepare", "corpus", "--set", setting, "--set", "data.num_workers=1"];
        let output = myxtts(at.path(), &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(65), "{}", words(&output));
        assert!(words(&output).contains(key), "{setting}: {}", words(&output));
    }
}

#[test]
fn data_and_model_gpu_fall_back_to_the_existing_one() {
    let at = corpus();
    let folder = at.path();
    let train = |name: &str, more: &[&str]| {
        let common = [
            "train",
            "corpus",
            "--name",
            name,
            "--preset",
            "tiny",
            "--stage",
            "dvae",
            "--simulate-gpus",
            "1",
        ];
        let apart =
            ["--data-gpu", "0", "--model-gpu", "1", "--num-workers", "1", "--set", "training.dvae_steps=1"];
        myxtts(folder, &[&common[..], &apart, more].concat()).output().unwrap()
    };
    let output = train("one", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    for sentence in [
        "one device, GPU 0 (simulated)",
        "batches are made on the CPU and buffered",
        "--strict-devices makes this an error",
    ] {
        assert!(words(&output).contains(sentence), "{sentence}: {}", words(&output));
    }
    let output = train("strict", &["--strict-devices"]);
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains("data.model_gpu names GPU 1"), "{}", words(&output));
    assert!(!folder.join("runs/strict").exists());
}
