//! The models of a server: opened when they are asked for, kept within a limit of memory, closed when nobody asks for a while.
//!
//! An open model has a thread and a queue of its own. A job is added under the lock of its model, and a model is closed under it
//! only where nothing waits and nothing is said: whoever is answered is never cut off. Where there is no room beside models that
//! speak, the client is told to come again. One model may always be open, however large it is.

use crate::answer::ApiError;
use crate::metrics::{Metrics, OpenModel};
use crate::queue::{HearJob, Job, Jobs, Refused, SpeakJob};
use crate::sound::{self, SoundReceiver, WaitingBytes};
use crate::speaker::{HeardVoice, Speaker, SpeakerError, SpeakerFacts, Utterance, VoiceStore};
use axum::http::StatusCode;
use myxtts_speak::SpeakError;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempPath;
use tokio::sync::{oneshot, watch};

/// Names that clients send where their users have chosen none: they mean the first model.
const ALIASES: [&str; 3] = ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"];

/// Makes the speaker of a model, on the thread that it will speak on.
pub type OpenSpeaker = dyn Fn() -> Result<Box<dyn Speaker>, SpeakError> + Send + Sync;

/// Finds a model where the server was started with none.
pub type FindModel = dyn Fn() -> Option<ServedModel> + Send + Sync;

/// A model that a server can open.
#[derive(Clone)]
pub struct ServedModel {
    /// What clients call it.
    pub name: String,
    /// Its voices, which need no open model to be listed or removed.
    pub voices: Arc<dyn VoiceStore>,
    /// Bytes that it takes when it is open, as far as can be told before it was.
    pub bytes: u64,
    /// Opens it.
    pub open: Arc<OpenSpeaker>,
}

/// How many models stay open, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Keeping {
    /// Bytes that all open models may take together; none for any number.
    pub memory: Option<u64>,
    /// A model that nobody has used for so long is closed; none for never.
    pub idle: Option<Duration>,
}

/// Why something is not said, before it waits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The queue does not take it.
    #[error("the queue is full or closed")]
    Refused(Refused),
    /// There is no room for the model beside those that speak.
    #[error("there is no memory for the model {model:?} beside those that are speaking: try again later")]
    NoRoom {
        /// The model.
        model: String,
    },
    /// Its thread cannot be started.
    #[error("the model cannot be opened: {0}")]
    NoThread(String),
}

impl From<NotTaken> for ApiError {
    fn from(why: NotTaken) -> ApiError {
        let message = why.to_string();
        match why {
            NotTaken::Refused(refused) => refused.into(),
            NotTaken::NoRoom { .. } => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_memory", message),
            NotTaken::NoThread(_) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_thread", message),
        }
    }
}

/// One model.
pub(crate) struct Model {
    pub name: String,
    pub voices: Arc<dyn VoiceStore>,
    /// Set once it has spoken for the first time; kept when it is closed.
    pub facts: OnceLock<SpeakerFacts>,
    open: Arc<OpenSpeaker>,
    state: Mutex<State>,
    /// As many as requests wait for it or are said by it, and one.
    users: Arc<()>,
}

struct State {
    /// None while it is closed.
    jobs: Option<Arc<Jobs>>,
    bytes: u64,
    last_used: Instant,
}

impl Model {
    fn of(served: ServedModel) -> Model {
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

    /// Codes of the languages it speaks; none before it has spoken.
    pub fn languages(&self) -> Vec<String> {
        self.facts.get().map(|facts| facts.languages.clone()).unwrap_or_default()
    }

    /// Closes it where nobody uses it. Whether it was closed.
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
    keeping: Keeping,
    /// Requests that wait for a model at most.
    queue: usize,
    metrics: Arc<Metrics>,
    waiting: WaitingBytes,
    workers: Mutex<Workers>,
    /// Held while a model is opened: one after the other, so that what each takes can be told.
    opening: Mutex<()>,
    stop: watch::Sender<bool>,
}

#[derive(Default)]
struct Workers {
    /// Threads of open models, and of those that were closed and still finish.
    running: Vec<(Arc<Jobs>, JoinHandle<()>)>,
    failure: Option<Failure>,
}

/// Why a server ended.
pub(crate) enum Failure {
    /// A model cannot speak.
    Speaker(SpeakError),
    /// A defect: a thread has panicked.
    Panicked,
}

/// Ends a model when its thread does, however that does.
struct EndsModel<'m> {
    models: &'m Models,
    model: &'m Model,
    jobs: &'m Arc<Jobs>,
}

