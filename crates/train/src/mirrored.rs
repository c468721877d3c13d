//! A stage on several devices: one replica per device, each in its own thread with its own weights, moments and programs.
//! Every replica runs the same steps on its slice of every batch. Gradients are summed between backward pass and update, so
//! that all replicas take the same step and stay bit-identical. Only the state of the first replica is saved.
//!
//! The training loop sees one stage. If a replica fails, the others are released and the first cause is returned as the
//! error.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::replica_slice::ReplicaSlice;
use crate::stages::{Stage, StageCore, Submitted, Validation};
use myxtts_tensor::collective::{CollectiveError, Replica};
use myxtts_tensor::cuda::nccl::{Communicator, Nccl};
use myxtts_tensor::engine::{Arena, Ticket};
use myxtts_tensor::{Control, Device, Engine, Error, Report};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// Builds the stage of one replica; called on that replica's thread.
pub type Build = Arc<dyn Fn(ComputeDevice, ReplicaSlice) -> Result<Box<dyn Stage>, TrainError> + Send + Sync>;

/// Work that is executed on a replica's thread.
type Work = Box<dyn FnOnce(&mut dyn Stage, &Link) + Send>;

/// Allowed relative difference between norms of the same gradient: replicas on equal devices agree to the bit, on different
/// ones up to rounding. Replicas that diverge differ by orders of magnitude more after a few steps.
const MAX_NORM_DIFFERENCE: f32 = 1e-3;

/// Connection of a replica to the others.
struct Link {
    replica: Arc<Replica>,
    /// Those of all replicas: a stream that waits for a lost replica would otherwise wait forever.
    communicators: Arc<[Arc<Communicator>]>,
}

impl Link {
    /// Aborts the group, with the reason.
    fn fail(&self, error: &TrainError) {
        self.replica.fail(error.to_string());
        self.communicators.iter().for_each(|communicator| communicator.abort());
    }

    fn join(&self, engine: &mut Engine) {
        let rank = myxtts_tensor::collective::Collective::rank(&*self.replica);
        match self.communicators.get(rank) {
            Some(communicator) => engine.join_nccl(communicator.clone()),
            None => engine.join(self.replica.clone()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.communicators.iter().for_each(|communicator| communicator.abort());
        }
    }
}

/// A replica on another thread.
struct Other {
    /// `None` once the thread is to end.
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported when its answer did not arrive.
            let _ = thread.join();
        }
    }
}

/// A stage with one replica per device.
pub struct Mirrored {
    // Declared before `first`: the others must end while the first replica still exists.
    others: Vec<Other>,
    first: Box<dyn Stage>,
    link: Link,
    devices: Vec<Device>,
    /// Number of devices left out.
    idle: usize,
    /// The tickets of all replicas, per queued step.
    queued: VecDeque<Vec<Ticket>>,
}

impl Mirrored {
    /// Builds a replica on each of `machines`, on its own thread.
    pub fn new(machines: &[ComputeDevice], build: &Build) -> Result<Mirrored, TrainError> {
        let communicators: Arc<[Arc<Communicator>]> = communicators(machines)?.into();
        let mut links: Vec<Link> = Replica::group(machines.len())
            .into_iter()
            .map(|replica| Link { replica: Arc::new(replica), communicators: communicators.clone() })
            .collect();
        let (answer, answers) = mpsc::channel();
        let mut others = Vec::new();
        for (rank, link) in links.drain(1..).enumerate().map(|(i, link)| (i + 1, link)) {
            let (send, receive) = mpsc::channel();
            let (machine, build, answer) = (machines[rank], build.clone(), answer.clone());
            let named = std::thread::Builder::new().name(format!("replica-{rank}"));
            let thread = named.spawn(move || serve(rank, link, machine, build, answer, receive));
            let thread =
                thread.map_err(|source| TrainError::Thread { name: format!("replica-{rank}"), source })?;
            others.push(Other { work: Some(send), thread: Some(thread) });
        }
        drop(answer);
        let link = links.remove(0);
        let first = build_replica(&link, machines[0], build);
        if let Err(error) = &first {
            link.fail(error);
        }
        let mut made: Vec<Option<Result<(), TrainError>>> = machines.iter().map(|_| None).collect();
        let (first, own) = match first {
            Ok(first) => (Some(first), Ok(())),
            Err(error) => (None, Err(error)),
        };
        made[0] = Some(own);
        answers.iter().for_each(|(rank, result)| made[rank] = Some(result));
        all_of(made)?;
        let first = first.ok_or_else(|| TrainError::Internal("a stage without replicas".into()))?;
        let devices = machines.iter().map(|machine| machine.device).collect();
        let mut mirrored = Mirrored { others, first, link, devices, idle: 0, queued: VecDeque::new() };
        // Initial weights that were computed on a device, such as a codebook, may differ in their last bits.
        mirrored.everywhere(|_, stage| copy_arenas(stage.engine_mut()))?;
        Ok(mirrored)
    }

