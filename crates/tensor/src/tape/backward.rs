//! Gradients. `Tape::backward` walks the tape from its end and asks every operation for the operations that make the
//! gradients of its inputs; they are added to the same tape. What is not read again is free for reuse at once, since
//! the memory planner sees the last reader of every value.

use super::{Node, Spec, Storage, Tape, Value};
use crate::op::Op;
use crate::ops;
use crate::ops::sum_parts::{Sum, SumParts};
use crate::parameters::ParameterId;
use crate::shape::Shape;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the backward pass computes again instead of keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Recompute {
    /// Nothing but what `Tape::checkpoint` marks.
    #[default]
    Marked,
    /// Also what norms make, which is small beside the products around it: a tenth of the memory for a hundredth of the time.
    Norms,
    /// Everything that an operation can make again at the price of one pass over memory: norms, activations.
    Cheap,
}

/// How gradients are taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backward {
    /// What is computed again.
    pub recompute: Recompute,
    /// Add to the gradients of the steps before instead of replacing them.
    pub accumulate: bool,
}

/// What an operation sees when it is asked for its gradients.
pub struct Gradients<'a> {
    tape: &'a mut Tape,
    node: Node,
    state: &'a mut State,
}

struct State {
    options: Backward,
    of: HashMap<Value, Value>,
    written: HashSet<ParameterId>,
    /// Values that were computed again, by the value they stand for.
    again: HashMap<Value, Value>,
    /// Which node made each value.
    maker: HashMap<Value, usize>,
    regions: Vec<std::ops::Range<usize>>,
    /// Sums that are taken together, in few kernels instead of one each.
    pending: Vec<Pending>,
}

/// Parts of sums that wait to be added up.
struct Pending {
    parts: Value,
    count: usize,
    targets: Vec<Target>,
}

/// Where a gradient goes: the result, and what is added to it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    out: Value,
    base: Option<Value>,
}

