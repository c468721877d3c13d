//! One run on several processes of this machine, on the CPU: launch, rendezvous, training, failure and resume, as on several
//! machines.

use crate::train::{corpus, myxtts};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Minimal training that several ranks can share evenly.
fn settings(steps: [u64; 3]) -> Vec<String> {
    let [dvae, gpt, decoder] = steps;
    let set = [
        format!("training.dvae_steps={dvae}"),
        format!("training.gpt_steps={gpt}"),
        format!("training.decoder_steps={decoder}"),
        "data.batch_size=6".to_owned(),
        "data.dvae_batch_size=6".to_owned(),
        "data.decoder_batch_size=6".to_owned(),
        "data.num_workers=1".to_owned(),
        "training.checkpoint_every=2".to_owned(),
        "training.validate_every=0".to_owned(),
        "training.sample_every=0".to_owned(),
        "training.dropout=0.1".to_owned(),
        "training.learning_rate=0.0001".to_owned(),
    ];
    set.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
}

/// `train` with a name, alone or behind `launch`.
pub fn train(folder: &Path, before: &[&str], name: &str, steps: [u64; 3], more: &[&str]) -> Command {
    let mut arguments: Vec<&str> = before.to_vec();
    let settings = settings(steps);
    arguments.extend(["train", "corpus", "--name", name, "--preset", "tiny"]);
    arguments.extend(settings.iter().map(String::as_str));
    arguments.extend(more);
    clean(myxtts(folder, &arguments))
}

/// Removes variables that a scheduler around the tests may have set.
fn clean(mut command: Command) -> Command {
    for name in
        ["RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "MYXTTS_RENDEZVOUS_TOKEN"]
    {
        command.env_remove(name);
    }
    command
}

pub fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn model(folder: &Path, run: &str, part: &str) -> Vec<u8> {
    fs::read(folder.join("runs").join(run).join("model").join(format!("{part}.safetensors"))).unwrap()
}

/// The largest difference between the values of two files of the same layout.
fn furthest(a: &[u8], b: &[u8]) -> f32 {
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[8 + header..].chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
    };
    let (a, b) = (numbers(a), numbers(b));
    assert_eq!(a.len(), b.len());
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// A launched run whose output is collected.
struct Watched {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reading: Vec<JoinHandle<()>>,
    run: PathBuf,
}

impl Watched {
    fn start(mut command: Command, run: PathBuf) -> Watched {
        let mut child = command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (kept, err, out) = (lines.clone(), child.stderr.take().unwrap(), child.stdout.take().unwrap());
        let reading = vec![
            std::thread::spawn(move || {
                BufReader::new(err)
                    .lines()
                    .map_while(Result::ok)
                    .for_each(|line| kept.lock().unwrap().push(line));
            }),
            std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).for_each(drop)),
        ];
        Watched { child, lines, reading, run }
    }

    fn printed(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    fn until<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "{what} never came:\n{}", self.printed());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process id of a rank, from the output of rank 0.
    fn process(&self, rank: usize) -> String {
        self.until("a rank", || {
            let printed = self.printed();
            let line = printed
                .lines()
                .find(|line| line.contains(&format!("rank {rank} of ")) && line.contains("has connected"));
            let process = line?.split("(process ").nth(1)?.split(')').next()?;
            Some(process.to_owned())
        })
    }

    fn checkpoints(&self) -> usize {
        let log = fs::read_to_string(self.run.join("events.jsonl")).unwrap_or_default();
        let gpt = |line: &&str| line.contains("\"checkpoint\"") && line.contains("\"gpt\"");
        log.lines().filter(gpt).count()
    }

    /// Waits for a new checkpoint of the stage gpt.
    fn next_checkpoint(&self) {
        let before = self.checkpoints();
        self.until("a checkpoint", || (self.checkpoints() > before).then_some(()));
    }

    fn ended(mut self) -> (i32, String, Duration) {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not end:\n{}", self.printed());
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = began.elapsed();
        self.reading.drain(..).for_each(|thread| thread.join().unwrap());
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, self.printed(), took)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A failed test leaves no processes behind: launch forwards the signal.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        }
    }
}

fn kill(signal: &str, process: &str) {
    assert!(
        Command::new("kill").args([signal, process]).status().unwrap().success(),
        "kill {signal} {process}"
    );
}

