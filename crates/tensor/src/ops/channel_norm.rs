//! Shared code of group, instance and batch norm: statistics over the rows of groups of channels, and their
//! gradients. x is viewed as `[item, row, channel]`; a group's statistics cover all rows of an item.

use crate::args;
use crate::cpu::{row_sums, vector};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Value};

const THREADS: usize = 128;

/// Maximum number of partial sums over the rows of an item.
const PARTS: usize = 256;

/// How x is viewed.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub items: usize,
    pub rows: usize,
    pub channels: usize,
    pub groups: usize,
}

impl View {
    /// Total number of statistics.
    pub fn all(self) -> usize {
        self.items * self.groups
    }

    fn size(self) -> usize {
        self.channels / self.groups
    }

    /// Elements of a row per thread and load.
    fn vector(self) -> usize {
        if self.channels.is_multiple_of(8) { 8 } else { 1 }
    }

    /// Threads of a block along a row; the remaining threads process further rows.
    fn across(self) -> usize {
        (self.channels / self.vector()).next_power_of_two().min(THREADS)
    }

    /// Rows per partial sum.
    fn per(self) -> usize {
        let down = THREADS / self.across();
        self.rows.div_ceil(PARTS).max(16 * down)
    }

    fn parts(self) -> usize {
        self.rows.div_ceil(self.per()).max(1)
    }

    /// Workspace for all partial sums.
    pub fn space(self) -> Spec {
        Spec::constant([self.items * self.parts() * 2 * self.channels], DType::F32)
    }

    /// The kernel of that name for this element type, and the launch of a pass over x.
    fn pass(self, name: &str, dtype: DType) -> (String, Launch) {
        let odd = if self.vector() == 1 { "odd_" } else { "" };
        let wide = self.channels.div_ceil(self.vector() * self.across());
        let launch = Launch::grid(wide, self.parts(), self.items, THREADS as u32);
        (format!("channel_norm_{name}_{odd}{}", float(dtype).suffix()), launch)
    }

    /// Expands one value per group to one per channel.
    fn spread(self, item: usize, values: &[f32]) -> Vec<f32> {
        let of = &values[item * self.groups..(item + 1) * self.groups];
        of.iter().flat_map(|&v| std::iter::repeat_n(v, self.size())).collect()
    }

    /// Per-channel sums of one item as the mean over each group's elements.
    fn means(self, sums: &[f64]) -> impl Iterator<Item = f64> {
        let n = (self.rows * self.size()) as f64;
        sums.chunks(self.size()).map(move |group| group.iter().sum::<f64>() / n)
    }
}

/// Mean and variance of every group, on the CPU.
pub(super) fn moments(view: View, x: &[f32], mean: &mut [f32], variance: &mut [f32]) {
    let c = view.channels;
    for item in 0..view.items {
        let x = &x[item * view.rows * c..][..view.rows * c];
        let sums = row_sums::sums(
            view.rows,
            c,
            #[inline(always)]
            |row, sums| {
                for (sum, x) in sums.iter_mut().zip(&x[row * c..]) {
                    *sum += x;
                }
            },
        );
        for (mean, m) in mean[item * view.groups..].iter_mut().zip(view.means(&sums)) {
            *mean = m as f32;
        }
        let m = view.spread(item, mean);
        let squares = row_sums::sums(
            view.rows,
            c,
            #[inline(always)]
            |row, sums| {
                for ((sum, x), m) in sums.iter_mut().zip(&x[row * c..]).zip(&m) {
                    *sum += (x - m) * (x - m);
                }
            },
        );
        for (variance, v) in variance[item * view.groups..].iter_mut().zip(view.means(&squares)) {
            *variance = v as f32;
        }
    }
}

/// `(x - mean) * inverse * weight + bias`, on the CPU.
pub(super) fn apply(
    view: View,
    x: &[f32],
    (mean, inverse): (&[f32], &[f32]),
    affine: Option<(&[f32], &[f32])>,
    y: &mut [f32],
) {
    let c = view.channels;
    let spread: Vec<(Vec<f32>, Vec<f32>, Vec<f32>)> = (0..view.items)
        .map(|item| {
            let mut scale = view.spread(item, inverse);
            let mut shift = vec![0.0; c];
            if let Some((weight, bias)) = affine {
                scale.iter_mut().zip(weight).for_each(|(s, w)| *s *= w);
                shift.copy_from_slice(bias);
            }
            (view.spread(item, mean), scale, shift)
        })
        .collect();
    vector::each_row(
        y,
        c,
        #[inline(always)]
        |i, y| {
            let (mean, scale, shift) = &spread[i / view.rows];
            for ((((y, x), m), s), b) in y.iter_mut().zip(&x[i * c..]).zip(mean).zip(scale).zip(shift) {
                *y = (x - m) * s + b;
            }
        },
    );
}