impl Drop for EndsModel<'_> {
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
        keeping: Keeping,
        queue: usize,
        metrics: Arc<Metrics>,
        stop: watch::Sender<bool>,
    ) -> Arc<Models> {
        Arc::new(Models {
            all: Mutex::new(served.into_iter().map(|one| Arc::new(Model::of(one))).collect()),
            find,
            keeping,
            queue,
            metrics,
            waiting: WaitingBytes::default(),
            workers: Mutex::default(),
            opening: Mutex::default(),
            stop,
        })
    }

    /// All of them, the first first. Where there are none, it is looked whether there is one by now.
    pub fn all(&self) -> Vec<Arc<Model>> {
        let mut all = lock(&self.all);
        if all.is_empty()
            && let Some(found) = self.find.as_ref().and_then(|find| find())
        {
            all.push(Arc::new(Model::of(found)));
        }
        all.clone()
    }

    /// The one that is meant where none is named.
    pub fn first(&self) -> Result<Arc<Model>, ApiError> {
        self.all().into_iter().next().ok_or_else(|| {
            let message = "this server has no model yet: train one, import one with `myxtts import`, or start it with --model";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_model", message)
        })
    }

    /// The one of a name, or of one that means any.
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
        let message = format!("there is no model {named:?}: this server speaks with {}", names.join(", "));
        let error = ApiError::field("model", "model_not_found", message);
        Err(ApiError { status: StatusCode::NOT_FOUND, ..error })
    }

    /// The one of a name, or the first where there is no name.
    pub fn named_or_first(&self, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
        name.map_or_else(|| self.first(), |name| self.named(name))
    }

    /// Whether the server stops or has stopped.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Requests that wait, of all models.
    pub fn waiting(&self) -> usize {
        let length = |model: &Arc<Model>| model.state().jobs.as_ref().map_or(0, |jobs| jobs.len());
        lock(&self.all).iter().map(length).sum()
    }

    /// How all models stand.
    pub fn open_ones(&self) -> Vec<OpenModel> {
        let one = |model: &Arc<Model>| {
            let state = model.state();
            OpenModel { name: model.name.clone(), is_open: state.jobs.is_some(), bytes: state.bytes }
        };
        lock(&self.all).iter().map(one).collect()
    }

    /// Has a model say something; opens it where it is closed.
    pub fn speak(
        self: &Arc<Models>,
        model: &Arc<Model>,
        client: IpAddr,
        utterance: Utterance,
    ) -> Result<SoundReceiver, NotTaken> {
        let (sink, receiver) =
            sound::channel(self.waiting.clone(), self.metrics.clone(), model.users.clone());
        self.add(model, client, Job::Speak(SpeakJob { utterance, sink }))?;
        Ok(receiver)
    }

    /// Has a model hear a voice and keep it.
    pub fn hear(
        self: &Arc<Models>,
        model: &Arc<Model>,
        client: IpAddr,
        name: String,
        recording: TempPath,
    ) -> Result<oneshot::Receiver<Result<HeardVoice, SpeakerError>>, NotTaken> {
        let (reply, answered) = oneshot::channel();
        let in_use = model.users.clone();
        self.add(model, client, Job::Hear(HearJob { name, recording, reply, in_use }))?;
        Ok(answered)
    }

    fn add(self: &Arc<Models>, model: &Arc<Model>, client: IpAddr, job: Job) -> Result<(), NotTaken> {
        let jobs = self.opened(model)?;
        let mut state = model.state();
        state.last_used = Instant::now();
        // Its user is counted: since it was opened nobody has closed it but a stop or a failure, which the queue tells.
        jobs.add(client, job).map_err(NotTaken::Refused)
    }

    /// The queue of a model, which is opened where it is closed.
    fn opened(self: &Arc<Models>, model: &Arc<Model>) -> Result<Arc<Jobs>, NotTaken> {
        // Held until the decision is made: of two requests for the same model only one opens it.
        let all = lock(&self.all);
        if self.is_stopping() {
            return Err(NotTaken::Refused(Refused::Closed));
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
            NotTaken::NoThread(error.to_string())
        })?;
        lock(&self.workers).running.push((jobs.clone(), worker));
        Ok(jobs)
    }

    /// Closes models that nobody uses, the longest unused first, until there is room for one more.
    fn make_room(&self, all: &[Arc<Model>], wanted: &Arc<Model>) -> Result<(), NotTaken> {
        let Some(limit) = self.keeping.memory else { return Ok(()) };
        loop {
            let others = || all.iter().filter(|one| !Arc::ptr_eq(one, wanted) && one.is_open());
            let taken: u64 = others().map(|one| one.state().bytes).sum();
            if taken == 0 || taken + wanted.state().bytes <= limit {
                return Ok(());
            }
            let mut unused: Vec<_> = others().filter(|one| !one.is_used()).collect();
            unused.sort_by_key(|one| one.state().last_used);
            if !unused.into_iter().any(|one| one.close_unused()) {
                return Err(NotTaken::NoRoom { model: wanted.name.clone() });
            }
        }
    }

    /// Closes models that nobody has used for long.
    pub fn close_idle(&self) {
        let Some(idle) = self.keeping.idle else { return };
        for model in lock(&self.all).iter() {
            let is_idle = model.state().last_used.elapsed() >= idle;
            if is_idle && !model.is_used() {
                model.close_unused();
            }
        }
    }

    /// Opens the first model at once, where there is one.
    pub fn open_first(self: &Arc<Models>) -> Result<(), NotTaken> {
        match self.all().into_iter().next() {
            Some(first) => self.opened(&first).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The thread of an open model.
    fn work(self: &Arc<Models>, model: &Arc<Model>, jobs: &Arc<Jobs>) {
        // However it ends, a panic too, nobody waits for it.
        let _ends = EndsModel { models: self, model, jobs };
        let speaker = {
            let _alone = lock(&self.opening);
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
                // It is the same each time it is opened.
                let _ = model.facts.set(speaker.facts());
                self.keep_within(model);
                speaker.work(jobs, &self.metrics).err()
            }
            // A server that never spoke ends with the reason; others go on, and whoever asked is told.
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

    /// Where an opened model took more than was thought, others that nobody uses make room.
    fn keep_within(&self, model: &Arc<Model>) {
        let all = lock(&self.all).clone();
        // Those that speak stay: the limit holds again when they are done.
        let _ = self.make_room(&all, model);
    }

    /// Waits until models that were closed are gone, and their memory with them.
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
            // A panic is noted by the thread itself.
            let _ = worker.join();
        }
    }

    /// Takes no more requests; those that wait are told, those that are spoken are finished.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        for model in lock(&self.all).iter() {
            if let Some(jobs) = &model.state().jobs {
                jobs.close();
            }
        }
    }

    /// Waits for all threads; tells why one has failed.
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
