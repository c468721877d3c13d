//! The models of a server: opened on demand, kept within a memory limit, closed after a time without requests.
//!
//! An open model has its own thread and queue. A job is added under the lock of its model, and a model is closed under the
//! same lock only if no job waits or is being spoken, so that no response is cut off. If there is no memory next to models
//! that are speaking, the client is asked to retry. One model may always be open, whatever its size.

use crate::audio_stream::{self, AudioReceiver, PendingBytes};
use crate::metrics::{Metrics, ModelState};
use crate::queue::{EncodeVoiceJob, Job, Jobs, QueueError, SpeakJob};
use crate::response::ApiError;
use crate::speaker::{EncodedVoice, Speaker, SpeakerError, SpeakerFacts, Utterance, VoiceStore};
use axum::http::StatusCode;
use myxtts_speak::SpeakError;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempPath;
use tokio::sync::{oneshot, watch};

/// Model names that clients send by default; they select the first model.
const ALIASES: [&str; 3] = ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"];

/// Opens the speaker of a model, on its worker thread.
pub type OpenSpeaker = dyn Fn() -> Result<Box<dyn Speaker>, SpeakError> + Send + Sync;

/// Finds a model for a server that was started without one.
pub type FindModel = dyn Fn() -> Option<ServedModel> + Send + Sync;

/// A model that a server can open.
#[derive(Clone)]
pub struct ServedModel {
    /// Its name in the API.
    pub name: String,
    /// Its voices; listing and removing them needs no open model.
    pub voices: Arc<dyn VoiceStore>,
    /// Estimated memory when open, in bytes.
    pub bytes: u64,
    /// Opens it.
    pub open: Arc<OpenSpeaker>,
}

/// Limits on open models.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelLimits {
    /// Memory of all open models in bytes; `None` for no limit.
    pub memory: Option<u64>,
    /// Time without requests after which a model is closed; `None` for never.
    pub idle: Option<Duration>,
}

/// Why a request could not be queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError {
    /// The queue is full or closed.
    #[error("the queue is full or closed")]
    Queue(QueueError),
    /// Not enough memory to open the model while others are busy.
    #[error(
        "there is not enough memory to open the model {model:?} while other models are busy: try again later"
    )]
    NoRoom {
        /// The model.
        model: String,
    },
    /// The worker thread cannot be started.
    #[error("the model cannot be opened: {0}")]
    NoThread(String),
}

impl From<EnqueueError> for ApiError {
    fn from(error: EnqueueError) -> ApiError {
        let message = error.to_string();
        match error {
            EnqueueError::Queue(error) => error.into(),
            EnqueueError::NoRoom { .. } => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_memory", message)
            }
            EnqueueError::NoThread(_) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_thread", message),
        }
    }
}

/// One model.
pub(crate) struct Model {
    pub name: String,
    pub voices: Arc<dyn VoiceStore>,
    /// Set once it has spoken for the first time; stays set when it is closed.
    pub facts: OnceLock<SpeakerFacts>,
    open: Arc<OpenSpeaker>,
    state: Mutex<State>,
    /// Cloned by every request that waits for the model or is spoken by it.
    users: Arc<()>,
}

struct State {
    /// `None` while it is closed.
    jobs: Option<Arc<Jobs>>,
    bytes: u64,
    last_used: Instant,
}

