//! A server on one address, with one thread for its sockets and one for its speaker.

use crate::access::Access;
use crate::connection;
use crate::limits::{SESSIONS, UPLOADS_AT_ONCE};
use crate::metrics::Metrics;
use crate::queue::Jobs;
use crate::routes::{self, App};
use crate::speaker::{Speaker, SpeakerFacts, VoiceStore};
use crate::studio::{Studio, StudioOptions};
use crate::wyoming;
use myxtts_speak::SpeakError;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};

/// Characters of a token at least.
pub const SHORTEST_TOKEN: usize = 8;

/// How long sessions have to send what was said when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Port 0 for any that is free.
    pub address: SocketAddr,
    /// Needed for any address but a loopback one.
    pub token: Option<String>,
    /// Requests that wait at most.
    pub queue: usize,
    /// What the model is called.
    pub model: String,
    /// A port of 127.0.0.1 for clients of Wyoming: 0 for any that is free; none for no such clients.
    pub wyoming: Option<u16>,
    /// Origins of pages that may use it, beside those of loopback addresses; `*` for all.
    pub origins: Vec<String>,
    /// What its page may work with.
    pub studio: StudioOptions,
}

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Others could use it.
    #[error(
        "{address} can be reached from other machines: give a token with --token (or in MYXTTS_TOKEN), or serve on 127.0.0.1"
    )]
    NoToken {
        /// What was asked for.
        address: SocketAddr,
    },
    /// A token that is no secret, or that a header cannot carry.
    #[error(
        "the token is to have at least {SHORTEST_TOKEN} characters, letters, digits and signs of ASCII without spaces"
    )]
    Token,
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Threads or sockets are not to be had.
    #[error("cannot start the server: {0}")]
    Start(io::Error),
    /// The model cannot speak.
    #[error(transparent)]
    Speaker(#[from] SpeakError),
    /// A defect.
    #[error("the thread that speaks has failed; what it said is above")]
    Died,
}

/// A server that runs.
pub struct Server {
    address: SocketAddr,
    wyoming_address: Option<SocketAddr>,
    app: Arc<App>,
    stop: watch::Sender<bool>,
    runtime: Runtime,
    sockets: tokio::task::JoinHandle<()>,
    worker: JoinHandle<Result<(), SpeakError>>,
}

impl Server {
    /// Listens at once; `open` makes the speaker on its own thread, and `/ready` tells when it has spoken for the first time.
    pub fn start<S: Speaker>(
        options: ServerOptions,
        voices: Arc<dyn VoiceStore>,
        open: impl FnOnce() -> Result<S, SpeakError> + Send + 'static,
    ) -> Result<Server, ServeError> {
        let ServerOptions { address, token, queue, model, wyoming, origins, studio } = options;
        if token.is_none() && !address.ip().is_loopback() {
            return Err(ServeError::NoToken { address });
        }
        let fits =
            |token: &String| token.len() >= SHORTEST_TOKEN && token.bytes().all(|b| b.is_ascii_graphic());
        if token.as_ref().is_some_and(|token| !fits(token)) {
            return Err(ServeError::Token);
        }
        let listen = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let wyoming = match wyoming {
            Some(port) => {
                let address = SocketAddr::from(([127, 0, 0, 1], port));
                let listen = |source| ServeError::Listen { address, source };
                let listener = TcpListener::bind(address).map_err(listen)?;
                listener.set_nonblocking(true).map_err(listen)?;
                Some(listener)
            }
            None => None,
        };
        let wyoming_address = wyoming.as_ref().and_then(|listener| listener.local_addr().ok());
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("myxtts-web")
            .enable_all()
            .build()
            .map_err(ServeError::Start)?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let (stop, stopped) = watch::channel(false);
        let app = Arc::new(App {
            jobs: Arc::new(Jobs::new(queue)),
            metrics: Arc::default(),
            waiting: Arc::default(),
            access: Access::new(token.as_deref(), origins),
            voices,
            model,
            created,
            facts: OnceLock::new(),
            xtts: Default::default(),
            uploads: Semaphore::new(UPLOADS_AT_ONCE),
            studio: Studio::new(studio),
            sessions: Arc::new(Semaphore::new(SESSIONS)),
            stopping: stopped.clone(),
        });
        let worker = std::thread::Builder::new()
            .name("myxtts-speaker".to_owned())
            .spawn({
                let (app, stop) = (app.clone(), stop.clone());
                move || work(&app, stop, open)
            })
            .map_err(ServeError::Start)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?
        };
        if let Some(listener) = wyoming {
            let _inside = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?;
            runtime.spawn(wyoming::serve(listener, app.clone()));
        }
        let sockets = runtime.spawn(connection::serve(listener, routes::router(app.clone()), stopped));
        Ok(Server { address, wyoming_address, app, stop, runtime, sockets, worker })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients of Wyoming are listened to.
    pub fn wyoming_address(&self) -> Option<SocketAddr> {
        self.wyoming_address
    }

    /// What its speaker is, once it has spoken for the first time.
    pub fn facts(&self) -> Option<&SpeakerFacts> {
        self.app.facts.get()
    }

    /// What happened so far.
    pub fn metrics(&self) -> &Metrics {
        &self.app.metrics
    }

    /// Whether it stops or has stopped: it was told to, or its speaker ended.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Takes no more requests; those that wait are told, those that are spoken are finished. [`Server::wait`] waits for that.
    pub fn stop(&self) {
        self.app.jobs.close();
        self.stop.send_replace(true);
    }

    /// Waits until everything that was begun is finished.
    pub fn wait(self) -> Result<(), ServeError> {
        let ended = self.worker.join();
        // Where the speaker has failed, nobody has told the sockets yet.
        self.stop.send_replace(true);
        self.app.jobs.close();
        let sockets = self.runtime.block_on(async {
            let ended = self.sockets.await;
            // Sessions are no requests any more; they end by themselves, and whoever does not read is left behind.
            let all = self.app.sessions.acquire_many(SESSIONS as u32);
            let _ = tokio::time::timeout(LAST_WORDS, all).await;
            ended
        });
        match ended {
            Ok(result) => result?,
            Err(_) => return Err(ServeError::Died),
        }
        sockets.map_err(|_| ServeError::Died)
    }
}

/// Stops the server when the speaker's thread ends, however it does.
struct StopsServer(watch::Sender<bool>, Arc<Jobs>);

impl Drop for StopsServer {
    fn drop(&mut self) {
        self.1.close();
        self.0.send_replace(true);
    }
}

fn work<S: Speaker>(
    app: &App,
    stop: watch::Sender<bool>,
    open: impl FnOnce() -> Result<S, SpeakError>,
) -> Result<(), SpeakError> {
    let _ends = StopsServer(stop, app.jobs.clone());
    let mut speaker = open()?;
    speaker.warm_up()?;
    // Nobody else sets it.
    let _ = app.facts.set(speaker.facts());
    speaker.work(&app.jobs)
}