    /// Sets the number of devices left out because a batch cannot be split evenly over more.
    pub(crate) fn set_idle(&mut self, idle: usize) {
        self.idle = idle;
    }

    /// The content of an arena on every replica, the first replica first.
    pub fn arenas(&mut self, arena: Arena) -> Result<Vec<Vec<f32>>, TrainError> {
        self.everywhere(move |_, stage| Ok(stage.engine().read_arena(arena)?))
    }

    /// Runs `work` on every replica at the same time, and waits for all.
    fn everywhere<T: Send + 'static>(
        &mut self,
        work: impl Fn(usize, &mut dyn Stage) -> Result<T, TrainError> + Send + Sync + 'static,
    ) -> Result<Vec<T>, TrainError> {
        let work = Arc::new(work);
        let (answer, answers) = mpsc::channel();
        for (i, other) in self.others.iter().enumerate() {
            let (rank, work, answer) = (i + 1, work.clone(), answer.clone());
            let order: Work = Box::new(move |stage, link| {
                let result = work(rank, stage);
                if let Err(error) = &result {
                    link.fail(error);
                }
                // Fails only if the first replica is gone; then this one ends with it.
                let _ = answer.send((rank, result));
            });
            if let Some(to) = &other.work {
                // A replica that is gone is detected by its missing answer.
                let _ = to.send(order);
            }
        }
        drop(answer);
        let own = work(0, &mut *self.first);
        if let Err(error) = &own {
            self.link.fail(error);
        }
        let mut made: Vec<Option<Result<T, TrainError>>> = self.devices.iter().map(|_| None).collect();
        made[0] = Some(own);
        answers.iter().for_each(|(rank, result)| made[rank] = Some(result));
        all_of(made)
    }
}

const ARENAS: [Arena; 4] = [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average];

/// Copies all arenas of the first replica to the others; every replica calls it.
pub(crate) fn copy_arenas(engine: &mut Engine) -> Result<(), TrainError> {
    for arena in ARENAS {
        if engine.holds(arena) {
            engine.broadcast_arena(arena)?;
        }
    }
    Ok(())
}

/// One communicator per GPU; none for CPUs, which sum in memory, and none for replicas that share GPUs, which NCCL refuses.
fn communicators(machines: &[ComputeDevice]) -> Result<Vec<Arc<Communicator>>, TrainError> {
    let mut gpus = Vec::new();
    for machine in machines {
        if let Device::Cuda(ordinal) = machine.device {
            gpus.push(ordinal as i32);
        }
    }
    if gpus.is_empty() {
        return Ok(Vec::new());
    }
    if gpus.len() < machines.len() {
        return Err(TrainError::Internal("CPUs and GPUs cannot be replicas of one another".into()));
    }
    if gpus.iter().enumerate().any(|(i, gpu)| gpus[..i].contains(gpu)) {
        return Ok(Vec::new());
    }
    let joined = Nccl::load().and_then(|nccl| nccl.communicators(&gpus)).map_err(Error::from)?;
    Ok(joined.into_iter().map(Arc::new).collect())
}

fn build_replica(link: &Link, machine: ComputeDevice, build: &Build) -> Result<Box<dyn Stage>, TrainError> {
    let mut stage = build(machine, ReplicaSlice::of(link.replica.clone()))?;
    link.join(stage.engine_mut());
    Ok(stage)
}

/// The loop of a replica's thread.
fn serve(
    rank: usize,
    link: Link,
    machine: ComputeDevice,
    build: Build,
    answer: Sender<(usize, Result<(), TrainError>)>,
    orders: Receiver<Work>,
) {
    let stage = build_replica(&link, machine, &build);
    // It may hold a large model.
    drop(build);
    let mut stage = match stage {
        Ok(stage) => stage,
        Err(error) => {
            link.fail(&error);
            let _ = answer.send((rank, Err(error)));
            return;
        }
    };
    let _ = answer.send((rank, Ok(())));
    drop(answer);
    for work in orders {
        work(&mut *stage, &link);
    }
}

/// The results of all replicas, or the error that caused the failure, in preference to errors that only report a lost
/// replica.
fn all_of<T>(made: Vec<Option<Result<T, TrainError>>>) -> Result<Vec<T>, TrainError> {
    let world = made.len();
    let mut all = Vec::with_capacity(world);
    let (mut cause, mut consequence) = (None, None);
    for (rank, result) in made.into_iter().enumerate() {
        match result {
            Some(Ok(value)) => all.push(value),
            Some(Err(error)) if is_consequence(&error) => consequence = consequence.or(Some(error)),
            Some(Err(error)) => cause = cause.or(Some(error)),
            None => {
                let reason = "its thread panicked; its message is above".to_owned();
                let gone = Error::from(CollectiveError::Ended { rank, world, reason });
                cause = cause.or(Some(gone.into()));
            }
        }
    }
    match cause.or(consequence) {
        Some(error) => Err(error),
        None => Ok(all),
    }
}

