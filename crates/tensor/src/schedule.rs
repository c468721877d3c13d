//! What of a tape can run beside the rest. Gradients of weights are read by nobody until the update, so on CUDA they go
//! on a second stream: where one product leaves multiprocessors idle at its end, or a small kernel fills only a few, the
//! other stream's work takes them. The order within each stream is fixed, so results are the same bits. Every crossing
//! costs a few microseconds, so only long operations cross: with the sums of biases on the second stream too, a GPT of
//! 8 x 256 took 3.3 ms a step on an H200 instead of 2.4. What it buys there: the vocoder 21.2 ms instead of 22.2, that GPT
//! 2.41 instead of 2.45; one of 30 x 1024, whose products fill the device, loses 1 %. Sums over replicas go there always:
//! they wait for other devices, and the backward pass need not.

use crate::parameters::ParameterId;
use crate::tape::{Flat, Node, Storage, Tape, Value};
use std::collections::HashSet;
use std::ops::Range;

/// How many operations the second stream may lag behind: what they read must stay where it is so long.
const LAG: usize = 8;

/// Which operations run beside the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// For each node: its number among those on the second stream, if it is one.
    pub aside: Vec<Option<usize>>,
    /// For each node: how many of the second stream's operations must be over before it starts.
    pub after: Vec<usize>,
    /// For each operation of the second stream: the node from which its inputs' memory may be used again.
    pub free: Vec<usize>,
}

/// What goes on the second stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    /// Sums over replicas alone.
    Reductions,
    /// Gradients of weights too.
    Gradients,
}

impl Schedule {
    /// Everything on one stream.
    pub fn serial(tape: &Tape) -> Schedule {
        let n = tape.nodes.len();
        Schedule { aside: vec![None; n], after: vec![0; n], free: Vec::new() }
    }

    /// With a second stream.
    pub fn of(tape: &Tape, what: Aside) -> Schedule {
        let mut schedule = Schedule::serial(tape);
        let beside = match what {
            Aside::Reductions => HashSet::new(),
            Aside::Gradients => gradients_alone(tape),
        };
        let mut places: Vec<usize> = Vec::new();
        for (n, node) in tape.nodes.iter().enumerate() {
            if beside.contains(&n) || node.op.is_reduction() {
                schedule.aside[n] = Some(places.len());
                places.push(n);
            } else {
                // What the second stream wrote is read, or written again, when it is there.
                let meets = |&place: &usize| {
                    let theirs = tape.nodes[place].outputs.iter().filter_map(|&o| part(tape, o));
                    let mut ours = node.inputs.iter().chain(&node.outputs).filter_map(|&v| part(tape, v));
                    let theirs: Vec<_> = theirs.collect();
                    ours.any(|o| theirs.iter().any(|t| o.start < t.end && t.start < o.end))
                };
                schedule.after[n] = places.iter().rposition(meets).map_or(0, |i| i + 1);
            }
            schedule.after[n] = schedule.after[n].max(places.len().saturating_sub(LAG));
        }
        // Work on the first stream after operation `i + LAG` was queued waits for operation `i`.
        schedule.free = (0..places.len())
            .map(|i| {
                (0..tape.nodes.len())
                    .skip(places[i])
                    .find(|&n| schedule.after[n] > i)
                    .unwrap_or(tape.nodes.len())
            })
            .collect();
        schedule
    }
}

/// Long operations that make nothing but gradients of weights, and all writers of each of these.
fn gradients_alone(tape: &Tape) -> HashSet<usize> {
    let gradient = |value: Value| match tape.info(root(tape, value)).storage {
        Storage::Gradient(id) => Some(id),
        _ => None,
    };
    let read = read_values(tape);
    let alone = |n: usize| {
        let Node { op, outputs, .. } = &tape.nodes[n];
        op.is_long()
            && outputs.iter().any(|&o| gradient(o).is_some())
            && outputs.iter().all(|&o| gradient(o).is_some() || !read.contains(&root(tape, o)))
    };
    // A gradient that both streams would write stays on the first.
    let mut shared: HashSet<ParameterId> = HashSet::new();
    for (n, node) in tape.nodes.iter().enumerate() {
        if !alone(n) {
            shared.extend(node.outputs.iter().filter_map(|&o| gradient(o)));
        }
    }
    let fits = |&n: &usize| {
        alone(n) && tape.nodes[n].outputs.iter().all(|&o| gradient(o).is_none_or(|id| !shared.contains(&id)))
    };
    (0..tape.nodes.len()).filter(fits).collect()
}

/// The values that are read by an operation or kept, as the owners of their memory. Work space is not among them.
pub(crate) fn read_values(tape: &Tape) -> HashSet<Value> {
    tape.nodes
        .iter()
        .flat_map(|node| node.inputs.iter().chain(node.bases.iter().flatten()))
        .chain(&tape.kept)
        .map(|&value| root(tape, value))
        .collect()
}

/// What of the gradients' arena a value is.
fn part(tape: &Tape, value: Value) -> Option<Range<usize>> {
    let info = tape.info(value);
    match info.storage {
        Storage::Gradient(id) => Some(tape.layout.get(id).range()),
        Storage::Flat(Flat::Gradients) => Some(0..info.shape.len()),
        Storage::View { of, start } => {
            let whole = part(tape, of)?;
            Some(whole.start + start..whole.start + start + info.shape.len())
        }
        _ => None,
    }
}

