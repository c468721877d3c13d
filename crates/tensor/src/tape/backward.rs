//! Gradients. `Tape::backward` walks the tape from its end, and every operation adds the operations that compute
//! the gradients of its inputs to the same tape. Memory of a value is free for reuse after its last reader, which
//! the memory planner sees.

use super::{Node, Spec, Storage, Tape, Value};
use crate::op::Op;
use crate::ops;
use crate::ops::sum_parts::{Sum, SumParts};
use crate::parameters::ParameterId;
use crate::shape::Shape;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Values the backward pass recomputes instead of keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Recompute {
    /// Only what `Tape::checkpoint` marks.
    #[default]
    Marked,
    /// Also the outputs of norms, which are cheap next to the products around them: a tenth of the memory for a
    /// hundredth of the time.
    Norms,
    /// Everything an operation can recompute in one pass over memory: norms, activations.
    Cheap,
}

/// Options of [`Tape::backward`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Backward {
    /// Values that are recomputed.
    pub recompute: Recompute,
    /// Add to the existing gradients instead of replacing them.
    pub accumulate: bool,
}

/// The view of the backward pass that an operation gets in [`Op::backward`].
pub struct Gradients<'a> {
    tape: &'a mut Tape,
    node: Node,
    state: &'a mut State,
}

struct State {
    options: Backward,
    of: HashMap<Value, Value>,
    written: HashSet<ParameterId>,
    /// Recomputed values, by the value they replace.
    recomputed: HashMap<Value, Value>,
    /// The node that produced each value.
    producer: HashMap<Value, usize>,
    regions: Vec<std::ops::Range<usize>>,
    /// Pending sums, executed together in few kernels.
    pending: Vec<Pending>,
}

/// Partial sums that are not added up yet.
struct Pending {
    parts: Value,
    count: usize,
    targets: Vec<Target>,
}

/// Destination of a gradient: the value, and the base that is added to it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    out: Value,
    base: Option<Value>,
}

impl Tape {
    /// Adds the operations that compute the gradient of `loss` (one f32) with respect to everything it depends on.
    pub fn backward(&mut self, loss: Value, options: Backward) {
        assert_eq!(self.shape(loss).len(), 1, "the loss must be a scalar");
        let end = self.nodes.len();
        let mut state = State {
            options,
            of: HashMap::new(),
            written: HashSet::new(),
            recomputed: HashMap::new(),
            producer: HashMap::new(),
            regions: std::mem::take(&mut self.regions),
            pending: Vec::new(),
        };
        for (n, node) in self.nodes.iter().enumerate() {
            state.producer.extend(node.outputs.iter().map(|&v| (v, n)));
        }
        let seed = ops::seed::seed(self, loss);
        state.of.insert(loss, seed);
        for n in (0..end).rev() {
            let node = self.nodes[n].clone();
            if !node.outputs.iter().any(|v| state.of.contains_key(v)) {
                continue;
            }
            if !node.inputs.iter().any(|&v| self.info(v).differentiable) {
                continue;
            }
            while let Some(i) = state.regions.iter().position(|r| r.contains(&n)) {
                let region = state.regions.swap_remove(i);
                self.replay(region, &mut state);
            }
            let op = Arc::clone(&node.op);
            self.scope = format!("{}'", node.scope).into();
            op.backward(&mut Gradients { tape: self, node, state: &mut state });
        }
        self.scope = "".into();
        self.flush_sums(&mut state);
        // A used parameter that got no gradient this time must not keep the previous step's.
        if !options.accumulate {
            let stored: Vec<(ParameterId, bool)> = self
                .layout
                .parameters()
                .filter(|(_, p)| matches!(p.role, crate::parameters::Role::Trained(_)))
                .map(|(id, _)| (id, state.written.contains(&id)))
                .collect();
            for (id, written) in stored {
                if !written {
                    let gradient = self.gradient_of_parameter(id);
                    ops::fill::zero(self, gradient);
                }
            }
        }
        self.gradients.extend(state.of);
    }

