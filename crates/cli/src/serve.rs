//! `myxtts serve`: speech for other programs, over HTTP and Wyoming.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use myxtts_model::weights::ModelFolder;
use myxtts_run::exit::Exit;
use myxtts_run::folder::RunFolder;
use myxtts_speak::threads::limit_threads;
use myxtts_tensor::Device;
use myxtts_web::{
    FindModel, ModelLimits, ModelSpeaker, ModelVoices, ServedModel, Server, ServerOptions, Speaker,
    StudioOptions,
};

use crate::failure::UsageError;
use crate::output::{errln, outln};
use crate::sampling::at_least_one;
use crate::signal::stop_requested;
use crate::speak::{defaults, existing_device};

const GIB: f64 = (1u64 << 30) as f64;

/// How often signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  myxtts serve
      the newest run's model on http://127.0.0.1:8020
  curl http://127.0.0.1:8020/v1/audio/speech \\
    -H 'Content-Type: application/json' -o hello.mp3 \\
    -d '{\"model\":\"tts-1\",\"input\":\"Hello there.\",\"voice\":\"default\"}'
  myxtts serve --model mina --model runs/book --memory-limit 20
  myxtts serve --data-root ~/corpora
      lets the web page check and train on these corpora
  MYXTTS_TOKEN=... myxtts serve --host 0.0.0.0
      reachable from other machines: requires a token