impl Model {
    fn new(served: ServedModel) -> Model {
        let ServedModel { name, voices, bytes, open } = served;
        let state = Mutex::new(State { jobs: None, bytes, last_used: Instant::now() });
        Model { name, voices, facts: OnceLock::new(), open, state, users: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether it is open, or being opened.
    pub fn is_open(&self) -> bool {
        self.state().jobs.is_some()
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }

    /// Language codes it supports; empty before it has spoken.
    pub fn languages(&self) -> Vec<String> {
        self.facts.get().map(|facts| facts.languages.clone()).unwrap_or_default()
    }

    /// Closes the model if it is unused. Returns whether it was closed.
    fn close_unused(&self) -> bool {
        let mut state = self.state();
        if self.is_used() {
            return false;
        }
        match state.jobs.take() {
            Some(jobs) => {
                jobs.close();
                true
            }
            None => false,
        }
    }
}

/// All models of a server.
pub(crate) struct Models {
    all: Mutex<Vec<Arc<Model>>>,
    find: Option<Arc<FindModel>>,
    model_limits: ModelLimits,
    /// Maximum number of waiting requests per model.
    queue: usize,
    metrics: Arc<Metrics>,
    waiting: PendingBytes,
    workers: Mutex<Workers>,
    /// Held while a model is opened: one at a time, so that the memory of each can be measured.
    opening: Mutex<()>,
    stop: watch::Sender<bool>,
}

#[derive(Default)]
struct Workers {
    /// Threads of open models, and of closed ones that are still finishing.
    running: Vec<(Arc<Jobs>, JoinHandle<()>)>,
    failure: Option<Failure>,
}

/// Why a server ended.
pub(crate) enum Failure {
    /// A model failed.
    Speaker(SpeakError),
    /// A bug: a thread panicked.
    Panicked,
}

/// Closes a model when its thread ends, even by a panic.
struct CloseOnDrop<'m> {
    models: &'m Models,
    model: &'m Model,
    jobs: &'m Arc<Jobs>,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.jobs.close();
        let mut state = self.model.state();
        if state.jobs.as_ref().is_some_and(|jobs| Arc::ptr_eq(jobs, self.jobs)) {
            state.jobs = None;
        }
        drop(state);
        if std::thread::panicking() {
            lock(&self.models.workers).failure.get_or_insert(Failure::Panicked);
            self.models.stop();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Models {
    pub fn new(
        served: Vec<ServedModel>,
        find: Option<Arc<FindModel>>,
        model_limits: ModelLimits,
        queue: usize,
        metrics: Arc<Metrics>,
        stop: watch::Sender<bool>,
    ) -> Arc<Models> {
        Arc::new(Models {
            all: Mutex::new(served.into_iter().map(|one| Arc::new(Model::new(one))).collect()),
            find,
            model_limits,
            queue,
            metrics,
            waiting: PendingBytes::default(),
            workers: Mutex::default(),
            opening: Mutex::default(),
            stop,
        })
    }

    /// All models in order. If there are none, looks for one that has appeared since.
    pub fn all(&self) -> Vec<Arc<Model>> {
        let mut all = lock(&self.all);
        if all.is_empty()
            && let Some(found) = self.find.as_ref().and_then(|find| find())
        {
            all.push(Arc::new(Model::new(found)));
        }
        all.clone()
    }

    /// The default model.
    pub fn first(&self) -> Result<Arc<Model>, ApiError> {
        self.all().into_iter().next().ok_or_else(|| {
            let message = "this server has no model yet: train one, import one with `myxtts import`, or start the server with --model";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_model", message)
        })
    }

    /// Finds a model by its name or a generic alias.
    pub fn named(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        let first = self.first()?;
        let all = self.all();
        if let Some(found) = all.iter().find(|model| model.name == name) {
            return Ok(found.clone());
        }
        if ALIASES.contains(&name) {
            return Ok(first);
        }
        let named: String = name.chars().take(60).collect();
        let names: Vec<String> = all.iter().map(|model| format!("{:?}", model.name)).collect();
        let message = format!("there is no model {named:?}: this server has {}", names.join(", "));
        let error = ApiError::field("model", "model_not_found", message);
        Err(ApiError { status: StatusCode::NOT_FOUND, ..error })
    }

    /// Finds a model by its name, or the default one without a name.
    pub fn named_or_first(&self, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
        name.map_or_else(|| self.first(), |name| self.named(name))
    }

    /// Whether the server is stopping or has stopped.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Number of waiting requests of all models.
    pub fn waiting(&self) -> usize {
        let length = |model: &Arc<Model>| model.state().jobs.as_ref().map_or(0, |jobs| jobs.len());
        lock(&self.all).iter().map(length).sum()
    }

    /// State of all models.
    pub fn states(&self) -> Vec<ModelState> {
        let one = |model: &Arc<Model>| {
            let state = model.state();
            ModelState { name: model.name.clone(), is_open: state.jobs.is_some(), bytes: state.bytes }
        };
        lock(&self.all).iter().map(one).collect()
    }

    /// Queues an utterance; opens the model if it is closed.
    pub fn speak(
        self: &Arc<Models>,
        model: &Arc<Model>,
        client: IpAddr,
        utterance: Utterance,
    ) -> Result<AudioReceiver, EnqueueError> {
        let (sink, receiver) =
            audio_stream::channel(self.waiting.clone(), self.metrics.clone(), model.users.clone());
        self.add(model, client, Job::Speak(SpeakJob { utterance, sink }))?;
        Ok(receiver)
    }

    /// Queues a recording to be encoded as a voice and stored.
    pub fn encode_voice(
        self: &Arc<Models>,
        model: &Arc<Model>,
        client: IpAddr,
        name: String,
        recording: TempPath,
    ) -> Result<oneshot::Receiver<Result<EncodedVoice, SpeakerError>>, EnqueueError> {
        let (reply, answered) = oneshot::channel();
        let in_use = model.users.clone();
        self.add(model, client, Job::EncodeVoice(EncodeVoiceJob { name, recording, reply, in_use }))?;
        Ok(answered)
    }

    fn add(self: &Arc<Models>, model: &Arc<Model>, client: IpAddr, job: Job) -> Result<(), EnqueueError> {
        let jobs = self.opened(model)?;
        let mut state = model.state();
        state.last_used = Instant::now();
        // The job counts as a user, so only a stop or a failure can have closed the model since; then the queue is closed.
        jobs.add(client, job).map_err(EnqueueError::Queue)
    }

    /// The queue of a model; opens the model if it is closed.
    fn opened(self: &Arc<Models>, model: &Arc<Model>) -> Result<Arc<Jobs>, EnqueueError> {
        // Held until the decision is made, so that only one of two requests opens the same model.
        let all = lock(&self.all);
        if self.is_stopping() {
            return Err(EnqueueError::Queue(QueueError::Closed));
        }
        let open = model.state().jobs.clone();
        if let Some(jobs) = open.filter(|jobs| !jobs.is_closed()) {
            return Ok(jobs);
        }
        self.make_room(&all, model)?;
        let jobs = Arc::new(Jobs::new(self.queue));
        model.state().jobs = Some(jobs.clone());
        let (this, worked, queue) = (self.clone(), model.clone(), jobs.clone());
        let worker = std::thread::Builder::new()
            .name("myxtts-speaker".to_owned())
            .spawn(move || this.work(&worked, &queue));
        let worker = worker.map_err(|error| {
            model.state().jobs = None;
            EnqueueError::NoThread(error.to_string())
        })?;
        lock(&self.workers).running.push((jobs.clone(), worker));
        Ok(jobs)
    }

    /// Closes unused models, the least recently used first, until there is memory for `wanted`.
    fn make_room(&self, all: &[Arc<Model>], wanted: &Arc<Model>) -> Result<(), EnqueueError> {
        let Some(limit) = self.model_limits.memory else { return Ok(()) };
        loop {
            let others = || all.iter().filter(|one| !Arc::ptr_eq(one, wanted) && one.is_open());
            let used: u64 = others().map(|one| one.state().bytes).sum();
            if used == 0 || used + wanted.state().bytes <= limit {
                return Ok(());
            }
            let mut unused: Vec<_> = others().filter(|one| !one.is_used()).collect();
            unused.sort_by_key(|one| one.state().last_used);
            if !unused.into_iter().any(|one| one.close_unused()) {
                return Err(EnqueueError::NoRoom { model: wanted.name.clone() });
            }
        }
    }

    /// Closes models that have been idle for too long.
    pub fn close_idle(&self) {
        let Some(idle) = self.model_limits.idle else { return };
        for model in lock(&self.all).iter() {
            let is_idle = model.state().last_used.elapsed() >= idle;
            if is_idle && !model.is_used() {
                model.close_unused();
            }
        }
    }

    /// Opens the first model immediately, if there is one.
    pub fn open_first(self: &Arc<Models>) -> Result<(), EnqueueError> {
        match self.all().into_iter().next() {
            Some(first) => self.opened(&first).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Body of the worker thread of a model.
    fn work(self: &Arc<Models>, model: &Arc<Model>, jobs: &Arc<Jobs>) {
        // Rejects waiting requests however this ends, even by a panic.
        let _close = CloseOnDrop { models: self, model, jobs };
        let speaker = {
            let _guard = lock(&self.opening);
            self.wait_for_closed(jobs);
            (model.open)().and_then(|mut speaker| {
                speaker.warm_up()?;
                if let Some(bytes) = speaker.memory_bytes() {
                    model.state().bytes = bytes.max(1);
                }
                Ok(speaker)
            })
        };
        let failure = match speaker {
            Ok(mut speaker) => {
                // It is the same every time the model is opened.
                let _ = model.facts.set(speaker.facts());
                self.keep_within(model);
                speaker.work(jobs, &self.metrics).err()
            }
            // If no model has ever spoken, the server ends with the reason; otherwise it continues, and the clients get
            // the error.
            Err(error)
                if self.find.is_none() && lock(&self.all).iter().all(|one| one.facts.get().is_none()) =>
            {
                Some(error)
            }
            Err(error) => {
                eprintln!("the model {} cannot be opened: {error}", model.name);
                jobs.fail(&SpeakerError::Failed(format!(
                    "the model {} cannot be opened: {error}",
                    model.name
                )));
                None
            }
        };
        if let Some(error) = failure {
            lock(&self.workers).failure.get_or_insert(Failure::Speaker(error));
            self.stop();
        }
    }

    /// Closes other unused models if an opened model uses more memory than estimated.
    fn keep_within(&self, model: &Arc<Model>) {
        let all = lock(&self.all).clone();
        // Models that are speaking stay open; the limit holds again when they have finished.
        let _ = self.make_room(&all, model);
    }

    /// Waits until the threads of closed models have ended and their memory is free.
    fn wait_for_closed(&self, own: &Arc<Jobs>) {
        let mut closed = Vec::new();
        let mut workers = lock(&self.workers);
        for (jobs, worker) in std::mem::take(&mut workers.running) {
            match jobs.is_closed() && !Arc::ptr_eq(&jobs, own) {
                true => closed.push(worker),
                false => workers.running.push((jobs, worker)),
            }
        }
        drop(workers);
        for worker in closed {
            // A panic is recorded by the thread itself.
            let _ = worker.join();
        }
    }

    /// Accepts no more requests; waiting ones are rejected, active ones are finished.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        for model in lock(&self.all).iter() {
            if let Some(jobs) = &model.state().jobs {
                jobs.close();
            }
        }
    }

    /// Waits for all threads; returns why one failed.
    pub fn wait(&self) -> Option<Failure> {
        loop {
            let running = std::mem::take(&mut lock(&self.workers).running);
            if running.is_empty() {
                return lock(&self.workers).failure.take();
            }
            for (_, worker) in running {
                let _ = worker.join();
            }
        }
    }
}