    /// Executes the pending sums.
    fn flush_sums(&mut self, state: &mut State) {
        let pending = std::mem::take(&mut state.pending);
        if pending.is_empty() {
            return;
        }
        let inputs: Vec<Value> = pending.iter().map(|p| p.parts).collect();
        let targets: Vec<Target> = pending.iter().flat_map(|p| p.targets.clone()).collect();
        let outputs: Vec<Value> = targets.iter().map(|t| t.out).collect();
        let bases: Vec<Option<Value>> = targets.iter().map(|t| t.base).collect();
        let sums = pending
            .iter()
            .map(|p| Sum {
                count: p.count,
                sizes: p.targets.iter().map(|t| self.shape(t.out).len()).collect(),
            })
            .collect();
        self.push_into(Arc::new(SumParts(sums)), &inputs, &outputs, &bases);
    }

    /// Adds the nodes of a checkpointed region again and records which values replace the old ones.
    fn replay(&mut self, region: std::ops::Range<usize>, state: &mut State) {
        for n in region {
            let node = self.nodes[n].clone();
            let inputs: Vec<Value> =
                node.inputs.iter().map(|v| *state.recomputed.get(v).unwrap_or(v)).collect();
            let outputs: Vec<Value> = node.outputs.iter().map(|&v| self.copy_of(v, state)).collect();
            self.push_into(node.op, &inputs, &outputs, &node.bases);
            state.recomputed.extend(node.outputs.iter().copied().zip(outputs));
        }
    }

    fn copy_of(&mut self, value: Value, state: &State) -> Value {
        let info = self.info(value).clone();
        match info.storage {
            Storage::View { of, start } => {
                let of = *state.recomputed.get(&of).unwrap_or(&of);
                self.view(of, start, info.shape)
            }
            _ => self.value(info),
        }
    }

    /// Returns the value itself, or its recomputed replacement, adding the recomputation if necessary.
    fn recompute_if_needed(&mut self, value: Value, state: &mut State) -> Value {
        if let Some(&recomputed) = state.recomputed.get(&value) {
            return recomputed;
        }
        if state.options.recompute == Recompute::Marked {
            return value;
        }
        let Some(&producer) = state.producer.get(&value) else { return value };
        let node = self.nodes[producer].clone();
        let Some(which) = node.outputs.iter().position(|&v| v == value) else { return value };
        if let Storage::View { of, start } = self.info(value).storage {
            let source = self.recompute_if_needed(of, state);
            if source == of {
                return value;
            }
            let recomputed = self.view(source, start, self.shape(value));
            state.recomputed.insert(value, recomputed);
            return recomputed;
        }
        if state.options.recompute == Recompute::Norms && !node.op.is_norm() {
            return value;
        }
        let Some((op, inputs)) = node.op.recompute(which, &node) else { return value };
        let inputs: Vec<Value> = inputs.into_iter().map(|v| self.recompute_if_needed(v, state)).collect();
        let info = self.info(value);
        let spec = Spec::constant(info.shape, info.dtype);
        let recomputed = self.push_shared(op, &inputs, &[spec])[0];
        state.recomputed.insert(value, recomputed);
        recomputed
    }
}

