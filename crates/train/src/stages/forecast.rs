//! What the forecasts of stages share: the memory of an engine with its programs, and the replicas of a stage.

use crate::replica_slice::ReplicaSlice;
use myxtts_tensor::Tape;
use myxtts_tensor::collective::Replica;
use myxtts_tensor::engine::Forecast;
use std::sync::Arc;

/// Bytes of an engine that has loaded these programs: they share scratch memory, and each has inputs of its own.
pub(super) fn with_programs(forecast: &Forecast, tapes: &[Tape]) -> u64 {
    let (mut scratch, mut inputs) = (0, 0);
    for tape in tapes {
        let plan = forecast.plan_of(tape);
        scratch = scratch.max(plan.scratch_bytes);
        inputs += plan.input_bytes;
    }
    (forecast.memory().total() + scratch + inputs) as u64
}

/// The slice of one replica and the number of replicas, of at most `machines`, that a batch can be split over evenly.
pub(super) fn replicas_of(rows: usize, machines: usize) -> (ReplicaSlice, usize) {
    let count = (1..=machines).rev().find(|&n| rows.is_multiple_of(n)).unwrap_or(1);
    match count {
        1 => (ReplicaSlice::WHOLE, 1),
        // The group is never used: only its size is.
        n => (ReplicaSlice::of(Arc::new(Replica::group(n).swap_remove(0))), n),
    }
}