fn is_alive(process: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_killed_or_stopped_rank_ends_all_and_the_run_resumes_with_other_ranks() {
    let folder = corpus();
    // One DVAE for all runs: between two equally near codes, rounding decides.
    let dvae = train(folder.path(), &[], "codes", [2, 0, 0], &["--stage", "dvae", "--device", "cpu"])
        .output()
        .unwrap();
    assert!(dvae.status.success(), "{}", words(&dvae));
    let (steps, gpt) = ([0, 30, 0], ["--stage", "gpt", "--from", "runs/codes/model"]);
    let run = folder.path().join("runs/run");
    let launch = |ranks: &str, more: &[&str]| {
        let mut arguments = vec!["launch", "--ranks", ranks, "--", "train", "--resume", "run"];
        arguments.extend(more);
        Watched::start(clean(myxtts(folder.path(), &arguments)), run.clone())
    };

    // Killed: detected at once, named, and the exit code asks a scheduler to retry.
    let first = train(folder.path(), &["launch", "--ranks", "3", "--"], "run", steps, &gpt);
    let first = Watched::start(first, run.clone());
    first.next_checkpoint();
    kill("-KILL", &first.process(2));
    let (code, printed, took) = first.ended();
    assert_eq!(code, 75, "{printed}");
    assert!(
        printed.contains("rank 2 of 3") && printed.contains("is lost: its connection ended"),
        "{printed}"
    );
    assert!(
        printed.contains("[rank 1] error: rank 2 of 3"),
        "the third rank does not know who is lost:\n{printed}"
    );
    assert!(printed.contains("`train --resume` continues from it"), "{printed}");
    assert!(took < Duration::from_secs(30), "{took:?}");

    // SIGSTOP: no heartbeat for too long. Launch ends the process that cannot end itself.
    let second = launch("2", &["--rank-timeout", "3"]);
    second.next_checkpoint();
    let stopped = second.process(1);
    kill("-STOP", &stopped);
    let (code, printed, took) = second.ended();
    assert_eq!(code, 75, "{printed}");
    assert!(printed.contains("rank 1 of 2") && printed.contains("no heartbeat for"), "{printed}");
    assert!(took < Duration::from_secs(30) && !is_alive(&stopped), "{took:?}");

    // A single process, stopped by Slurm's warning signal.
    let third = clean(myxtts(folder.path(), &["train", "--resume", "run", "--device", "cpu"]));
    let third = Watched::start(third, run.clone());
    third.next_checkpoint();
    kill("-USR1", &third.child.id().to_string());
    let (code, printed, _) = third.ended();
    assert_eq!(code, 143, "{printed}");

    // Two ranks again; a rank other than 0 receives the signal, and all save first.
    let fourth = launch("2", &[]);
    fourth.next_checkpoint();
    kill("-TERM", &fourth.process(1));
    let (code, printed, _) = fourth.ended();
    assert_eq!(code, 143, "{printed}");
    assert!(printed.contains("stopped on request at step"), "{printed}");

    // All ranks receive the signal, as from a scheduler or Ctrl-C: one that was stopped by another rank first must still save.
    let fifth = launch("3", &[]);
    fifth.next_checkpoint();
    kill("-TERM", &fifth.child.id().to_string());
    let (code, printed, _) = fifth.ended();
    assert_eq!(code, 143, "{printed}");
    assert!(printed.contains("stopped on request at step"), "{printed}");

    let (code, printed, _) = launch("2", &[]).ended();
    assert_eq!(code, 0, "{printed}");
    let alone = [&gpt[..], &["--device", "cpu"]].concat();
    let whole = train(folder.path(), &[], "whole", steps, &alone).output().unwrap();
    assert!(whole.status.success(), "{}", words(&whole));
    let apart = furthest(&model(folder.path(), "whole", "gpt"), &model(folder.path(), "run", "gpt"));
    println!("3 -> 2 -> 1 -> 2 -> 3 -> 2 ranks: weights within {apart:.1e} of one process");
    assert!(apart <= 3e-5, "weights differ by {apart}");
}

#[test]
fn a_rank_that_hangs_while_its_heartbeats_go_on_is_named_by_all_and_the_run_goes_on() {
    let folder = corpus();
    let dvae = train(folder.path(), &[], "codes", [2, 0, 0], &["--stage", "dvae", "--device", "cpu"])
        .output()
        .unwrap();
    assert!(dvae.status.success(), "{}", words(&dvae));
    let gpt = ["--stage", "gpt", "--from", "runs/codes/model", "--rank-timeout", "2"];
    // A rank that follows, with another one that only learns of it; and rank 0, for which all others wait.
    for (ranks, place, lost, rest) in [("3", "1:9", 1, 2), ("2", "0:9", 0, 1)] {
        let name = format!("hang-{lost}");
        let run = folder.path().join("runs").join(&name);
        let mut first = train(folder.path(), &["launch", "--ranks", ranks, "--"], &name, [0, 12, 0], &gpt);
        first.env("MYXTTS_FAULT_HANG", place);
        let first = Watched::start(first, run.clone());
        first.until("a checkpoint of step 8", || (first.checkpoints() == 4).then_some(()));
        let (code, printed, took) = first.ended();
        assert_eq!(code, 75, "{printed}");
        let named = format!("rank {lost} of {ranks}");
        assert!(
            printed.contains(&format!("[rank {rest}] error: {named}"))
                && printed.contains(
                    "its main thread hangs, though it sends heartbeats: it has been in step 10 for"
                ),
            "{printed}"
        );
        assert!(took < Duration::from_secs(30), "{took:?}");
        let said = printed.lines().find(|line| line.contains("its main thread hangs"));
        println!("{} {:.1} s after the last checkpoint", said.unwrap_or_default(), took.as_secs_f64());
        let resume = ["launch", "--ranks", "2", "--", "train", "--resume", &name];
        let again = clean(myxtts(folder.path(), &resume)).output().unwrap();
        let printed = words(&again);
        assert!(again.status.success() && printed.contains("continues after step 8"), "{printed}");
    }
}

#[test]
fn ranks_end_with_launch_even_if_it_is_killed() {
    let folder = corpus();
    let run = folder.path().join("runs/run");
    let started = train(
        folder.path(),
        &["launch", "--ranks", "2", "--"],
        "run",
        [1_000_000, 0, 0],
        &["--stage", "dvae"],
    );
    let started = Watched::start(started, run.clone());
    let saved =
        || fs::read_to_string(run.join("events.jsonl")).unwrap_or_default().contains("\"checkpoint\"");
    started.until("a checkpoint", || saved().then_some(()));
    let launch = started.child.id();
    let ranks = fs::read_to_string(format!("/proc/{launch}/task/{launch}/children")).unwrap();
    let ranks: Vec<&str> = ranks.split_whitespace().collect();
    assert!(ranks.len() == 2 && ranks.iter().all(|rank| is_alive(rank)), "{ranks:?}");
    kill("-KILL", &launch.to_string());
    let began = Instant::now();
    while ranks.iter().any(|rank| is_alive(rank)) && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<&&str> = ranks.iter().filter(|rank| is_alive(rank)).collect();
    left.iter().for_each(|rank| kill("-KILL", rank));
    assert!(left.is_empty(), "they train on: {left:?}");
    // They had time to end in order: the lock of the run is free.
    assert!(!run.join("write.owner").exists(), "rank 0 did not end by itself");
}

#[test]
fn one_process_for_each_machine_trains_on_all_its_gpus() {
    let folder = corpus();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let machine = |number: &str| {
        let place = ["--rank", number, "--world-size", "2", "--rendezvous", &address];
        let more =
            ["--stage", "dvae", "--multi-gpu", "--simulate-gpus", "2", "--set", "data.dvae_batch_size=8"];
        let mut command = train(folder.path(), &[], "machines", [2, 0, 0], &[&more[..], &place[..]].concat());
        command.env("MYXTTS_RENDEZVOUS_TOKEN", "one word for both").spawn().unwrap()
    };
    let (first, second) = (machine("0"), machine("1"));
    let (first, second) = (first.wait_with_output().unwrap(), second.wait_with_output().unwrap());
    let (printed, other) = (words(&first), words(&second));
    assert!(first.status.success() && second.status.success(), "{printed}\n{other}");
    assert!(printed.contains("the weights of all 4 ranks are the same bits"), "{printed}");
    assert!(other.contains("[rank 3] rank 3 of 4: `dvae` on cpu"), "{other}");
}

#[test]
fn a_failed_rendezvous_names_the_missing_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let address = format!("127.0.0.1:{port}");
    let ended = |arguments: &[&str], code: i32, needed: &str| {
        let output = clean(myxtts(folder.path(), arguments)).output().unwrap();
        let printed = words(&output);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(needed), "{needed:?} was not printed:\n{printed}");
    };
    let meet = ["--world-size", "2", "--rendezvous", &address, "--rendezvous-timeout", "0.5"];
    ended(&[&["train", "--rank", "0"], &meet[..]].concat(), 75, "rank 0 waited 0.5 s at");
    ended(&[&["train", "--rank", "1"], &meet[..]].concat(), 75, "rank 1 could not reach rank 0");
    ended(&["train", "--rank", "1"], 2, "--rank without --world-size");
    let open = ["train", "--rank", "0", "--world-size", "2", "--rendezvous", "node1:29500"];
    ended(&open, 2, "MYXTTS_RENDEZVOUS_TOKEN");
    ended(&["launch", "--ranks", "2", "--", "speak", "hello"], 2, "launch starts `train`");
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn all_ranks_exit_with_the_code_of_the_one_that_failed() {
    let folder = corpus();
    // Seven rows for two ranks: rank 0 refuses, and the other, started on "another machine", reports why.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let machine = |number: &str| {
        let launch = [
            "launch",
            "--ranks",
            "1",
            "--machines",
            "2",
            "--machine",
            number,
            "--rendezvous",
            &address,
            "--",
        ];
        let mut command =
            train(folder.path(), &launch, "odd", [2, 2, 0], &["--set", "data.dvae_batch_size=7"]);
        command.env("MYXTTS_RENDEZVOUS_TOKEN", "one word for both").spawn().unwrap()
    };
    let (first, second) = (machine("0"), machine("1"));
    let (first, second) = (first.wait_with_output().unwrap(), second.wait_with_output().unwrap());
    let (printed, other) = (words(&first), words(&second));
    assert_eq!((first.status.code(), second.status.code()), (Some(2), Some(2)), "{printed}\n{other}");
    let refused = "[rank 0] error: data.dvae_batch_size = 7 cannot be split evenly over 2 ranks: 6 or 8";
    assert!(printed.contains(refused), "{printed}");
    assert!(other.contains("[rank 1] error: rank 0 of 2"), "{other}");
}
