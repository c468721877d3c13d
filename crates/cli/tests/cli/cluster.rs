//! The scripts of `docs/cluster`, run with fake versions of the programs of a cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster").canonicalize().unwrap()
}

/// A folder of fake programs that precede those of the system on the PATH.
fn programs(programs: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in programs {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn run(script: &str, arguments: &[&str], folder: &Path, variables: &[(&str, &str)]) -> Output {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.arg(docs().join(script)).args(arguments).current_dir(folder).env("PATH", path);
    command.envs(variables.iter().copied()).output().unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Prints its arguments; exits with the code in the file of its machine.
const FAKE_LAUNCH: &str = r#"echo "$*"
[ -n "$MYXTTS_RENDEZVOUS_TOKEN" ] || exit 2
if [ -f "code-$7" ]; then code=$(cat "code-$7"); rm "code-$7"; exit "$code"; fi"#;

fn launched(gpus: u32, machine: u32, train: &str) -> String {
    format!("launch --gpus {gpus} --machines 2 --machine {machine} --rendezvous node1:29500 -- train {train}")
}

#[test]
fn a_machine_starts_or_resumes_a_run() {
    let folder = programs(&[("myxtts", FAKE_LAUNCH)]);
    let variables = [
        ("MACHINE", "1"),
        ("MACHINES", "2"),
        ("GPUS", "8"),
        ("MASTER_ADDR", "node1"),
        ("MYXTTS_RENDEZVOUS_TOKEN", "x"),
    ];
    let output = run("machine.sh", &["my corpus", "mina", "--preset", "v2"], folder.path(), &variables);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output), [launched(8, 1, "my corpus --name mina --or-resume --preset v2")]);
    fs::write(folder.path().join("code-1"), "75").unwrap();
    let elsewhere: Vec<(&str, &str)> = variables.into_iter().chain([("RUNS", "other runs")]).collect();
    let output = run("machine.sh", &["corpus", "mina", "--from", "xtts"], folder.path(), &elsewhere);
    let started = "corpus --name mina --or-resume --from xtts --runs-dir other runs";
    assert_eq!((output.status.code(), lines(&output)), (Some(75), vec![launched(8, 1, started)]));
}

#[test]
fn ssh_starts_every_machine_and_restarts_after_a_lost_rank() {
    // `ssh HOST COMMAND`, here.
    let folder = programs(&[("myxtts", FAKE_LAUNCH), ("ssh", r#"shift; exec bash -c "$*""#)]);
    let scripts = folder.path().join("docs/cluster");
    fs::create_dir_all(&scripts).unwrap();
    fs::copy(docs().join("machine.sh"), scripts.join("machine.sh")).unwrap();
    fs::write(folder.path().join("code-1"), "75").unwrap();
    let arguments = ["node1 node2", "1", "corpus", "mina", "--set", "a=b c"];
    let output = run("ssh.sh", &arguments, folder.path(), &[("PAUSE", "0")]);
    assert!(output.status.success(), "{output:?}");
    let machine = |number: u32| launched(1, number, "corpus --name mina --or-resume --set a=b c");
    assert_eq!(lines(&output), [machine(0), machine(0), machine(1), machine(1)], "both started twice");
    // Errors that a retry cannot fix are not retried.
    fs::write(folder.path().join("code-0"), "65").unwrap();
    let output = run("ssh.sh", &arguments, folder.path(), &[("PAUSE", "0")]);
    assert_eq!((output.status.code(), lines(&output).len()), (Some(65), 2));
}

#[test]
fn a_slurm_job_is_requeued_at_its_time_limit_or_after_a_lost_rank() {
    // Sends the batch shell Slurm's warning signal, and exits as a run that has saved.
    let srun = r#"while [[ $1 == --* ]]; do options+=" $1"; shift; done
echo "srun$options"; echo "$*"
case "$(cat what 2>/dev/null)" in
time) trap 'exit 143' USR1; kill -USR1 $PPID; while :; do sleep 0.05; done ;;
*) exit "$(cat what)" ;;
esac"#;
    let folder = programs(&[("srun", srun), ("scontrol", r#"echo "scontrol $*""#)]);
    let job = [("SLURM_JOB_ID", "42"), ("SLURM_CPUS_PER_TASK", "8")];
    let ended = |what: &str, restarts: &str| {
        fs::write(folder.path().join("what"), what).unwrap();
        let job = [job[0], job[1], ("SLURM_RESTART_COUNT", restarts)];
        let output = run("train.sbatch", &["corpus", "mina", "--from", "xtts"], folder.path(), &job);
        let again = lines(&output).contains(&"scontrol requeue 42".to_owned());
        (output.status.code().unwrap(), again, lines(&output))
    };
    let (code, again, lines) = ended("0", "0");
    assert_eq!((code, again), (0, false));
    // The same command at every start: it resumes the run if there is one.
    let command = "myxtts train corpus --name mina --or-resume --from xtts".to_owned();
    assert!(lines.contains(&command), "{lines:?}");
    // Ranks were bound to one core: since Slurm 22.05, srun does not take this from the job.
    assert!(lines.contains(&"srun --kill-on-bad-exit=0 --cpus-per-task=8".to_owned()), "{lines:?}");
    for what in ["time", "75"] {
        let (code, again, lines) = ended(what, "0");
        assert_eq!((code, again), (0, true), "{what}: {lines:?}");
    }
    // Cancelled, failed, or requeued for the fiftieth time: the job ends.
    for (what, restarts, wanted) in [("143", "0", 143), ("2", "0", 2), ("65", "0", 65), ("75", "50", 75)] {
        let (code, again, _) = ended(what, restarts);
        assert_eq!((code, again), (wanted, false), "{what}");
    }
    // Restarted: leftovers of the ended processes are removed.
    let run_folder = folder.path().join("runs/mina");
    fs::create_dir_all(run_folder.join("checkpoints")).unwrap();
    for file in ["write.owner", "checkpoints/write.owner"] {
        fs::write(run_folder.join(file), "{}").unwrap();
    }
    ended("0", "0");
    assert!(run_folder.join("write.owner").exists(), "at the first start another process may hold it");
    ended("0", "1");
    assert!(!run_folder.join("write.owner").exists() && !run_folder.join("checkpoints/write.owner").exists());
}

#[test]
fn preparing_under_slurm_submits_an_array_and_a_dependent_merge() {
    let sbatch = r#"printf '%s\n' "$*" >> submitted; wc -l < submitted"#;
    let folder = programs(&[("sbatch", sbatch)]);
    let output = run("prepare.sh", &["16", "my corpus", "--set", "data.language=fa"], folder.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let submitted = fs::read_to_string(folder.path().join("submitted")).unwrap();
    let submitted: Vec<&str> = submitted.lines().collect();
    let words = r"myxtts prepare my\ corpus --set data.language=fa";
    assert!(
        submitted[0].contains("--array=1-16") && submitted[0].contains(&format!("{words}  --shard auto"))
    );
    assert!(
        submitted[1].contains("--dependency=afterok:1")
            && submitted[1].contains(&format!("{words}  --merge"))
    );
}

/// Every option of myxtts in these files exists.
#[test]
fn options_in_the_cluster_files_exist() {
    let help = |command: &str| {
        let output = Command::new(cargo_bin("myxtts")).args([command, "--help"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (train, prepare, launch) = (help("train"), help("prepare"), help("launch"));
    for option in ["--gpus", "--machines", "--machine ", "--rendezvous"] {
        assert!(launch.contains(option), "launch has no {option}");
    }
    for option in ["--or-resume", "--name", "--from", "--runs-dir", "--set"] {
        assert!(train.contains(option), "train has no {option}");
    }
    for option in ["--shard", "--merge", "--set"] {
        assert!(prepare.contains(option), "prepare has no {option}");
    }
}

#[test]
fn the_scale_page_matches_its_script() {
    let root = docs().join("../..");
    let checked = Command::new("python3")
        .arg(root.join("bench/scale/table.py"))
        .arg("--check")
        .arg(root.join("docs/src/scale.md"))
        .output();
    match checked {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped: no python3 ({error})"),
    }
}
