//! The part of every batch that one replica takes, and the sums replicas need of each other before a step.
//!
//! A batch is planned for all replicas together (`data::batch`) and dealt in equal slices of its rows, so that what is
//! learnt does not depend on how many share the work. What is a mean over a batch on one device is a sum of parts here:
//! each replica's loss is made its share of the whole batch's loss, gradients and numbers are added up.

use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use myxtts_data::loader::Options as LoaderOptions;
use myxtts_tensor::collective::Collective;
use myxtts_tensor::{Tape, Value};
use std::sync::Arc;

/// Gradients meet in pieces of this many bytes: large enough to be worth a call, small enough that the first is under way
/// while the backward pass still runs.
const BUCKET: usize = 25 << 20;

/// The replicas of a stage before there is one.
#[derive(Clone, Copy, Debug)]
pub struct Replicas {
    /// The device of the first.
    pub machine: ComputeDevice,
    /// Their number, at least 1.
    pub count: usize,
}

/// Which slice of every batch is a replica's own.
#[derive(Clone)]
pub struct ReplicaSlice {
    rank: u32,
    world: u32,
    /// Replicas on this machine, which share its cores.
    local: u32,
    /// Gradients are rounded to bf16 where they meet.
    rounded: bool,
    /// Threads of this process or other processes: they meet here on the host, whatever they compute on.
    group: Option<Arc<dyn Collective>>,
}

impl std::fmt::Debug for ReplicaSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slice {} of {}", self.rank, self.world)
    }
}

impl ReplicaSlice {
    /// All of it: there are no replicas.
    pub const WHOLE: ReplicaSlice = ReplicaSlice { rank: 0, world: 1, local: 1, rounded: false, group: None };

    /// The slice of a member of a group.
    pub fn of(replica: Arc<dyn Collective>) -> ReplicaSlice {
        let (rank, world) = (replica.rank() as u32, replica.world() as u32);
        ReplicaSlice { rank, world, local: world, rounded: false, group: Some(replica) }
    }

    /// As `of`, where only so many of the group are on this machine.
    pub fn of_rank(replica: Arc<dyn Collective>, local: usize) -> ReplicaSlice {
        let share = ReplicaSlice::of(replica);
        ReplicaSlice { local: (local as u32).clamp(1, share.world), ..share }
    }

    /// With gradients that are rounded to bf16 where they meet, or not.
    pub fn rounded(self, rounded: bool) -> ReplicaSlice {
        ReplicaSlice { rounded, ..self }
    }

    /// Which slice, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many there are.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// The rows of this slice, of a batch of so many.
    pub fn rows(&self, all: u32) -> Result<u32, TrainError> {
        match all.is_multiple_of(self.world) {
            true => Ok(all / self.world),
            false => Err(myxtts_data::batch::PlanError::UnevenRanks { rows: all, ranks: self.world }.into()),
        }
    }

    /// A loader of this slice, with its part of the threads that this machine has for batches.
    pub fn loading(&self, options: LoaderOptions) -> LoaderOptions {
        let workers = options.workers.div_ceil(self.local as usize);
        LoaderOptions { rank: self.rank, ranks: self.world, workers, ..options }
    }

    /// A tape for a step of this slice, before anything is on it.
    pub fn begin(&self, tape: &mut Tape) {
        tape.set_replica(self.rank, self.world);
    }

    /// A mean over a slice of equal size as its part of the mean over the whole batch.
    pub fn part(&self, tape: &mut Tape, mean: Value) -> Value {
        if self.world == 1 { mean } else { tape.scale(mean, 1.0 / self.world as f32) }
    }

    /// Gradients become those of the whole batch; after the backward pass and before the update.
    pub fn reduce(&self, tape: &mut Tape) {
        if self.world > 1 {
            tape.reduce_gradients(BUCKET, self.rounded);
        }
    }

    /// The sums of these numbers over the replicas. On the host, and the same on every one.
    pub fn totals<const N: usize>(&self, mut own: [f32; N]) -> Result<[f32; N], TrainError> {
        if let Some(group) = &self.group {
            group.all_reduce_sum(&mut own).map_err(myxtts_tensor::Error::from)?;
        }
        Ok(own)
    }
}