/// Queues the statistics of a step. `running` holds the addresses of the next and the old running statistics, and
/// the momentum.
pub(super) fn queue_statistics(
    io: &CudaIo<'_>,
    view: View,
    (mean, inverse, space): (u64, u64, u64),
    epsilon: f32,
    running: Option<([u64; 2], [u64; 2], f32)>,
) -> Result<(), Error> {
    let (name, launch) = view.pass("moments", io.dtype(0));
    let args = args![space, io.input(0), view.rows, view.channels, view.across(), view.per()];
    io.launch(&name, launch, &args)?;
    let (next, old, momentum) = running.unwrap_or_default();
    let args = args![
        mean,
        inverse,
        space,
        view.all(),
        view.groups,
        view.rows,
        view.channels,
        view.per(),
        view.parts(),
        epsilon,
        next[0],
        next[1],
        old[0],
        old[1],
        momentum
    ];
    io.launch("channel_norm_statistics", Launch::line(view.all().div_ceil(4), 128), &args)
}

/// Queues `y`, from the addresses of weight, bias (0 for none), mean, inverse.
pub(super) fn queue_apply(io: &CudaIo<'_>, view: View, [w, b, mean, inverse]: [u64; 4]) -> Result<(), Error> {
    let (name, launch) = view.pass("apply", io.dtype(0));
    let args = args![
        io.output(0),
        io.input(0),
        w,
        b,
        mean,
        inverse,
        view.rows,
        view.channels,
        view.groups,
        view.across(),
        view.per()
    ];
    io.launch(&name, launch, &args)
}

/// Recomputes `y`. Inputs: x, mean, inverse, weight and bias if any.
#[derive(Debug)]
pub(super) struct Reapply(pub View);

impl Op for Reapply {
    fn name(&self) -> &'static str {
        "channel_norm_again"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let affine = (io.inputs() > 3).then(|| (io.f32(3), io.f32(4)));
        let (x, statistics) = (io.f32(0), (io.f32(1), io.f32(2)));
        apply(self.0, x, statistics, affine, io.take(0));
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let affine = if io.inputs() > 3 { [io.input(3), io.input(4)] } else { [0; 2] };
        queue_apply(io, self.0, [affine[0], affine[1], io.input(1), io.input(2)])
    }
}

/// Which inputs and outputs a norm's backward pass has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub input: bool,
    pub weights: bool,
    /// Whether there is a weight, trained or not.
    pub affine: bool,
    /// Whether the statistics came from x, so that gradients flow through them.
    pub flowing: bool,
}

/// Inputs: x, dy, mean, inverse, weight if there is one. Outputs: dx if wanted, dweight and dbias if wanted,
/// workspace for sums, two means per group.
#[derive(Debug)]
struct Backward {
    view: View,
    wanted: Wanted,
}

impl Backward {
    fn weights_at(&self) -> usize {
        usize::from(self.wanted.input)
    }

    fn space_at(&self) -> usize {
        self.weights_at() + 2 * usize::from(self.wanted.weights)
    }
}

