//! Joins the engines of several processes: by NCCL on GPUs, by TCP otherwise.

use super::health::Health;
use super::link::Ranks;
use super::sums::TcpSums;
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::replica_slice::ReplicaSlice;
use myxtts_tensor::cuda::nccl::{Communicator, Nccl};
use myxtts_tensor::engine::Arena;
use myxtts_tensor::{Device, Engine, Error, Precision, Role};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time limit for GPUs to connect after all processes have built their stage.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval at which the communicator is checked for errors.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time that an NCCL error waits for the heartbeat to identify the lost rank.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The slice of every batch that belongs to this rank.
pub(crate) fn slice(ranks: &Ranks) -> ReplicaSlice {
    ReplicaSlice::of_rank(
        ranks.sums().clone(),
        ranks.identity().local_world,
        ranks.health().tracker().clone(),
    )
}

/// The kind of device and its precision, which must be the same on all ranks.
pub(crate) fn kind_of(machine: ComputeDevice) -> String {
    let device = match machine.device {
        Device::Cpu => "the CPU",
        Device::Cuda(_) => "a GPU",
    };
    let precision = match machine.precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    };
    format!("{device} in {precision}")
}

/// A new NCCL id, by which GPUs find each other; `None` without GPUs.
pub(crate) fn new_id(device: Device) -> Result<Option<Vec<u8>>, TrainError> {
    match device {
        Device::Cpu => Ok(None),
        Device::Cuda(_) => Ok(Some(Nccl::load().and_then(|nccl| nccl.new_id()).map_err(Error::from)?)),
    }
}

/// An engine that has joined the others.
pub(crate) struct JoinedEngine {
    communicator: Option<Arc<Communicator>>,
    sums: Arc<TcpSums>,
}

impl JoinedEngine {
    /// Joins; returns when all ranks have joined.
    pub fn join(ranks: &Ranks, engine: &mut Engine, nccl: Option<&[u8]>) -> Result<JoinedEngine, TrainError> {
        let sums = ranks.sums().clone();
        let Some((id, cuda)) = nccl.zip(engine.cuda()) else {
            engine.join(sums.clone());
            return Ok(JoinedEngine { communicator: None, sums });
        };
        cuda.bind()?;
        // For NCCL versions whose non-blocking calls have bugs.
        let blocking = std::env::var_os("MYXTTS_NCCL_BLOCKING").is_some();
        let place = (ranks.rank(), ranks.world());
        let joined = Nccl::load().and_then(|nccl| nccl.join(id, place, CONNECT_TIMEOUT, blocking));
        let communicator = Arc::new(joined.map_err(Error::from)?);
        let weak = Arc::downgrade(&communicator);
        ranks.health().on_loss(move || abort(weak));
        watch(Arc::downgrade(&communicator), ranks)?;
        engine.join_nccl(communicator.clone());
        Ok(JoinedEngine { communicator: Some(communicator), sums })
    }

    /// Description for the user.
    pub fn description(&self) -> &'static str {
        match self.communicator {
            Some(_) => "gradients are summed by NCCL while the backward pass runs",
            None => "gradients are summed over TCP",
        }
    }

    /// Time that steps have waited for sums so far; `None` on GPUs, where the step reports have it.
    pub fn spent(&self) -> Option<Duration> {
        self.communicator.is_none().then(|| self.sums.spent())
    }
}

/// Releases what waits for lost GPUs. Runs in its own thread, since NCCL returns only when the captured steps have ended
/// too.
fn abort(communicator: Weak<Communicator>) {
    if let Some(communicator) = communicator.upgrade() {
        let named = std::thread::Builder::new().name("abort".into());
        // Without a thread the process still ends, a little later, by the time limit.
        let _ = named.spawn(move || communicator.abort());
    }
}

/// Checks the communicator for errors as long as it exists.
fn watch(communicator: Weak<Communicator>, ranks: &Ranks) -> Result<(), TrainError> {
    let health: Weak<Health> = Arc::downgrade(ranks.health());
    let rank = ranks.rank();
    let watching = move || {
        while let Some(alive) = communicator.upgrade() {
            let checked = alive.check();
            drop(alive);
            let Some(health) = health.upgrade() else { return };
            if health.cause().is_some() {
                return;
            }
            if let Err(error) = checked {
                // If a rank is lost, its heartbeat is missing as well, and identifies it.
                std::thread::sleep(CAUSE_TIMEOUT);
                // At the end of a stage, other ranks may have closed theirs a moment before this one.
                if communicator.strong_count() == 0 {
                    return;
                }
                health.lost(rank, format!("its GPU lost the others ({error})"));
                return;
            }
            drop(health);
            std::thread::sleep(CHECK_INTERVAL);
        }
    };
    let named = std::thread::Builder::new().name("watch nccl".into());
    named.spawn(watching).map_err(super::RankError::Socket)?;
    Ok(())
}

/// Hash of all weights that are equal on all ranks: trained weights and a codebook. Batch norm statistics are those of a
/// rank's own slices and are left out.
pub(crate) fn hash(engine: &Engine) -> Result<String, TrainError> {
    let weights = engine.read_arena(Arena::Weights)?;
    let layout = engine.layout();
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytemuck::cast_slice(&weights[..layout.trained_len()]));
    for (_, parameter) in layout.parameters() {
        let is_statistic = ["running_mean", "running_var"].iter().any(|end| parameter.name.ends_with(end));
        if parameter.role == Role::State && !is_statistic {
            hasher.update(bytemuck::cast_slice(&weights[parameter.range()]));
        }
    }
    Ok(hasher.finalize().to_string())
}