impl Gradients<'_> {
    /// The tape, for shapes and for adding operations.
    pub fn tape(&mut self) -> &mut Tape {
        self.tape
    }

    /// Number of inputs of the operation.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// The `i`-th input of the operation.
    pub fn input(&mut self, i: usize) -> Value {
        self.tape.recompute_if_needed(self.node.inputs[i], self.state)
    }

    /// The `j`-th output of the operation.
    pub fn output(&mut self, j: usize) -> Value {
        self.tape.recompute_if_needed(self.node.outputs[j], self.state)
    }

    /// The shape of the `i`-th input, without recomputing it.
    pub fn input_shape(&self, i: usize) -> Shape {
        self.tape.shape(self.node.inputs[i])
    }

    /// The gradient of the `j`-th output, or `None` if none flows to it.
    pub(crate) fn output_gradient(&mut self, j: usize) -> Option<Value> {
        let gradient = self.state.of.get(&self.node.outputs[j]).copied();
        self.flush_if_pending(gradient);
        gradient
    }

    /// The gradient of the only output.
    pub fn result_gradient(&mut self) -> Value {
        let gradient = self.state.of[&self.node.outputs[0]];
        self.flush_if_pending(Some(gradient));
        gradient
    }

    /// Pending sums must be executed before they are read.
    fn flush_if_pending(&mut self, value: Option<Value>) {
        let waits = |v: Value| self.state.pending.iter().any(|p| p.targets.iter().any(|t| t.out == v));
        if value.is_some_and(waits) {
            self.tape.flush_sums(self.state);
        }
    }

    /// Sums `count` partial results into the targets; each part holds the elements of all targets one after
    /// another. Several such sums share a kernel and run at the latest at the end of the backward pass.
    pub(crate) fn sum_parts(&mut self, parts: Value, count: usize, targets: &[Target]) {
        self.state.pending.push(Pending { parts, count, targets: targets.to_vec() });
        if self.state.pending.len() == ops::sum_parts::MAX_SUMS {
            self.tape.flush_sums(self.state);
        }
    }

    /// Whether a gradient for the `i`-th input is needed.
    pub fn wants(&self, i: usize) -> bool {
        self.tape.info(self.node.inputs[i]).differentiable
    }

    /// Destination of the gradient of the `i`-th input. The operation that writes it adds the base, if there is
    /// one.
    pub fn target(&mut self, i: usize) -> Target {
        let value = self.node.inputs[i];
        let info = self.tape.info(value).clone();
        if let Storage::Master(id) | Storage::Work(id) = info.storage {
            let out = self.tape.gradient_of_parameter(id);
            self.flush_if_pending(Some(out));
            let first = self.state.written.insert(id) && !self.state.options.accumulate;
            self.state.of.insert(value, out);
            return Target { out, base: (!first).then_some(out) };
        }
        let base = self.state.of.get(&value).copied();
        self.flush_if_pending(base);
        let out = self.tape.scratch(Spec::constant(info.shape, info.gradient_dtype), false);
        self.state.of.insert(value, out);
        Target { out, base }
    }

    /// Adds an operation that writes the targets.
    pub fn push(&mut self, op: impl Op + 'static, inputs: &[Value], targets: &[Target]) {
        let outputs: Vec<Value> = targets.iter().map(|t| t.out).collect();
        let bases: Vec<Option<Value>> = targets.iter().map(|t| t.base).collect();
        self.tape.push_into(Arc::new(op), inputs, &outputs, &bases);
    }

    /// Adds an operation that writes the targets and then new values.
    pub(crate) fn push_with_outputs(
        &mut self,
        op: impl Op + 'static,
        inputs: &[Value],
        targets: &[Target],
        made: &[Spec],
    ) -> Vec<Value> {
        let first = self.tape.values.len();
        self.push_with_workspace(op, inputs, targets, made);
        (first..first + made.len()).map(|v| Value(v as u32)).collect()
    }

    /// Adds an operation that writes the targets and needs workspace.
    pub(crate) fn push_with_workspace(
        &mut self,
        op: impl Op + 'static,
        inputs: &[Value],
        targets: &[Target],
        space: &[Spec],
    ) {
        let mut outputs: Vec<Value> = targets.iter().map(|t| t.out).collect();
        let mut bases: Vec<Option<Value>> = targets.iter().map(|t| t.base).collect();
        for spec in space {
            outputs.push(self.tape.scratch(*spec, false));
            bases.push(None);
        }
        self.tape.push_into(Arc::new(op), inputs, &outputs, &bases);
    }

    /// Makes `value` the gradient of the `i`-th input. `value` may also be the gradient of another value.
    pub fn pass(&mut self, i: usize, value: Value) {
        if !self.wants(i) {
            return;
        }
        self.flush_if_pending(Some(value));
        let input = self.node.inputs[i];
        let info = self.tape.info(input).clone();
        assert_eq!(
            info.shape.len(),
            self.tape.shape(value).len(),
            "a gradient must have the size of its value"
        );
        let owned = matches!(info.storage, Storage::Master(_) | Storage::Work(_));
        let same_type = self.tape.info(value).dtype == info.gradient_dtype;
        if !owned && same_type && !self.state.of.contains_key(&input) {
            self.state.of.insert(input, value);
            return;
        }
        let target = self.target(i);
        self.push(ops::cast::Add, &[value], &[target]);
    }
}