impl Tape {
    /// Adds the operations that make the gradient of `loss` (one f32) with respect to everything it depends on.
    pub fn backward(&mut self, loss: Value, options: Backward) {
        assert_eq!(self.shape(loss).len(), 1, "gradients are taken of a scalar");
        let end = self.nodes.len();
        let mut state = State {
            options,
            of: HashMap::new(),
            written: HashSet::new(),
            again: HashMap::new(),
            maker: HashMap::new(),
            regions: std::mem::take(&mut self.regions),
            pending: Vec::new(),
        };
        for (n, node) in self.nodes.iter().enumerate() {
            state.maker.extend(node.outputs.iter().map(|&v| (v, n)));
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
        self.settle(&mut state);
        // A parameter that was asked for and got no gradient this time must not keep the last step's.
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

    /// Adds up the sums that wait.
    fn settle(&mut self, state: &mut State) {
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

    /// Adds the nodes of a checkpointed region again and notes which values stand for the old ones.
    fn replay(&mut self, region: std::ops::Range<usize>, state: &mut State) {
        for n in region {
            let node = self.nodes[n].clone();
            let inputs: Vec<Value> = node.inputs.iter().map(|v| *state.again.get(v).unwrap_or(v)).collect();
            let outputs: Vec<Value> = node.outputs.iter().map(|&v| self.twin(v, state)).collect();
            self.push_into(node.op, &inputs, &outputs, &node.bases);
            state.again.extend(node.outputs.iter().copied().zip(outputs));
        }
    }

    fn twin(&mut self, value: Value, state: &State) -> Value {
        let info = self.info(value).clone();
        match info.storage {
            Storage::View { of, start } => {
                let of = *state.again.get(&of).unwrap_or(&of);
                self.view(of, start, info.shape)
            }
            _ => self.value(info),
        }
    }

    /// The value itself, or one that was or now is computed again.
    fn recall(&mut self, value: Value, state: &mut State) -> Value {
        if let Some(&again) = state.again.get(&value) {
            return again;
        }
        if state.options.recompute == Recompute::Marked {
            return value;
        }
        let Some(&maker) = state.maker.get(&value) else { return value };
        let node = self.nodes[maker].clone();
        let Some(which) = node.outputs.iter().position(|&v| v == value) else { return value };
        if let Storage::View { of, start } = self.info(value).storage {
            let source = self.recall(of, state);
            if source == of {
                return value;
            }
            let again = self.view(source, start, self.shape(value));
            state.again.insert(value, again);
            return again;
        }
        if state.options.recompute == Recompute::Norms && !node.op.is_norm() {
            return value;
        }
        let Some((op, inputs)) = node.op.remake(which, &node) else { return value };
        let inputs: Vec<Value> = inputs.into_iter().map(|v| self.recall(v, state)).collect();
        let info = self.info(value);
        let spec = Spec::constant(info.shape, info.dtype);
        let again = self.push_shared(op, &inputs, &[spec])[0];
        state.again.insert(value, again);
        again
    }
}

impl Gradients<'_> {
    /// The tape, for shapes and for further operations.
    pub fn tape(&mut self) -> &mut Tape {
        self.tape
    }

    /// How many inputs the operation has.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// The `i`-th input of the operation.
    pub fn input(&mut self, i: usize) -> Value {
        self.tape.recall(self.node.inputs[i], self.state)
    }

    /// The `j`-th result of the operation.
    pub fn output(&mut self, j: usize) -> Value {
        self.tape.recall(self.node.outputs[j], self.state)
    }

    /// The shape of the `i`-th input, without recalling it.
    pub fn input_shape(&self, i: usize) -> Shape {
        self.tape.shape(self.node.inputs[i])
    }

    /// The gradient of the `j`-th result, if any flows to it.
    pub fn of_output(&mut self, j: usize) -> Option<Value> {
        let gradient = self.state.of.get(&self.node.outputs[j]).copied();
        self.settle_if_pending(gradient);
        gradient
    }

    /// The gradient of the only result.
    pub fn of_result(&mut self) -> Value {
        let gradient = self.state.of[&self.node.outputs[0]];
        self.settle_if_pending(Some(gradient));
        gradient
    }

    /// What is read must have been added up.
    fn settle_if_pending(&mut self, value: Option<Value>) {
        let waits = |v: Value| self.state.pending.iter().any(|p| p.targets.iter().any(|t| t.out == v));
        if value.is_some_and(waits) {
            self.tape.settle(self.state);
        }
    }

    /// Targets get the sums of `count` parts, each part holding the targets' elements one after another. Taken together
    /// with other such sums, at the latest at the end of the backward pass.
    pub fn sum_parts(&mut self, parts: Value, count: usize, targets: &[Target]) {
        self.state.pending.push(Pending { parts, count, targets: targets.to_vec() });
        if self.state.pending.len() == ops::sum_parts::MOST {
            self.tape.settle(self.state);
        }
    }

    /// Whether gradients flow to the `i`-th input.
    pub fn wants(&self, i: usize) -> bool {
        self.tape.info(self.node.inputs[i]).differentiable
    }

    /// Where the gradient of the `i`-th input goes. The operation that fills it adds the base, if there is one.
    pub fn target(&mut self, i: usize) -> Target {
        let value = self.node.inputs[i];
        let info = self.tape.info(value).clone();
        if let Storage::Master(id) | Storage::Work(id) = info.storage {
            let out = self.tape.gradient_of_parameter(id);
            self.settle_if_pending(Some(out));
            let first = self.state.written.insert(id) && !self.state.options.accumulate;
            self.state.of.insert(value, out);
            return Target { out, base: (!first).then_some(out) };
        }
        let base = self.state.of.get(&value).copied();
        self.settle_if_pending(base);
        let out = self.tape.scratch(Spec::constant(info.shape, info.gradient_dtype), false);
        self.state.of.insert(value, out);
        Target { out, base }
    }

    /// Adds an operation that fills targets.
    pub fn push(&mut self, op: impl Op + 'static, inputs: &[Value], targets: &[Target]) {
        let outputs: Vec<Value> = targets.iter().map(|t| t.out).collect();
        let bases: Vec<Option<Value>> = targets.iter().map(|t| t.base).collect();
        self.tape.push_into(Arc::new(op), inputs, &outputs, &bases);
    }

    /// Adds an operation that fills targets and then values of its own.
    pub fn push_and_make(
        &mut self,
        op: impl Op + 'static,
        inputs: &[Value],
        targets: &[Target],
        made: &[Spec],
    ) -> Vec<Value> {
        let first = self.tape.values.len();
        self.push_with_space(op, inputs, targets, made);
        (first..first + made.len()).map(|v| Value(v as u32)).collect()
    }

    /// Adds an operation that fills targets and needs work space.
    pub fn push_with_space(
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

    /// The gradient of the `i`-th input is `value`, which may be the gradient of something else too.
    pub fn pass(&mut self, i: usize, value: Value) {
        if !self.wants(i) {
            return;
        }
        self.settle_if_pending(Some(value));
        let input = self.node.inputs[i];
        let info = self.tape.info(input).clone();
        assert_eq!(info.shape.len(), self.tape.shape(value).len(), "a gradient has the size of its value");
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
