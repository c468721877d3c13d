//! Addends of a convolution's output: a bias, a vector for every item, whole tensors; and their gradients.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Target, Value};

/// Which addends there are. They follow `x` and the weight among an operation's inputs, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addends {
    /// `[channels]`, f32.
    pub bias: bool,
    /// `[items, channels]`.
    pub per_item: bool,
    /// Of the output's shape.
    pub residual: bool,
    /// Of the output's shape.
    pub plus: bool,
}

impl Addends {
    fn at(&self, there: bool, before: &[bool]) -> Option<usize> {
        there.then(|| 2 + before.iter().filter(|b| **b).count())
    }

    pub fn bias_at(&self) -> Option<usize> {
        self.at(self.bias, &[])
    }

    pub fn per_item_at(&self) -> Option<usize> {
        self.at(self.per_item, &[self.bias])
    }

    pub fn residual_at(&self) -> Option<usize> {
        self.at(self.residual, &[self.bias, self.per_item])
    }

    pub fn plus_at(&self) -> Option<usize> {
        self.at(self.plus, &[self.bias, self.per_item, self.residual])
    }

    /// Writes their sum to `y`; returns whether there are any.
    pub fn fill_cpu(&self, io: &CpuIo<'_>, y: &mut [f32]) -> bool {
        if *self == Addends::default() {
            return false;
        }
        let input = |at: Option<usize>| at.map(|i| io.f32(i));
        let (bias, per_item) = (input(self.bias_at()), input(self.per_item_at()));
        let (residual, plus) = (input(self.residual_at()), input(self.plus_at()));
        let c = io.output_shape(0).last();
        let rows = y.len() / c / io.output_shape(0).dim(0);
        vector::each_row(y, c, |i, row| {
            match bias {
                Some(bias) => row.copy_from_slice(bias),
                None => row.fill(0.0),
            }
            let item = per_item.map(|v| &v[i / rows * c..]);
            for more in [item, residual.map(|v| &v[i * c..]), plus.map(|v| &v[i * c..])].into_iter().flatten()
            {
                row.iter_mut().zip(more).for_each(|(y, v)| *y += v);
            }
        });
        true
    }

    /// Address of their sum, which may be the output itself, filled; 0 if there are none.
    pub fn fill_cuda(&self, io: &CudaIo<'_>) -> Result<u64, Error> {
        match *self {
            Addends { bias: false, per_item: false, residual: false, plus: false } => return Ok(0),
            Addends { bias: false, per_item: false, residual: true, plus: false } => {
                return Ok(self.address(io, self.residual_at()));
            }
            Addends { bias: false, per_item: false, residual: false, plus: true } => {
                return Ok(self.address(io, self.plus_at()));
            }
            _ => {}
        }
        let shape = io.output_shape(0);
        let (n, c) = (shape.len(), shape.last());
        let name = format!("addends_{}", float(io.output_dtype(0)).suffix());
        let args = args![
            io.output(0),
            self.address(io, self.bias_at()),
            self.address(io, self.per_item_at()),
            self.address(io, self.residual_at()),
            self.address(io, self.plus_at()),
            n as i64,
            c,
            (n / shape.dim(0)) as i64
        ];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)?;
        Ok(io.output(0))
    }

    /// Address of an input; 0 if it is absent.
    pub fn address(&self, io: &CudaIo<'_>, at: Option<usize>) -> u64 {
        at.map_or(0, |i| io.input(i))
    }

    /// Adds their gradients, except that of the bias if `but_bias`.
    pub fn backward(&self, g: &mut Gradients<'_>, but_bias: bool) {
        let dy = g.result_gradient();
        for i in [self.residual_at(), self.plus_at()].into_iter().flatten() {
            g.pass(i, dy);
        }
        let wanted = |g: &Gradients<'_>, at: Option<usize>| at.filter(|&i| g.wants(i));
        let per_item = wanted(g, self.per_item_at());
        let bias = wanted(g, self.bias_at()).filter(|_| !but_bias);
        if per_item.is_none() && bias.is_none() {
            return;
        }
        let op = ChannelSum { per_item: per_item.is_some(), bias: bias.is_some() };
        let targets: Vec<Target> = [per_item, bias].into_iter().flatten().map(|i| g.target(i)).collect();
        let space = op.workspace(g.tape().shape(dy));
        g.push_with_workspace(op, &[dy], &targets, &[space]);
    }

    /// Collects the bias, the vector per item and the other addends as inputs.
    pub fn of(
        bias: Option<Value>,
        per_item: Option<Value>,
        residual: Option<Value>,
        plus: Option<Value>,
    ) -> (Addends, Vec<Value>) {
        let addends = Addends {
            bias: bias.is_some(),
            per_item: per_item.is_some(),
            residual: residual.is_some(),
            plus: plus.is_some(),
        };
        (addends, [bias, per_item, residual, plus].into_iter().flatten().collect())
    }
}

/// Number of blocks that fills a device.
const BLOCKS: usize = 264;

/// Sums of `[items, .., c]` per item, over everything, or both. Outputs: those, and workspace.
#[derive(Clone, Copy, Debug)]
struct ChannelSum {
    per_item: bool,
    bias: bool,
}

impl ChannelSum {
    /// Number of items summed separately, and number of splits of each item's rows.
    fn cut(self, shape: Shape) -> (usize, usize) {
        let items = if self.per_item { shape.dim(0) } else { 1 };
        let rows = shape.rows() / items;
        let across = items * shape.last().div_ceil(256);
        (items, BLOCKS.div_ceil(across).min(rows.div_ceil(16)).max(1))
    }

    fn workspace(self, shape: Shape) -> Spec {
        let (items, shares) = self.cut(shape);
        Spec::constant([items * shares * shape.last()], DType::F32)
    }
}

impl Op for ChannelSum {
    fn name(&self) -> &'static str {
        "channel_sum"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, shape) = (io.f32(0), io.shape(0));
        let c = shape.last();
        if self.per_item {
            let items = x.chunks_exact(x.len() / shape.dim(0));
            for (sums, x) in io.accumulate(0).chunks_exact_mut(c).zip(items) {
                vector::add_column_sums(x, c, sums);
            }
        }
        if self.bias {
            vector::add_column_sums(x, c, io.accumulate(usize::from(self.per_item)));
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let shape = io.shape(0);
        let (c, (items, shares)) = (shape.last(), self.cut(shape));
        let space = io.output(usize::from(self.per_item) + usize::from(self.bias));
        let name = format!("channel_sum_{}", float(io.dtype(0)).suffix());
        let launch = Launch::grid(c.div_ceil(256), shares, items, 256);
        io.launch(&name, launch, &args![space, io.input(0), shape.rows() / items, c])?;
        let sum = |j: usize, n: usize, count: usize| {
            let name = format!("channel_sum_parts_{}", float(io.output_dtype(j)).suffix());
            let args = args![io.output(j), io.base(j), space, n, count];
            io.launch(&name, Launch::line(n.div_ceil(32), 256), &args)
        };
        if self.per_item {
            sum(0, items * c, shares)?;
        }
        if self.bias {
            sum(usize::from(self.per_item), c, shares * items)?;
        }
        Ok(())
    }
}
