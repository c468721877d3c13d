//! Batch norm over all rows: with the batch's statistics in training, with the running ones in inference.

use super::channel_norm::{self, Reapply, View};
use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::parameters::ParameterId;
use crate::shape::DType;
use crate::tape::{Gradients, Node, Spec, Tape, Value};
use std::sync::Arc;

/// Inputs: x `[.., c]`, weight, bias, running mean, running variance, all `[c]` f32. Outputs: y, mean and 1 /
/// deviation `[c]`; in training also the next running mean and variance, and workspace.
#[derive(Clone, Copy, Debug)]
struct BatchNorm {
    view: View,
    epsilon: f32,
    /// Weight of the batch's statistics in the running ones; `None` in inference.
    momentum: Option<f32>,
}

impl Op for BatchNorm {
    fn name(&self) -> &'static str {
        if self.momentum.is_some() { "batch_norm" } else { "batch_norm_running" }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, affine) = (io.f32(0), (io.f32(1), io.f32(2)));
        let (old_mean, old_variance) = (io.f32(3), io.f32(4));
        let (y, mean, inverse) = (io.take(0), io.take(1), io.take(2));
        // Holds the variance until the last line.
        if let Some(momentum) = self.momentum {
            channel_norm::moments(self.view, x, mean, inverse);
            let n = self.view.rows as f32;
            let sample = n / (n - 1.0).max(1.0);
            let moved = |next: &mut [f32], old: &[f32], now: &[f32], factor: f32| {
                for ((next, old), now) in next.iter_mut().zip(old).zip(now) {
                    *next = (1.0 - momentum) * old + momentum * (now * factor);
                }
            };
            moved(io.take(3), old_mean, mean, 1.0);
            moved(io.take(4), old_variance, inverse, sample);
        } else {
            mean.copy_from_slice(old_mean);
            inverse.copy_from_slice(old_variance);
        }
        inverse.iter_mut().for_each(|v| *v = 1.0 / (*v + self.epsilon).sqrt());
        channel_norm::apply(self.view, x, (mean, inverse), affine, y);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (mean, inverse, old) = (io.output(1), io.output(2), [io.input(3), io.input(4)]);
        match self.momentum {
            Some(momentum) => {
                let running = ([io.output(3), io.output(4)], old, momentum);
                let places = (mean, inverse, io.output(5));
                channel_norm::queue_statistics(io, self.view, places, self.epsilon, Some(running))?;
            }
            None => {
                let c = self.view.channels;
                let args = args![mean, inverse, old[0], old[1], c, self.epsilon];
                io.launch("channel_norm_running", Launch::each(c), &args)?;
            }
        }
        channel_norm::queue_apply(io, self.view, [io.input(1), io.input(2), mean, inverse])
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        channel_norm::backward(g, self.view, self.momentum.is_some());
    }

    fn is_norm(&self) -> bool {
        true
    }

    fn recompute(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        let [x, weight, bias, ..] = node.inputs[..] else { return None };
        let reapply: Arc<dyn Op> = Arc::new(Reapply(self.view));
        (which == 0).then_some((reapply, vec![x, node.outputs[1], node.outputs[2], weight, bias]))
    }
}

/// Outputs of a batch norm in training.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormed {
    /// The normalised x.
    pub y: Value,
    /// The next running mean `[c]`, to be committed.
    pub mean: Value,
    /// The next running variance `[c]`, to be committed.
    pub variance: Value,
}

impl Tape {
    /// Batch norm in training: `(x - mean) / deviation * weight + bias` with statistics over all rows of x `[..,
    /// c]`. At the end of the step the state parameters `mean` and `variance` `[c]` move by `momentum` towards the
    /// batch's. Weight and bias are f32 (`Tape::master`).
    pub fn batch_norm(
        &mut self,
        x: Value,
        (weight, bias): (Value, Value),
        (mean, variance): (ParameterId, ParameterId),
        momentum: f32,
        epsilon: f32,
    ) -> Value {
        let running = (self.master(mean), self.master(variance));
        let normed = self.batch_norm_with(x, (weight, bias), running, momentum, epsilon);
        self.commit(mean, normed.mean);
        self.commit(variance, normed.variance);
        normed.y
    }

    /// As `batch_norm`, with the running statistics as values: the next ones are outputs.
    pub fn batch_norm_with(
        &mut self,
        x: Value,
        (weight, bias): (Value, Value),
        (mean, variance): (Value, Value),
        momentum: f32,
        epsilon: f32,
    ) -> BatchNormed {
        let inputs = [x, weight, bias, mean, variance];
        let (view, y, statistic) = self.batch_view(&inputs);
        let outputs = [y, statistic, statistic, statistic, statistic, view.workspace()];
        let results = self.push(BatchNorm { view, epsilon, momentum: Some(momentum) }, &inputs, &outputs);
        BatchNormed { y: results[0], mean: results[3], variance: results[4] }
    }

    /// Batch norm in inference, with the running statistics, which get no gradient.
    pub fn batch_norm_running(
        &mut self,
        x: Value,
        (weight, bias): (Value, Value),
        (mean, variance): (Value, Value),
        epsilon: f32,
    ) -> Value {
        let inputs = [x, weight, bias, mean, variance];
        let (view, y, statistic) = self.batch_view(&inputs);
        let outputs = [y, statistic, statistic];
        self.push(BatchNorm { view, epsilon, momentum: None }, &inputs, &outputs)[0]
    }

    fn batch_view(&self, inputs: &[Value; 5]) -> (View, Spec, Spec) {
        let shape = self.shape(inputs[0]);
        let c = shape.last();
        for &value in &inputs[1..] {
            assert_eq!(
                self.shape(value).len(),
                c,
                "weight, bias, mean and variance must have one element per channel"
            );
            assert_eq!(
                self.info(value).dtype,
                DType::F32,
                "weight, bias and statistics of a norm must be f32"
            );
        }
        assert!(shape.rows() > 0, "a batch norm needs at least one row");
        let view = View { items: 1, rows: shape.rows(), channels: c, groups: c };
        (view, Spec::new(shape, self.info(inputs[0]).dtype), Spec::constant([c], DType::F32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{Init, LayoutBuilder, Role};
    use crate::tape::Precision;

    #[test]
    fn the_running_statistics_are_committed() {
        let mut layout = LayoutBuilder::new();
        let group = layout.group("norms", 0.0, 1.0);
        let [weight, bias] =
            ["weight", "bias"].map(|name| layout.add(name, [6], Role::Trained(group), Init::Zeros));
        let [mean, variance] =
            ["mean", "variance"].map(|name| layout.add(name, [6], Role::State, Init::Zeros));
        let mut tape = Tape::new(Arc::new(layout.finish()), Precision::Bf16);
        let x = tape.input([5, 6], DType::Bf16);
        let affine = (tape.master(weight), tape.master(bias));
        tape.batch_norm(x, affine, (mean, variance), 0.1, 1e-5);
        let committed: Vec<ParameterId> = tape.commits.iter().map(|(id, _)| *id).collect();
        assert_eq!(committed, [mean, variance]);
    }
}
