//! The rows of every batch that one replica takes, and the sums over replicas that a step needs.
//!
//! A batch is planned for all replicas together (`data::batch`) and dealt in equal slices of its rows, so that the result
//! does not depend on the number of replicas. A mean over a batch on one device becomes a sum of parts here: each replica's
//! loss is scaled to its share of the whole batch's loss, and gradients and numbers are added up.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::rank_activity::{Entered, STEP_TIMEOUT, Tracker};
use myxtts_data::loader::Options as LoaderOptions;
use myxtts_tensor::collective::Collective;
use myxtts_tensor::{Tape, Value};
use std::sync::Arc;

/// Bytes per bucket of gradients that are summed at once: large enough to be worth a call, small enough that the first
/// bucket is under way while the backward pass still runs.
const BUCKET: usize = 25 << 20;

/// The replicas of a stage that is not built yet.
#[derive(Clone, Copy, Debug)]
pub struct Replicas {
    /// The device of the first replica.
    pub machine: ComputeDevice,
    /// Number of replicas, at least 1.
    pub count: usize,
}

/// The slice of every batch that belongs to one replica.
#[derive(Clone)]
pub struct ReplicaSlice {
    rank: u32,
    world: u32,
    /// Replicas on this machine, which share its cores.
    local: u32,
    /// Whether gradients are rounded to bf16 before they are summed.
    rounded: bool,
    /// The group that sums on the host, of threads or processes on any device. `None` without replicas.
    group: Option<Arc<dyn Collective>>,
    /// Records what this rank does; `None` in a run of one process.
    tracker: Option<Arc<Tracker>>,
}

impl std::fmt::Debug for ReplicaSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slice {} of {}", self.rank, self.world)
    }
}

impl ReplicaSlice {
    /// The whole batch: there are no replicas.
    pub const WHOLE: ReplicaSlice =
        ReplicaSlice { rank: 0, world: 1, local: 1, rounded: false, group: None, tracker: None };

    /// The slice of a member of a group.
    pub fn of(replica: Arc<dyn Collective>) -> ReplicaSlice {
        let (rank, world) = (replica.rank() as u32, replica.world() as u32);
        ReplicaSlice { rank, world, local: world, rounded: false, group: Some(replica), tracker: None }
    }

    /// As [`of`](Self::of), where only `local` members of the group are on this machine, and `tracker` records what this one does.
    pub(crate) fn of_rank(replica: Arc<dyn Collective>, local: usize, tracker: Arc<Tracker>) -> ReplicaSlice {
        let share = ReplicaSlice::of(replica);
        ReplicaSlice { local: (local as u32).clamp(1, share.world), tracker: Some(tracker), ..share }
    }

    /// Announces, until the result is dropped, that this replica waits for a batch: the feed has time limits of its own.
    pub(crate) fn waits_for_batch(&self) -> Option<Entered> {
        self.tracker.as_ref().map(|tracker| tracker.announce("waiting for a batch", Some(STEP_TIMEOUT)))
    }

    /// Announces, until the result is dropped, the first run of a program: on a GPU it chooses algorithms, which may take longer
    /// than all steps before it.
    pub(crate) fn first_run(&self) -> Option<Entered> {
        self.tracker
            .as_ref()
            .map(|tracker| tracker.announce("the first step of a new shape", Some(STEP_TIMEOUT)))
    }

    /// Sets whether gradients are rounded to bf16 before they are summed.
    pub fn rounded(self, rounded: bool) -> ReplicaSlice {
        ReplicaSlice { rounded, ..self }
    }

    /// Index of the slice, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of slices.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// The rows of this slice, of a batch of `all` rows.
    pub fn rows(&self, all: u32) -> Result<u32, TrainError> {
        match all.is_multiple_of(self.world) {
            true => Ok(all / self.world),
            false => Err(myxtts_data::batch::PlanError::UnevenRanks { rows: all, ranks: self.world }.into()),
        }
    }

    /// Loader options for this slice, with its part of the machine's loader threads.
    pub fn loading(&self, options: LoaderOptions) -> LoaderOptions {
        let workers = options.workers.div_ceil(self.local as usize);
        LoaderOptions { rank: self.rank, ranks: self.world, workers, ..options }
    }

    /// Prepares an empty tape for a step of this slice.
    pub fn begin(&self, tape: &mut Tape) {
        tape.set_replica(self.rank, self.world);
    }

    /// Scales a mean over this slice to its part of the mean over the whole batch. All slices have the same size.
    pub fn part(&self, tape: &mut Tape, mean: Value) -> Value {
        if self.world == 1 { mean } else { tape.scale(mean, 1.0 / self.world as f32) }
    }

    /// Sums gradients over the replicas. Call it after the backward pass and before the update.
    pub fn reduce(&self, tape: &mut Tape) {
        if self.world > 1 {
            tape.reduce_gradients(BUCKET, self.rounded);
        }
    }

    /// Replaces numbers by those of the first replica, on the host.
    pub fn from_first(&self, values: &mut [f32]) -> Result<(), TrainError> {
        if let Some(group) = &self.group {
            group.broadcast(values, 0).map_err(myxtts_tensor::Error::from)?;
        }
        Ok(())
    }

    /// Sums numbers over the replicas, on the host. The result is the same on every replica.
    pub fn totals<const N: usize>(&self, mut own: [f32; N]) -> Result<[f32; N], TrainError> {
        if let Some(group) = &self.group {
            group.all_reduce_sum(&mut own).map_err(myxtts_tensor::Error::from)?;
        }
        Ok(own)
    }
}
