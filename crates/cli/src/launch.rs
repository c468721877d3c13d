//! `myxtts launch`: starts the ranks of a training run on this machine, each a process with torchrun's environment variables. With
//! several machines it is called once on each. It prefixes the output of the ranks and forwards signals; when one rank fails,
//! all end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use myxtts_run::exit::Exit;
use myxtts_train::ranks::Token;
use myxtts_train::ranks::discovery::{Identity, split_address};
use myxtts_train::ranks::health::GRACE;
use myxtts_train::strategy::AvailableGpus;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::failure::UsageError;
use crate::output::errln;
use crate::ranks::TOKEN;

/// How often the processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long the other ranks have to exit by themselves after one has failed; they are notified and report it.
const EXIT_GRACE: Duration = Duration::from_secs(GRACE.as_secs() + 1);
/// Time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// Examples at the end of `--help`.
const EXAMPLES: &str = "Examples:
  myxtts launch --gpus 4 -- train corpus --preset normal     one process for each of four GPUs
  myxtts launch --ranks 2 -- train corpus --preset tiny      two processes on the CPU
  myxtts launch --gpus 2 -- train --resume run-001           resumes, with any number of ranks
  myxtts launch --gpus 8 --machines 4 --machine 2 --rendezvous node0:29500 -- train corpus
                                                             on the third of four machines; rank 0 is on node0

Slurm, Kubernetes and torchrun can start one process per GPU without this command: `myxtts train` reads the variables they
set. The exit code is that of the first process that failed; 75 if a process was killed or lost, and `train --resume`
continues from the last checkpoint.";

/// Starts several ranks of a training run on this machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Start N ranks, one per GPU
    #[arg(long, value_name = "N", required_unless_present = "ranks", conflicts_with = "ranks")]
    gpus: Option<u32>,
    /// Start N ranks on the CPU, or on the device that the command names
    #[arg(long, value_name = "N")]
    ranks: Option<u32>,
    /// Number of machines, each running this command with the same number of ranks and the same MYXTTS_RENDEZVOUS_TOKEN
    #[arg(long, value_name = "N", default_value_t = 1, requires = "rendezvous")]
    machines: u32,
    /// Index of this machine, from 0
    #[arg(long, value_name = "N", default_value_t = 0, requires = "machines")]
    machine: u32,
    /// Address where rank 0 listens, on machine 0 [default with one machine: a free local port]
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,
    /// `train` with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Args {
    /// One of several machines: a rank for each of its `local` GPUs, or as many on the CPU.
    pub fn of_machine(identity: &Identity, local: u32, on_gpus: bool, command: Vec<OsString>) -> Args {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Args {
            gpus: on_gpus.then_some(local),
            ranks: (!on_gpus).then_some(local),
            machines: count(identity.world),
            machine: count(identity.rank),
            rendezvous: Some(identity.address()),
            command,
        }
    }
}

/// One process of the run.
struct Rank {
    number: u32,
    child: Child,
    ended: Option<ExitStatus>,
    printing: Vec<JoinHandle<()>>,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let world = args.gpus.or(args.ranks).unwrap_or(0);
    check(&args, world)?;
    let signals = Signals::listen()?;
    let (host, port) = match &args.rendezvous {
        Some(address) => split_address(address).map_err(|error| UsageError(error.to_string()))?,
        None => ("127.0.0.1".to_owned(), free_port()?),
    };
    let mut ranks = start(&args, world, (&host, port))?;
    let exit = wait(&mut ranks, &signals);
    for rank in &mut ranks {
        rank.printing.drain(..).for_each(|thread| {
            // The thread ends with the pipe it reads; a panic there lost output only.
            let _ = thread.join();
        });
    }
    Ok(exit)
}

fn check(args: &Args, world: u32) -> anyhow::Result<()> {
    if world == 0 || world > 1024 {
        return Err(UsageError(format!("{world} ranks: the number must be from 1 to 1024")).into());
    }
    if args.command.first().is_none_or(|command| command != "train") {
        let message = "launch starts `train`: write `myxtts launch --gpus 2 -- train CORPUS`";
        return Err(UsageError(message.to_owned()).into());
    }
    if args.machine >= args.machines {
        let message = format!(
            "--machine {} with --machines {}: machines are counted from 0, so the last is {}",
            args.machine,
            args.machines,
            args.machines.saturating_sub(1)
        );
        return Err(UsageError(message).into());
    }
    if args.machines > 1 && std::env::var_os(TOKEN).is_none_or(|token| token.is_empty()) {
        let message = format!(
            "ranks on several machines need a token: set {TOKEN} to the same random text on all of them (openssl rand -hex 16)"
        );
        return Err(UsageError(message).into());
    }
    if args.gpus.is_some() {
        let found = AvailableGpus::of(&myxtts_tensor::device::devices());
        if (found.gpus.len() as u32) < world {
            let why = found.why.map_or_else(String::new, |why| format!(" ({why})"));
            return Err(UsageError(format!(
                "--gpus {world}: only {} can be used here{why}; request fewer, or run on the CPU with --ranks",
                found.gpus.len()
            ))
            .into());
        }
    }
    Ok(())
}

fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("finding a free port")?;
    Ok(listener.local_addr().context("finding a free port")?.port())
}

