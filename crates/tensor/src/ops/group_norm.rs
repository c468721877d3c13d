//! Group norm over time and a group of channels.

use super::channel_norm::{self, Reapply, View};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Node, Spec, Tape, Value};
use std::sync::Arc;

/// Inputs: x `[b, t, c]`, weight and bias `[c]` f32. Outputs: y, mean and 1 / deviation `[b, groups]`,
/// workspace.
#[derive(Clone, Copy, Debug)]
struct GroupNorm {
    view: View,
    epsilon: f32,
}

impl Op for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, y, mean, inverse) = (io.f32(0), io.take(0), io.take(1), io.take(2));
        channel_norm::moments(self.view, x, mean, inverse);
        inverse.iter_mut().for_each(|v| *v = 1.0 / (*v + self.epsilon).sqrt());
        channel_norm::apply(self.view, x, (mean, inverse), (io.f32(1), io.f32(2)), y);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (mean, inverse) = (io.output(1), io.output(2));
        channel_norm::queue_statistics(io, self.view, (mean, inverse, io.output(3)), self.epsilon, None)?;
        channel_norm::queue_apply(io, self.view, [io.input(1), io.input(2), mean, inverse])
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        channel_norm::backward(g, self.view, true);
    }

    fn is_norm(&self) -> bool {
        true
    }

    fn recompute(&self, which: usize, node: &Node) -> Option<(Arc<dyn Op>, Vec<Value>)> {
        let mut inputs = vec![node.inputs[0], node.outputs[1], node.outputs[2]];
        inputs.extend(&node.inputs[1..]);
        let reapply: Arc<dyn Op> = Arc::new(Reapply(self.view));
        (which == 0).then_some((reapply, inputs))
    }
}

impl Tape {
    /// `(x - mean) / deviation * weight + bias` with statistics over time and the channels of a group, of x
    /// `[batch, time, channel]`; weight and bias `[channel]` are f32 (`Tape::master`).
    pub fn group_norm(&mut self, x: Value, groups: usize, weight: Value, bias: Value, epsilon: f32) -> Value {
        let c = self.shape(x).last();
        for value in [weight, bias] {
            assert_eq!(self.shape(value).len(), c, "a norm must have one weight and bias per channel");
            assert_eq!(self.info(value).dtype, DType::F32, "weight and bias of a norm must be f32");
        }
        let info = self.info(x).clone();
        let &[items, rows, channels] = info.shape.dims() else {
            panic!("a group norm takes [batch, time, channel], not {}", info.shape)
        };
        assert!(
            groups > 0 && channels.is_multiple_of(groups),
            "{channels} channels are not divisible into {groups} groups"
        );
        assert!(rows > 0, "a norm over time needs at least one time step");
        let view = View { items, rows, channels, groups };
        let statistic = Spec::constant([items, groups], DType::F32);
        let outputs = [Spec::new(info.shape, info.dtype), statistic, statistic, view.workspace()];
        let op = GroupNorm { view, epsilon };
        self.push(op, &[x, weight, bias], &outputs)[0]
    }
}
