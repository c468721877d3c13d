//! Adds up partial sums, many of them in one kernel, because each alone would be dominated by launch latency. Used
//! for the gradients of biases and of norms' weights.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};

/// Maximum number of sums per kernel: their table is passed by value, and every driver accepts 4 KiB.
pub(crate) const MAX_SUMS: usize = 64;

/// One sum: the number of parts, and the sizes of the one or two outputs that a part holds one after another.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub count: usize,
    pub sizes: Vec<usize>,
}

/// Inputs: the parts of each sum. Outputs: those of each sum in turn. On the CPU the first part is the whole sum.
#[derive(Debug)]
pub(crate) struct SumParts(pub Vec<Sum>);

impl Op for SumParts {
    fn name(&self) -> &'static str {
        "sum_parts"
    }

    fn is_long(&self) -> bool {
        false
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let mut at = 0;
        for (i, sum) in self.0.iter().enumerate() {
            let mut parts = io.f32(i);
            for &size in &sum.sizes {
                let (mine, rest) = parts.split_at(size);
                io.accumulate(at).iter_mut().zip(mine).for_each(|(out, part)| *out += part);
                parts = rest;
                at += 1;
            }
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        // Mirrors `struct Sum` in kernels/column_sum.cu: five addresses and four ints.
        let mut table = Vec::with_capacity(7 * MAX_SUMS);
        let (mut at, mut blocks) = (0, 0);
        for (i, sum) in self.0.iter().enumerate() {
            let second = sum.sizes.len() > 1;
            table.extend([io.output(at), io.base(at)]);
            table.extend(if second { [io.output(at + 1), io.base(at + 1)] } else { [0, 0] });
            table.push(io.input(i));
            let n: usize = sum.sizes.iter().sum();
            table.push(sum.sizes[0] as u64 | (n as u64) << 32);
            table.push(sum.count as u64 | (blocks as u64) << 32);
            at += sum.sizes.len();
            blocks += n.div_ceil(32);
        }
        table.resize(7 * MAX_SUMS, 0);
        io.launch_with("sum_parts", Launch::line(blocks, 1024), &args![self.0.len()], &table)
    }
}