fn start(args: &Args, local: u32, (host, port): (&str, u16)) -> anyhow::Result<Vec<Rank>> {
    let program = std::env::current_exe().context("finding the path of this program")?;
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let token = token.unwrap_or_else(Token::random_word);
    let names_device = args.command.iter().any(|word| word.to_string_lossy().starts_with("--device"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut ranks: Vec<Rank> = Vec::new();
    for on_machine in 0..local {
        let number = args.machine * local + on_machine;
        let mut command = Command::new(&program);
        command.args(&args.command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if args.gpus.is_none() && !names_device {
            command.args(["--device", "cpu"]);
        }
        command.env_remove("TORCHELASTIC_USE_AGENT_STORE").env(TOKEN, &token);
        command.env("RANK", number.to_string()).env("LOCAL_RANK", on_machine.to_string());
        command
            .env("WORLD_SIZE", (args.machines * local).to_string())
            .env("LOCAL_WORLD_SIZE", local.to_string());
        command.env("MASTER_ADDR", host).env("MASTER_PORT", port.to_string());
        if std::env::var_os("RAYON_NUM_THREADS").is_none() {
            // If every rank used all cores, they would only slow each other down.
            command.env("RAYON_NUM_THREADS", (cores / local as usize).max(1).to_string());
        }
        // A process group of its own, so that Ctrl-C reaches it only through this process.
        command.process_group(0);
        end_with_this_process(&mut command);
        let started = command.spawn();
        match started {
            Ok(child) => ranks.push(with_output(number, child)),
            Err(error) => {
                ranks.iter_mut().for_each(|rank| signal(rank, libc::SIGKILL));
                return Err(error).with_context(|| format!("starting rank {number}"));
            }
        }
    }
    Ok(ranks)
}

/// Asks the system to send SIGUSR1 to the process if this one ends first, even by SIGKILL: it then saves and ends. The system sends the
/// signal again for every thread of this process that ends after the first, and a second SIGTERM would end the process at once.
#[cfg(target_os = "linux")]
fn end_with_this_process(command: &mut Command) {
    let own = std::process::id() as i32;
    let ask = move || {
        // SAFETY: both take and return numbers only.
        let (asked, parent) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1), libc::getppid()) };
        // The parent may have ended before prctl was called.
        if asked == 0 && parent != own { Err(std::io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes two system calls, and an error made from an `ErrorKind` allocates nothing.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_this_process(_: &mut Command) {}

/// Forwards the output of a process line by line.
fn with_output(number: u32, mut child: Child) -> Rank {
    let out = child.stdout.take().map(|pipe| forward(number, pipe, std::io::stdout));
    let err = child.stderr.take().map(|pipe| forward(number, pipe, std::io::stderr));
    Rank { number, child, ended: None, printing: out.into_iter().chain(err).collect() }
}

fn forward<W: Write + 'static>(
    number: u32,
    pipe: impl Read + Send + 'static,
    to: fn() -> W,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let mut whole = format!("[rank {number}] ").into_bytes();
            whole.append(&mut line);
            if whole.last() != Some(&b'\n') {
                whole.push(b'\n');
            }
            // A closed pipe must not end the training.
            let _ = to().write_all(&whole);
        }
    })
}

/// Signals that are forwarded to the ranks.
struct Signals(Vec<(i32, Arc<AtomicBool>)>);

impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        let mut all = Vec::new();
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGUSR1] {
            let raised = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, raised.clone()).context("listening for signals")?;
            all.push((signal, raised));
        }
        Ok(Signals(all))
    }

    /// Signals received since the last call.
    fn received(&self) -> Vec<i32> {
        let came = |(signal, raised): &(i32, Arc<AtomicBool>)| {
            raised.swap(false, Ordering::Relaxed).then_some(*signal)
        };
        self.0.iter().filter_map(came).collect()
    }
}

fn signal(rank: &mut Rank, signal: i32) {
    if rank.ended.is_none() {
        // SAFETY: kill takes two numbers and touches no memory of ours; the process was not reaped yet, so the id is still its own.
        unsafe { libc::kill(rank.child.id() as i32, signal) };
    }
}

/// Waits for all ranks, and ends all when one has failed. Returns the exit code of the first that failed.
fn wait(ranks: &mut [Rank], signals: &Signals) -> Exit {
    let mut failed: Option<(Exit, Instant)> = None;
    let mut signals_sent = 0;
    while ranks.iter().any(|rank| rank.ended.is_none()) {
        for number in signals.received() {
            ranks.iter_mut().for_each(|rank| signal(rank, number));
        }
        for rank in ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            let Ok(Some(status)) = rank.child.try_wait() else { continue };
            rank.ended = Some(status);
            let exit = exit_of(status);
            if exit != Exit::Done && failed.is_none() {
                errln!("rank {} {}", rank.number, described(status));
                failed = Some((exit, Instant::now()));
            }
        }
        if let Some((_, since)) = failed {
            let steps = [(EXIT_GRACE, libc::SIGTERM), (EXIT_GRACE + KILL_GRACE, libc::SIGKILL)];
            if let Some((_, number)) = steps.get(signals_sent).filter(|(after, _)| since.elapsed() > *after) {
                signals_sent += 1;
                ranks.iter_mut().for_each(|rank| signal(rank, *number));
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    failed.map_or(Exit::Done, |(exit, _)| exit)
}

/// The exit code for the end of a process. One that was killed counts as lost: the run can be resumed.
fn exit_of(status: ExitStatus) -> Exit {
    match status.code() {
        Some(code) => u8::try_from(code).ok().and_then(Exit::from_code).unwrap_or(Exit::Internal),
        None => Exit::Retry,
    }
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