fn is_consequence(error: &TrainError) -> bool {
    use myxtts_tensor::cuda::nccl::NcclError;
    matches!(
        error,
        TrainError::Engine(
            Error::Collective(CollectiveError::Ended { .. }) | Error::Nccl(NcclError::Aborted { .. })
        )
    )
}

/// Joins the reports of the slices into the report of the whole batch. Losses and notes are parts of a sum; norms and
/// verdicts are of the summed gradient, and so must be the same on all replicas: if not, the replicas have diverged.
pub(crate) fn merge_reports(reports: &[Report]) -> Result<Report, TrainError> {
    let mut all = reports[0];
    for (rank, report) in reports.iter().enumerate().skip(1) {
        let near = (report.norm - all.norm).abs() <= MAX_NORM_DIFFERENCE * all.norm.abs();
        // After a bad step the norm is NaN or Inf on all replicas.
        let same = report.good == all.good && report.steps == all.steps && (near || !all.good);
        if !same {
            let summary = |r: &Report| format!("norm {}, good {}, steps {}", r.norm, r.good, r.steps);
            return Err(TrainError::Apart { rank, found: summary(report), expected: summary(&reports[0]) });
        }
        all.loss += report.loss;
        all.notes.iter_mut().zip(report.notes).for_each(|(sum, note)| *sum += note);
    }
    Ok(all)
}

impl Stage for Mirrored {
    fn core(&self) -> &dyn StageCore {
        self.first.core()
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self.first.core_mut()
    }

    fn description(&self) -> Vec<String> {
        let mut lines = self.first.description();
        let names: Vec<String> = self.devices.iter().map(Device::to_string).collect();
        let idle = match self.idle {
            0 => String::new(),
            n => format!("; {n} more idle: these batches cannot be split evenly over more"),
        };
        let count = self.devices.len();
        lines.push(format!(
            "{count} replicas ({}), each with an equal slice of every batch{idle}",
            names.join(", ")
        ));
        lines
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let control = *control;
        let parts = self.everywhere(move |_, stage| stage.submit(step, &control))?;
        self.queued.push_back(parts.iter().map(|part| part.ticket).collect());
        let rows = parts.iter().map(|part| part.rows).sum();
        let (ticket, mut shape) = (parts[0].ticket, parts[0].shape);
        shape[0] *= parts.len();
        // The step waits for the slowest replica.
        let slowest = parts.iter().max_by_key(|part| part.waited);
        let (waited, fed) = slowest.map(|part| (part.waited, part.fed)).unwrap_or_default();
        let (mut records, mut notes) = (Vec::new(), Vec::new());
        for part in parts {
            records.extend(part.records);
            notes.extend(part.notes);
        }
        Ok(Submitted { ticket, rows, records, shape, waited, fed, notes })
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Report, TrainError> {
        let Some(at) = self.queued.iter().position(|tickets| tickets[0] == ticket) else {
            return self.first.wait(ticket);
        };
        // Reports of earlier steps that were not requested are dropped.
        let tickets = self.queued.drain(..=at).next_back().unwrap_or_default();
        let reports = self.everywhere(move |rank, stage| stage.wait(tickets[rank]))?;
        merge_reports(&reports)
    }

    /// When one replica gets no batch, others may be in the middle of the step or past it.
    fn survives_missing_batch(&self) -> bool {
        false
    }

    fn restored(&mut self) -> Result<(), TrainError> {
        self.first.restored()?;
        let state = self.first.engine().state()?;
        for arena in [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average] {
            if !self.first.engine().holds(arena) {
                continue;
            }
            // One arena at a time: a large model is then in host memory once, not five times.
            let data = self.first.engine().read_arena(arena)?;
            self.everywhere(move |rank, stage| match rank {
                0 => Ok(()),
                _ => Ok(stage.engine_mut().write_arena(arena, &data)?),
            })?;
        }
        self.everywhere(move |rank, stage| match rank {
            0 => Ok(()),
            _ => {
                stage.engine_mut().set_state(state)?;
                stage.restored()
            }
        })?;
        Ok(())
    }

    fn between(&mut self, step: u64) -> Result<(), TrainError> {
        self.everywhere(move |_, stage| stage.between(step)).map(|_| ())
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        self.first.validate()
    }
}
