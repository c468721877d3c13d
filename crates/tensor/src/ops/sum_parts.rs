//! Sums that were taken in parts, added up: many of them in one kernel, since each alone would be over before the device
//! noticed. Gradients of biases and of norms' weights end here.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};

/// How many sums one kernel takes: their table is passed by value, and 4 KiB is what every driver takes.
pub(crate) const MOST: usize = 64;

/// One sum: how many parts, and the sizes of the one or two results a part holds one after another.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub count: usize,
    pub sizes: Vec<usize>,
}

/// Inputs: the parts of each sum. Results: those of each sum in turn. On the CPU the first part is the whole.
#[derive(Debug)]
pub(crate) struct SumParts(pub Vec<Sum>);

impl Op for SumParts {
    fn name(&self) -> &'static str {
        "sum_parts"
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
        // As `struct Sum` in kernels/column_sum.cu: five addresses and four ints.
        let mut table = Vec::with_capacity(7 * MOST);
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
        table.resize(7 * MOST, 0);
        io.launch_with("sum_parts", Launch::line(blocks, 1024), &args![self.0.len()], &table)
    }
}
