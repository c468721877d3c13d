//! Summing gradients over replicas. An all-reduce is inserted right after the last writer of each bucket of
//! gradients, so that communication overlaps with the rest of the backward pass.

use super::{EngineBuffer, Spec, Storage, Tape, Value};
use crate::ops::all_reduce::AllReduce;
use crate::parameters::{CHUNK, Role};
use crate::shape::DType;
use std::sync::Arc;

impl Tape {
    /// Replaces a value (f32, without a gradient) by its sum over all replicas, for all later readers.
    pub(crate) fn sum_over_replicas(&mut self, value: Value) {
        let info = self.info(value);
        assert!(
            info.dtype == DType::F32 && !info.differentiable,
            "only values without a gradient can be summed over replicas"
        );
        let op = AllReduce { overlaps: false, rounded: false };
        self.push_into(Arc::new(op), &[value], &[value], &[None]);
    }

    /// Sums the gradients over all replicas in buckets of about `bytes`, in bf16 if `rounded`, else in f32. Call it
    /// after `backward` and before the optimiser.
    pub fn reduce_gradients(&mut self, bytes: usize, rounded: bool) {
        let layout = Arc::clone(&self.layout);
        let gradients = self.engine_buffer(EngineBuffer::Gradients);
        let mut last = vec![0; layout.parameters().count()];
        for (n, node) in self.nodes.iter().enumerate() {
            for output in &node.outputs {
                if let Storage::Gradient(id) = self.info(*output).storage {
                    last[id.0 as usize] = n;
                }
            }
        }
        // Buckets are contiguous in the arena, in order of declaration. The backward pass runs in the opposite
        // direction and finishes the last bucket first.
        let mut buckets: Vec<(std::ops::Range<usize>, usize)> = Vec::new();
        for (id, parameter) in layout.parameters().filter(|(_, p)| matches!(p.role, Role::Trained(_))) {
            let range = parameter.offset..parameter.range().end.next_multiple_of(CHUNK);
            let ready = last[id.0 as usize];
            match buckets.last_mut() {
                Some((bucket, when)) if (bucket.len() + range.len()) * 4 <= bytes => {
                    bucket.end = range.end;
                    *when = ready.max(*when);
                }
                _ => buckets.push((range, ready)),
            }
        }
        buckets.sort_by_key(|(_, when)| std::cmp::Reverse(*when));
        for (range, when) in buckets {
            let view = self.view(gradients, range.start, [range.len()].into());
            let mut outputs = vec![view];
            if rounded {
                // Two bytes for each element.
                let space = Spec::constant([range.len().div_ceil(2)], DType::I32);
                outputs.push(self.scratch(space, false));
            }
            let bases = vec![None; outputs.len()];
            self.push_into(Arc::new(AllReduce { overlaps: true, rounded }), &[view], &outputs, &bases);
            let node = self.nodes.pop();
            self.nodes.splice(when + 1..when + 1, node);
        }
        self.time_sums();
    }
}
