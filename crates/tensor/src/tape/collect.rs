//! Gradients meet: all-reduce operations put on a tape right after the last writer of each bucket of gradients, so that
//! they run while the backward pass goes on.

use super::{Flat, Spec, Storage, Tape, Value};
use crate::ops::all_reduce::AllReduce;
use crate::parameters::{CHUNK, Role};
use crate::shape::DType;
use std::sync::Arc;

impl Tape {
    /// Makes a value (f32, without a gradient) its sum over all replicas, for what reads it after this.
    pub fn sum_over_replicas(&mut self, value: Value) {
        let info = self.info(value);
        assert!(
            info.dtype == DType::F32 && !info.differentiable,
            "counts and sums meet, not what is learnt from"
        );
        let op = AllReduce { aside: false, rounded: false };
        self.push_into(Arc::new(op), &[value], &[value], &[None]);
    }

    /// Sums the gradients over all replicas, in buckets of about `bytes`, `rounded` to bf16 on the way or as they are. Called
    /// after `backward`, before the optimiser.
    pub fn reduce_gradients(&mut self, bytes: usize, rounded: bool) {
        let layout = Arc::clone(&self.layout);
        let gradients = self.flat(Flat::Gradients);
        let mut last = vec![0; layout.parameters().count()];
        for (n, node) in self.nodes.iter().enumerate() {
            for output in &node.outputs {
                if let Storage::Gradient(id) = self.info(*output).storage {
                    last[id.0 as usize] = n;
                }
            }
        }
        // Buckets are contiguous in the arena, and lie there in the order of declaration: the backward pass, which
        // goes the other way, finishes the last bucket first.
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
                // Two bytes for each number.
                let space = Spec::constant([range.len().div_ceil(2)], DType::I32);
                outputs.push(self.scratch(space, false));
            }
            let bases = vec![None; outputs.len()];
            self.push_into(Arc::new(AllReduce { aside: true, rounded }), &[view], &outputs, &bases);
            let node = self.nodes.pop();
            self.nodes.splice(when + 1..when + 1, node);
        }
        self.time_sums();
    }
}
