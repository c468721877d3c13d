//! A server on one address, with a few threads for its sockets and one for each open model.

use crate::access::Access;
use crate::connection;
use crate::limits::{SESSIONS, UPLOADS_AT_ONCE};
use crate::metrics::{Metrics, OpenModel};
use crate::models::{Failure, FindModel, Keeping, Models, ServedModel};
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

/// Characters of a token at least.
pub const SHORTEST_TOKEN: usize = 8;

/// How often it is looked for models that nobody uses, at least.
const LOOK: Duration = Duration::from_secs(1);

/// How long sessions have to send what was said when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Port 0 for any that is free.
    pub address: SocketAddr,
    /// Needed for any address but a loopback one.
    pub token: Option<String>,
    /// Requests that wait for a model at most.
    pub queue: usize,
    /// How many models stay open, and for how long.
    pub keeping: Keeping,
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
}

impl Server {
    /// Listens at once and opens the first of the models; `/ready` tells when it has spoken for the first time. The others are
    /// opened when they are asked for. Where there are none, `find` is asked whether there is one by now.
    pub fn start(
        options: ServerOptions,
        models: Vec<ServedModel>,
        find: Option<Arc<FindModel>>,
    ) -> Result<Server, ServeError> {
        let ServerOptions { address, token, queue, keeping, wyoming, origins, studio } = options;
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
        let metrics: Arc<Metrics> = Arc::default();
        let models = Models::new(models, find, keeping, queue, metrics.clone(), stop.clone());
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
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?
        };
        if let Some(listener) = wyoming {
            let _inside = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?;
            runtime.spawn(wyoming::serve(listener, app.clone()));
        }
        let sockets = runtime.spawn(connection::serve(listener, routes::router(app.clone()), stopped));
        if let Some(idle) = keeping.idle {
            let models = models.clone();
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep((idle / 4).min(LOOK)).await;
                    models.close_idle();
                }
            });
        }
        models.open_first().map_err(|why| ServeError::Start(io::Error::other(why.to_string())))?;
        Ok(Server { address, wyoming_address, app, stop, runtime, sockets })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients of Wyoming are listened to.
    pub fn wyoming_address(&self) -> Option<SocketAddr> {
        self.wyoming_address
    }

    /// What its first model speaks, once it has spoken for the first time.
    pub fn facts(&self) -> Option<SpeakerFacts> {
        self.app.models.first().ok()?.facts.get().cloned()
    }

    /// How its models stand.
    pub fn models(&self) -> Vec<OpenModel> {
        self.app.models.open_ones()
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
        self.app.models.stop();
    }

    /// Waits until everything that was begun is finished.
    pub fn wait(self) -> Result<(), ServeError> {
        // Told to stop, or a model that has failed tells it.
        let mut stopped = self.stop.subscribe();
        self.runtime.block_on(connection::stopped(&mut stopped));
        let failure = self.app.models.wait();
        let sockets = self.runtime.block_on(async {
            let ended = self.sockets.await;
            // Sessions are no requests any more; they end by themselves, and whoever does not read is left behind.
            let all = self.app.sessions.acquire_many(SESSIONS as u32);
            let _ = tokio::time::timeout(LAST_WORDS, all).await;
            ended
        });
        match failure {
            Some(Failure::Speaker(error)) => Err(error.into()),
            Some(Failure::Panicked) => Err(ServeError::Died),
            None => sockets.map_err(|_| ServeError::Died),
        }
    }
}
