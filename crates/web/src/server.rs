//! The server: one address, a few threads for sockets and one per open model.

use crate::access::Access;
use crate::connection;
use crate::limits::{SESSIONS, UPLOADS_AT_ONCE};
use crate::metrics::{Metrics, ModelState};
use crate::models::{Failure, FindModel, ModelLimits, Models, ServedModel};
use crate::routes::{self, App};
use crate::speaker::SpeakerFacts;
use crate::studio::{Studio, StudioOptions};
use crate::wyoming;
use myxtts_speak::SpeakError;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};

/// Minimum number of characters of a token.
pub const MIN_TOKEN_CHARACTERS: usize = 8;

/// Maximum interval between checks for idle models.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Time for sessions to send remaining audio when the server stops.
const SESSION_GRACE: Duration = Duration::from_secs(10);

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address to listen on; port 0 for any free port.
    pub address: SocketAddr,
    /// Access token; required for non-loopback addresses.
    pub token: Option<String>,
    /// Maximum number of waiting requests per model.
    pub queue: usize,
    /// Limits on open models.
    pub model_limits: ModelLimits,
    /// Port on 127.0.0.1 for the Wyoming protocol: 0 for any free port, `None` to disable it.
    pub wyoming: Option<u16>,
    /// Further origins whose pages may use the server besides loopback addresses; `*` for all.
    pub origins: Vec<String>,
    /// Options of the web page.
    pub studio: StudioOptions,
}

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is reachable from other machines and there is no token.
    #[error(
        "{address} can be reached from other machines: give a token with --token (or in MYXTTS_TOKEN), or serve on 127.0.0.1"
    )]
    NoToken {
        /// The requested address.
        address: SocketAddr,
    },
    /// The token is too short, or not valid in a header.
    #[error("the token must have at least {MIN_TOKEN_CHARACTERS} printable ASCII characters without spaces")]
    Token,
    /// The address is in use or not available.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Threads or sockets cannot be created.
    #[error("cannot start the server: {0}")]
    Start(io::Error),
    /// The model failed.
    #[error(transparent)]
    Speaker(#[from] SpeakError),
    /// A bug: a thread panicked.
    #[error("the speaker thread panicked; its message is above")]
    Died,
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    wyoming_address: Option<SocketAddr>,
    app: Arc<App>,
    stop: watch::Sender<bool>,
    runtime: Runtime,
    sockets: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Listens immediately and opens the first model; `/ready` reports when it has spoken for the first time. The others
    /// are opened on demand. If there are none, `find` is called to look for one.
    pub fn start(
        options: ServerOptions,
        models: Vec<ServedModel>,
        find: Option<Arc<FindModel>>,
    ) -> Result<Server, ServeError> {
        let ServerOptions { address, token, queue, model_limits, wyoming, origins, studio } = options;
        if token.is_none() && !address.ip().is_loopback() {
            return Err(ServeError::NoToken { address });
        }
        let is_valid = |token: &String| {
            token.len() >= MIN_TOKEN_CHARACTERS && token.bytes().all(|b| b.is_ascii_graphic())
        };
        if token.as_ref().is_some_and(|token| !is_valid(token)) {
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
        let metrics: Arc<Metrics> = Arc::default();
        let models = Models::new(models, find, model_limits, queue, metrics.clone(), stop.clone());
        let app = Arc::new(App {
            models: models.clone(),
            metrics,
            access: Access::new(token.as_deref(), origins),
            created,
            xtts: Default::default(),
            uploads: Semaphore::new(UPLOADS_AT_ONCE),
            studio: Studio::new(studio),
            sessions: Arc::new(Semaphore::new(SESSIONS)),
            stopping: stopped.clone(),
        });
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?
        };
        if let Some(listener) = wyoming {
            let _context = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?;
            runtime.spawn(wyoming::serve(listener, app.clone()));
        }
        let sockets = runtime.spawn(connection::serve(listener, routes::router(app.clone()), stopped));
        if let Some(idle) = model_limits.idle {
            let models = models.clone();
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep((idle / 4).min(IDLE_CHECK)).await;
                    models.close_idle();
                }
            });
        }
        models.open_first().map_err(|error| ServeError::Start(io::Error::other(error.to_string())))?;
        Ok(Server { address, wyoming_address, app, stop, runtime, sockets })
    }

    /// Address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the Wyoming protocol, if enabled.
    pub fn wyoming_address(&self) -> Option<SocketAddr> {
        self.wyoming_address
    }

    /// Properties of its first model, once it has spoken for the first time.
    pub fn facts(&self) -> Option<SpeakerFacts> {
        self.app.models.first().ok()?.facts.get().cloned()
    }

    /// State of its models.
    pub fn models(&self) -> Vec<ModelState> {
        self.app.models.states()
    }

    /// Counters since the start.
    pub fn metrics(&self) -> &Metrics {
        &self.app.metrics
    }

    /// Whether it is stopping or has stopped, by request or because a model failed.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Accepts no more requests; waiting ones are rejected, active ones are finished. [`Server::wait`] waits for that.
    pub fn stop(&self) {
        self.app.models.stop();
    }

    /// Waits until the server has stopped and all active requests are finished.
    pub fn wait(self) -> Result<(), ServeError> {
        // Set by a stop request or by a failed model.
        let mut stopped = self.stop.subscribe();
        self.runtime.block_on(connection::stopped(&mut stopped));
        let failure = self.app.models.wait();
        let sockets = self.runtime.block_on(async {
            let ended = self.sockets.await;
            // Sessions are not HTTP requests any more; they end by themselves, and clients that do not read are dropped.
            let all = self.app.sessions.acquire_many(SESSIONS as u32);
            let _ = tokio::time::timeout(SESSION_GRACE, all).await;
            ended
        });
        match failure {
            Some(Failure::Speaker(error)) => Err(error.into()),
            Some(Failure::Panicked) => Err(ServeError::Died),
            None => sockets.map_err(|_| ServeError::Died),
        }
    }
}