Works with clients of the OpenAI speech API (base URL
http://127.0.0.1:8020/v1), of XTTS servers (SillyTavern) and of Wyoming (Home
Assistant); docs/src/serving.md lists all routes. /health, /ready and /metrics
report its state. Ctrl-C or SIGTERM finishes the current speech and stops; a
second one stops at once.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the name of a run or of a model in models/; may be repeated. The first is opened at once, others at their first request
    /// [default: ./model, else the newest run's, else the first in models/; without any, only the web page works]
    #[arg(long, value_name = "DIR")]
    model: Vec<PathBuf>,
    /// Memory limit for all open models, in GiB: the least recently used is closed first. One model may always be open
    #[arg(long, value_name = "GIB", value_parser = above_zero)]
    memory_limit: Option<f64>,
    /// Close a model after this many seconds without a request; the next request opens it again [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    unload_after: Option<f64>,
    /// Folder that holds the runs
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Address to listen on; any address but loopback requires a token
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 for any free port
    #[arg(long, value_name = "PORT", default_value_t = 8020)]
    port: u16,
    /// Token that clients send as `Authorization: Bearer TOKEN`. Prefer the variable: other users can see arguments
    #[arg(long, value_name = "TOKEN", env = "MYXTTS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Maximum number of waiting requests; further ones are answered with 429
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one)]
    queue: usize,
    /// Also serve Wyoming on this port of 127.0.0.1, for Home Assistant on the same machine (the protocol has no token)
    #[arg(long, value_name = "PORT")]
    wyoming: Option<u16>,
    /// Number of utterances spoken at the same time [default: 64 on a GPU, 8 on a CPU; fewer if memory is short]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    slots: Option<usize>,
    /// Allow web pages of this origin, such as `https://chat.example`, or `*`; pages of this machine are always allowed
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Folder of corpora that the web page may show and train on; may be repeated
    #[arg(long, value_name = "DIR")]
    data_root: Vec<PathBuf>,
    /// Device to compute on: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
    /// Number of CPU threads that compute speech, without those of connections [default: one per logical CPU]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<usize>,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(threads) = args.threads {
        limit_threads(threads).context("--threads")?;
    }
    let device = existing_device(&args.device)?;
    let address = address(&args.host, args.port)?;
    if let Some(missing) = args.data_root.iter().find(|folder| !folder.is_dir()) {
        return Err(
            UsageError(format!("--data-root {}: the folder does not exist", missing.display())).into()
        );
    }
    let (slots, runs) = (args.slots, args.runs.clone());
    let mut models = Vec::new();
    for named in &args.model {
        let model = served(defaults::model(Some(named), &runs)?, device, slots)?;
        if models.iter().any(|other: &ServedModel| other.name == model.name) {
            let message = format!(
                "--model: two models have the name {:?}, which clients use to choose one; rename a folder",
                model.name
            );
            return Err(UsageError(message).into());
        }
        models.push(model);
    }
    let mut find = None;
    if args.model.is_empty() {
        match defaults::model(None, &runs) {
            Ok(found) => models.push(served(found, device, slots)?),
            Err(error) if error.is::<UsageError>() => {
                errln!("note: {error}");
                errln!("note: serving without a model: the first model that a run finishes will be used");
                find = Some(Arc::new(move || served(defaults::model(None, &runs).ok()?, device, slots).ok())
                    as Arc<FindModel>);
            }
            Err(error) => return Err(error),
        }
    }
    let options = ServerOptions {
        address,
        token: args.token,
        queue: args.queue,
        model_limits: ModelLimits {
            memory: args.memory_limit.map(|gib| (gib * GIB) as u64),
            idle: args.unload_after.map(Duration::from_secs_f64),
        },
        wyoming: args.wyoming,
        origins: args.allow_origin,
        studio: StudioOptions { runs: args.runs.clone(), roots: args.data_root, ..StudioOptions::default() },
    };
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    let names = if names.is_empty() { "no model yet".to_owned() } else { names.join(", ") };
    let server = Server::start(options, models, find)?;
    outln!("serving {names} on {device} at http://{}", server.address());
    if let Some(address) = server.wyoming_address() {
        outln!("serving Wyoming at tcp://{address}");
    }

    let stop = stop_requested()?;
    let mut is_ready = false;
    while !stop.load(Ordering::Relaxed) && !server.is_stopping() {
        if !is_ready && let Some(facts) = server.facts() {
            is_ready = true;
            outln!("ready: languages {}", facts.languages.join(", "));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    if stop.load(Ordering::Relaxed) {
        errln!("stopping: finishing the current speech first");
        server.stop();
    }
    server.wait()?;
    Ok(Exit::Stopped)
}

/// A model that the server can open.
fn served(found: defaults::FoundModel, device: Device, slots: Option<usize>) -> anyhow::Result<ServedModel> {
    let folder = Arc::new(ModelFolder::open(&found.model)?);
    let recordings = recordings(&folder, found.run.as_ref())?;
    let name = model_name(&found.model, found.run.as_ref());
    let voices = Arc::new(ModelVoices::new(folder.clone(), !recordings.is_empty()));
    // An estimate: once the model is open, its memory is measured.
    let bytes = std::fs::read_dir(&found.model)?
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|file| file.len())
        .sum();
    let open = move || {
        let speaker = ModelSpeaker::open(folder.clone(), device, &recordings, slots)?;
        Ok(Box::new(speaker) as Box<dyn Speaker>)
    };
    Ok(ServedModel { name, voices, bytes, open: Arc::new(open) })
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    // More than a hundred years, or exabytes, is a mistake.
    if number > 0.0 && number < 4e9 {
        Ok(number)
    } else {
        Err("expected a number above 0 and below 4e9".to_owned())
    }
}

/// Recordings of the default voice; none where the model has a voice, or where there are no recordings.
fn recordings(folder: &ModelFolder, run: Option<&RunFolder>) -> anyhow::Result<Vec<PathBuf>> {
    match defaults::voice(folder, run, "en") {
        Ok(found) => Ok(found.into_iter().filter(|path| path.is_file()).collect()),
        // Clients can add one.
        Err(error) if error.is::<UsageError>() => {
            errln!(
                "note: the model has no voice yet: add one with `myxtts voice add`, or POST /v1/audio/voices"
            );
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The name of a model in requests: that of the run, or of the folder.
fn model_name(model: &Path, run: Option<&RunFolder>) -> String {
    let path = run.map_or_else(
        || model.canonicalize().unwrap_or_else(|_| model.to_owned()),
        |run| run.path().to_owned(),
    );
    path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn address(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = (host, port).to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| UsageError(format!("--host {host}: unknown host")).into())
}