impl Op for Backward {
    fn name(&self) -> &'static str {
        "channel_norm'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (view, wanted) = (self.view, self.wanted);
        let (c, rows) = (view.channels, view.rows);
        let (x, dy, mean, inverse) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3));
        let ones = vec![1.0; c];
        let weight = if wanted.affine { io.f32(4) } else { &ones };
        let (m, s): (Vec<_>, Vec<_>) =
            (0..view.items).map(|item| (view.spread(item, mean), view.spread(item, inverse))).unzip();
        // Per channel of every item: Σ dy and Σ dy h.
        let sums: Vec<Vec<f64>> = if wanted.weights || wanted.flowing {
            let of_item = |item: usize| {
                row_sums::sums(
                    rows,
                    2 * c,
                    #[inline(always)]
                    |row, sums| {
                        let (sum, product) = sums.split_at_mut(c);
                        let at = (item * rows + row) * c;
                        let columns = sum.iter_mut().zip(product).zip(&x[at..]).zip(&dy[at..]);
                        for ((((sum, product), x), dy), (m, s)) in columns.zip(m[item].iter().zip(&s[item])) {
                            *sum += dy;
                            *product += dy * (x - m) * s;
                        }
                    },
                )
            };
            (0..view.items).map(of_item).collect()
        } else {
            Vec::new()
        };
        if wanted.weights {
            let at = self.weights_at();
            let (dw, db) = (io.accumulate(at), io.accumulate(at + 1));
            for sums in &sums {
                for (k, (dw, db)) in dw.iter_mut().zip(db.iter_mut()).enumerate() {
                    *db += sums[k] as f32;
                    *dw += sums[c + k] as f32;
                }
            }
        }
        if wanted.input {
            let mut means = vec![[0f32; 2]; view.all()];
            if wanted.flowing {
                for (item, sums) in sums.iter().enumerate() {
                    for (which, sums) in sums.chunks(c).enumerate() {
                        let weighted: Vec<f64> =
                            sums.iter().zip(weight).map(|(s, &w)| s * f64::from(w)).collect();
                        for (group, mean) in view.means(&weighted).enumerate() {
                            means[item * view.groups + group][which] = mean as f32;
                        }
                    }
                }
            }
            let (a, b): (Vec<f32>, Vec<f32>) = means.iter().map(|&[a, b]| (a, b)).unzip();
            let (a, b): (Vec<_>, Vec<_>) =
                (0..view.items).map(|item| (view.spread(item, &a), view.spread(item, &b))).unzip();
            vector::each_row(
                io.accumulate(0),
                c,
                #[inline(always)]
                |i, dx| {
                    let item = i / rows;
                    let columns = dx.iter_mut().zip(&x[i * c..]).zip(&dy[i * c..]).zip(weight);
                    let statistics = m[item].iter().zip(&s[item]).zip(a[item].iter().zip(&b[item]));
                    for ((((dx, x), dy), w), ((m, s), (a, b))) in columns.zip(statistics) {
                        *dx += s * (dy * w - a - (x - m) * s * b);
                    }
                },
            );
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (view, wanted) = (self.view, self.wanted);
        let (x, dy, mean, inverse) = (io.input(0), io.input(1), io.input(2), io.input(3));
        let weight = if wanted.affine { io.input(4) } else { 0 };
        let (space, means) = (io.output(self.space_at()), io.output(self.space_at() + 1));
        let (rows, c, groups) = (view.rows, view.channels, view.groups);
        if wanted.weights || wanted.flowing {
            let (name, launch) = view.pass("products", io.dtype(0));
            let args = args![space, x, dy, mean, inverse, rows, c, groups, view.across(), view.per()];
            io.launch(&name, launch, &args)?;
        }
        if wanted.weights {
            let at = self.weights_at();
            let count = view.items * view.parts();
            let args = args![io.output(at), io.base(at), io.output(at + 1), io.base(at + 1), space, c, count];
            io.launch("channel_norm_weights", Launch::line((2 * c).div_ceil(32), 256), &args)?;
        }
        if !wanted.input {
            return Ok(());
        }
        let (mut sums, mut products) = (0, 0);
        if wanted.flowing {
            (sums, products) = (means, means + 4 * view.all() as u64);
            let args = args![sums, products, space, weight, view.all(), groups, rows, c, view.parts()];
            io.launch("channel_norm_means", Launch::line(view.all().div_ceil(4), 128), &args)?;
        }
        let (name, launch) = view.pass("input", io.dtype(0));
        let args = args![
            io.output(0),
            io.base(0),
            x,
            dy,
            weight,
            mean,
            inverse,
            sums,
            products,
            rows,
            c,
            groups,
            view.across(),
            view.per()
        ];
        io.launch(&name, launch, &args)
    }
}

/// Adds the backward pass of a norm whose inputs are x, then weight and bias if it is affine, and whose first three
/// outputs are y, mean, inverse.
pub(super) fn backward(g: &mut Gradients<'_>, view: View, affine: bool, flowing: bool) {
    let weights = affine && (g.wants(1) || g.wants(2));
    assert!(
        !weights || (g.wants(1) && g.wants(2)),
        "weight and bias of a norm must both be trained or both be frozen"
    );
    let wanted = Wanted { input: g.wants(0), weights, affine, flowing };
    if !wanted.input && !weights {
        return;
    }
    let mut inputs: Vec<Value> = vec![g.input(0), g.result_gradient(), g.output(1), g.output(2)];
    let mut targets = Vec::new();
    if affine {
        inputs.push(g.input(1));
    }
    if wanted.input {
        targets.push(g.target(0));
    }
    if weights {
        targets.extend([g.target(1), g.target(2)]);
    }
    let space = [view.space(), Spec::constant([2 * view.all()], DType::F32)];
    g.push_with_workspace(Backward { view, wanted }, &inputs, &targets, &space);
}
