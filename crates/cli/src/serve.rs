//! `myxtts serve`: a model behind an API that other programs speak to.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use myxtts_model::weights::ModelFolder;
use myxtts_run::exit::Exit;
use myxtts_run::folder::RunFolder;
use myxtts_tensor::Device;
use myxtts_web::{
    FindModel, Keeping, ModelSpeaker, ModelVoices, ServedModel, Server, ServerOptions, Speaker, StudioOptions,
};

use crate::failure::UsageError;
use crate::output::{errln, outln};
use crate::sampling::at_least_one;
use crate::signal::stop_requested;
use crate::speak::{chosen, defaults};

const GIB: f64 = (1u64 << 30) as f64;

/// How often the signals are looked at.
const LOOK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  myxtts serve                                        newest run's model on http://127.0.0.1:8020
  curl http://127.0.0.1:8020/v1/audio/speech -H 'Content-Type: application/json' \\
    -d '{\"model\":\"tts-1\",\"input\":\"Hello there.\",\"voice\":\"default\"}' -o hello.mp3
  myxtts serve --model mina --model runs/book --memory-limit 20 --unload-after 600
  myxtts serve --data-root ~/corpora                  the page at the same address may also check and train on these
  MYXTTS_TOKEN=... myxtts serve --host 0.0.0.0        for other machines: only with a token

Speaks to clients of OpenAI's speech API (base URL http://127.0.0.1:8020/v1), of XTTS servers (SillyTavern) and of Wyoming (Home Assistant);
docs/src/serving.md lists all routes. /health, /ready and /metrics tell how it is. SIGTERM or Ctrl-C: what is being spoken is finished; a second one leaves at once.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the name of a run; may be repeated: the first is opened at once, others when they are asked for
    /// [default: ./model, the newest run's, the first in models/; without any, the page works and speech waits for one]
    #[arg(long, value_name = "DIR")]
    model: Vec<PathBuf>,
    /// Memory for open models together, in GiB: the one that was unused for longest is closed first; one always may be open
    #[arg(long, value_name = "GIB", value_parser = above_zero)]
    memory_limit: Option<f64>,
    /// Close a model that nobody has used for so many seconds; it is opened again when it is asked for [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    unload_after: Option<f64>,
    /// Where runs are
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Address to listen on; any but a loopback address needs a token
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8020)]
    port: u16,
    /// What clients send as `Authorization: Bearer TOKEN`; other users of this machine see arguments, but not the variable
    #[arg(long, value_name = "TOKEN", env = "MYXTTS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Requests that wait at most; more are answered with 429
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one)]
    queue: usize,
    /// Also speak Wyoming on this port of 127.0.0.1, for Home Assistant on the same machine: the protocol knows no token
    #[arg(long, value_name = "PORT")]
    wyoming: Option<u16>,
    /// Utterances spoken at the same time [default: 64 on a GPU, 8 on a processor; fewer where memory does not suffice]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    slots: Option<usize>,
    /// Let pages of this origin use the server, `https://chat.example` say, or `*`; those of this machine always may
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Folder whose corpora the page may show and train on; may be repeated
    #[arg(long, value_name = "DIR")]
    data_root: Vec<PathBuf>,
    /// Where to compute: auto, cpu, cuda, cuda:1
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let device = chosen(&args.device)?;
    let address = address(&args.host, args.port)?;
    if let Some(missing) = args.data_root.iter().find(|folder| !folder.is_dir()) {
        return Err(UsageError(format!("--data-root {}: there is no such folder", missing.display())).into());
    }
    let (slots, runs) = (args.slots, args.runs.clone());
    let mut models = Vec::new();
    for named in &args.model {
        let model = served(defaults::model(Some(named), &runs)?, device, slots)?;
        if models.iter().any(|other: &ServedModel| other.name == model.name) {
            let message =
                format!("--model: two are called {:?}, and clients name one: rename a folder", model.name);
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
                errln!("note: serving without a model: one that a run makes is spoken with when it is there");
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
        keeping: Keeping {
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
        outln!("speaking Wyoming at tcp://{address}");
    }

    let stop = stop_requested()?;
    let mut is_ready = false;
    while !stop.load(Ordering::Relaxed) && !server.is_stopping() {
        if !is_ready && let Some(facts) = server.facts() {
            is_ready = true;
            outln!("ready: speaks {}", facts.languages.join(", "));
        }
        std::thread::sleep(LOOK);
    }
    if stop.load(Ordering::Relaxed) {
        errln!("stopping: what is being spoken is finished first");
        server.stop();
    }
    server.wait()?;
    Ok(Exit::Stopped)
}

/// A model as the server opens it.
fn served(found: defaults::Found, device: Device, slots: Option<usize>) -> anyhow::Result<ServedModel> {
    let folder = Arc::new(ModelFolder::open(&found.model)?);
    let recordings = recordings(&folder, found.run.as_ref())?;
    let name = model_name(&found.model, found.run.as_ref());
    let voices = Arc::new(ModelVoices::new(folder.clone(), !recordings.is_empty()));
    // Until it was open: then it is known.
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
    let number: f64 = text.parse().map_err(|_| "a number is wanted".to_owned())?;
    // More than a hundred years, or exabytes, is a slip.
    if number > 0.0 && number < 4e9 {
        Ok(number)
    } else {
        Err("it is to be above 0, and below 4e9".to_owned())
    }
}

/// Recordings to hear where the model has no voice; none where it has one, or where there is nobody to hear.
fn recordings(folder: &ModelFolder, run: Option<&RunFolder>) -> anyhow::Result<Vec<PathBuf>> {
    match defaults::voice(folder, run, "en") {
        Ok(found) => Ok(found.into_iter().filter(|path| path.is_file()).collect()),
        // Clients can add one.
        Err(error) if error.is::<UsageError>() => {
            errln!("note: there is no voice yet: add one with `myxtts voice add`, or POST /v1/audio/voices");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// What clients call the model: the run's name, or the folder's.
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
    found.ok_or_else(|| UsageError(format!("--host {host}: there is no such address")).into())
}