/// The value that owns the memory.
pub(crate) fn root(tape: &Tape, mut value: Value) -> Value {
    while let Storage::View { of, .. } = tape.info(value).storage {
        value = of;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryPlan;
    use crate::ops::activation::Function;
    use crate::ops::adamw::AdamW;
    use crate::parameters::{Init, LayoutBuilder, Role};
    use crate::shape::DType;
    use crate::tape::{Backward, Precision};
    use std::sync::Arc;

    fn tape() -> Tape {
        let mut tape = layers(12);
        let loss = tape.input([1], DType::F32);
        tape.update(loss, AdamW::default());
        tape
    }

    /// A chain of layers, each with a bias and an activation, and their gradients.
    fn layers(count: usize) -> Tape {
        let mut builder = LayoutBuilder::new();
        let group = builder.group("all", 0.0, 1.0);
        let layers: Vec<_> = (0..count)
            .map(|i| {
                let size = [64, 32][i % 2];
                let shape = [[64, 32], [32, 64]][i % 2];
                let weight = builder.add(&format!("w{i}"), shape, Role::Trained(group), Init::Zeros);
                (weight, builder.add(&format!("b{i}"), [size], Role::Trained(group), Init::Zeros))
            })
            .collect();
        let mut tape = Tape::new(Arc::new(builder.finish()), Precision::F32);
        let mut x = tape.input([100, 32], DType::F32);
        for (weight, bias) in layers {
            let (weight, bias) = (tape.parameter(weight), tape.parameter(bias));
            x = tape.linear(x, weight, Some(bias));
            x = tape.activation(x, Function::GeluTanh);
        }
        let target = tape.input([100, 32], DType::F32);
        let loss = tape.dot(x, target, None);
        tape.backward(loss, Backward::default());
        tape
    }

    #[test]
    fn gradients_of_weights_go_beside_and_the_update_waits_for_all() {
        let tape = tape();
        let schedule = Schedule::of(&tape, Aside::Gradients);
        let count = schedule.free.len();
        assert_eq!(count, 12, "a product per layer, and no small sums");
        for (n, node) in tape.nodes.iter().enumerate() {
            assert_eq!(schedule.aside[n].is_some(), node.op.name() == "linear'w");
            if ["guard", "adamw"].contains(&node.op.name()) {
                assert_eq!(schedule.after[n], count);
            }
        }
    }

    #[test]
    fn the_backward_pass_does_not_wait_for_sums_over_replicas() {
        // Biases are summed together some layers later, and their bucket waits for them.
        let mut tape = layers(200);
        tape.reduce_gradients(16 << 10, false);
        let loss = tape.input([1], DType::F32);
        tape.update(loss, AdamW::default());
        let schedule = Schedule::of(&tape, Aside::Reductions);
        let count = schedule.free.len();
        assert!((100..300).contains(&count), "{count} buckets");
        let mut queued: usize = 0;
        for (n, node) in tape.nodes.iter().enumerate() {
            assert_eq!(schedule.aside[n].is_some(), node.op.is_reduction());
            queued += usize::from(node.op.is_reduction());
            match node.op.name() {
                "guard" | "adamw" | "clock_end" => assert_eq!(schedule.after[n], count),
                name => assert_eq!(schedule.after[n], queued.saturating_sub(LAG), "{name} waits"),
            }
        }
        let first = schedule.aside.iter().position(Option::is_some);
        let between =
            tape.nodes.iter().skip(first.unwrap_or(usize::MAX)).take_while(|n| n.op.name() != "guard");
        assert!(between.filter(|n| n.op.name().starts_with("linear'")).count() > 200, "sums start early");
    }

    /// Nothing that the second stream reads or writes is written by the first before it has waited for it.
    #[test]
    fn memory_is_not_used_again_while_the_second_stream_may_read_it() {
        let tape = tape();
        let schedule = Schedule::of(&tape, Aside::Gradients);
        let plan = MemoryPlan::scheduled(&tape, &schedule);
        let place = |value: Value| {
            let value = root(&tape, value);
            let info = tape.info(value);
            let start = plan.scratch[value.0 as usize]?;
            Some((value, start..start + info.shape.len() * info.dtype.size()))
        };
        let mut checked = 0;
        for (n, node) in tape.nodes.iter().enumerate() {
            let Some(i) = schedule.aside[n] else { continue };
            let used: Vec<_> = node.inputs.iter().chain(&node.outputs).filter_map(|&v| place(v)).collect();
            let mut waited = schedule.after[n];
            for (m, later) in tape.nodes.iter().enumerate().skip(n + 1) {
                waited = waited.max(schedule.after[m]);
                if waited > i {
                    break;
                }
                if schedule.aside[m].is_some() {
                    continue;
                }
                for (value, range) in later.outputs.iter().filter_map(|&v| place(v)) {
                    let clash = |(other, at): &&(Value, std::ops::Range<usize>)| {
                        *other != value && at.start < range.end && range.start < at.end
                    };
                    assert!(used.iter().find(clash).is_none(), "node {m} writes what node {n} still uses");
                    checked += 1;
                }
            }
        }
        assert!(checked > 50, "only {checked} writes were looked at");
        // The same tape planned for one stream would clash: the plan is what makes it safe.
        assert!(MemoryPlan::of(&tape).scratch_bytes < plan.scratch_bytes);
    }
}
