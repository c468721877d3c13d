//! Shared code of group and batch norm: statistics over the rows of groups of channels, and their
//! gradients. x is viewed as `[item, row, channel]`; a group's statistics cover all rows of an item.

use crate::args;
use crate::cpu::{row_sums, vector};
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec};

const THREADS: usize = 128;

/// Maximum number of partial sums over the rows of an item.
const PARTS: usize = 256;

/// x as items, rows and channels, with the channels split into groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub items: usize,
    pub rows: usize,
    pub channels: usize,
    pub groups: usize,
}

impl View {
    /// Number of means (and of variances): one per item and group.
    pub fn statistics(self) -> usize {
        self.items * self.groups
    }

    fn channels_per_group(self) -> usize {
        self.channels / self.groups
    }

    /// Elements of a row per thread and load.
    fn vector_width(self) -> usize {
        if self.channels.is_multiple_of(8) { 8 } else { 1 }
    }

    /// Threads of a block along a row; the remaining threads process further rows.
    fn threads_per_row(self) -> usize {
        (self.channels / self.vector_width()).next_power_of_two().min(THREADS)
    }

    /// Rows per partial sum.
    fn rows_per_part(self) -> usize {
        let down = THREADS / self.threads_per_row();
        self.rows.div_ceil(PARTS).max(16 * down)
    }

    fn parts(self) -> usize {
        self.rows.div_ceil(self.rows_per_part()).max(1)
    }

    /// Workspace for all partial sums.
    pub fn workspace(self) -> Spec {
        Spec::constant([self.items * self.parts() * 2 * self.channels], DType::F32)
    }

    /// The kernel of that name for this element type, and the launch of a pass over x.
    fn pass(self, name: &str, dtype: DType) -> (String, Launch) {
        let odd = if self.vector_width() == 1 { "odd_" } else { "" };
        let wide = self.channels.div_ceil(self.vector_width() * self.threads_per_row());
        let launch = Launch::grid(wide, self.parts(), self.items, THREADS as u32);
        (format!("channel_norm_{name}_{odd}{}", float(dtype).suffix()), launch)
    }

    /// Expands one value per group to one per channel.
    fn per_channel(self, item: usize, values: &[f32]) -> Vec<f32> {
        let of = &values[item * self.groups..(item + 1) * self.groups];
        of.iter().flat_map(|&v| std::iter::repeat_n(v, self.channels_per_group())).collect()
    }

    /// Per-channel sums of one item as the mean over each group's elements.
    fn group_means(self, sums: &[f64]) -> impl Iterator<Item = f64> {
        let n = (self.rows * self.channels_per_group()) as f64;
        sums.chunks(self.channels_per_group()).map(move |group| group.iter().sum::<f64>() / n)
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
        for (mean, m) in mean[item * view.groups..].iter_mut().zip(view.group_means(&sums)) {
            *mean = m as f32;
        }
        let m = view.per_channel(item, mean);
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
        for (variance, v) in variance[item * view.groups..].iter_mut().zip(view.group_means(&squares)) {
            *variance = v as f32;
        }
    }
}

/// `(x - mean) * inverse * weight + bias`, on the CPU.
pub(super) fn apply(
    view: View,
    x: &[f32],
    (mean, inverse): (&[f32], &[f32]),
    (weight, bias): (&[f32], &[f32]),
    y: &mut [f32],
) {
    let c = view.channels;
    let spread: Vec<(Vec<f32>, Vec<f32>)> = (0..view.items)
        .map(|item| {
            let mut scale = view.per_channel(item, inverse);
            scale.iter_mut().zip(weight).for_each(|(s, w)| *s *= w);
            (view.per_channel(item, mean), scale)
        })
        .collect();
    vector::each_row(
        y,
        c,
        #[inline(always)]
        |i, y| {
            let (mean, scale) = &spread[i / view.rows];
            for ((((y, x), m), s), b) in y.iter_mut().zip(&x[i * c..]).zip(mean).zip(scale).zip(bias) {
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
    let args =
        args![space, io.input(0), view.rows, view.channels, view.threads_per_row(), view.rows_per_part()];
    io.launch(&name, launch, &args)?;
    let (next, old, momentum) = running.unwrap_or_default();
    let args = args![
        mean,
        inverse,
        space,
        view.statistics(),
        view.groups,
        view.rows,
        view.channels,
        view.rows_per_part(),
        view.parts(),
        epsilon,
        next[0],
        next[1],
        old[0],
        old[1],
        momentum
    ];
    io.launch("channel_norm_statistics", Launch::line(view.statistics().div_ceil(4), 128), &args)
}

/// Queues `y`, from the addresses of weight, bias, mean, inverse.
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
        view.threads_per_row(),
        view.rows_per_part()
    ];
    io.launch(&name, launch, &args)
}

/// Recomputes `y`. Inputs: x, mean, inverse, weight, bias.
#[derive(Debug)]
pub(super) struct Reapply(pub View);

impl Op for Reapply {
    fn name(&self) -> &'static str {
        "channel_norm_again"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, statistics, affine) = (io.f32(0), (io.f32(1), io.f32(2)), (io.f32(3), io.f32(4)));
        apply(self.0, x, statistics, affine, io.take(0));
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        queue_apply(io, self.0, [io.input(3), io.input(4), io.input(1), io.input(2)])
    }
}

/// Inputs and outputs of a norm's backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub input: bool,
    pub weights: bool,
    /// Whether the statistics came from x, so that gradients flow through them.
    pub through_statistics: bool,
}

/// Inputs: x, dy, mean, inverse, weight. Outputs: dx if wanted, dweight and dbias if wanted,
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
        let (x, dy, mean, inverse, weight) = (io.f32(0), io.f32(1), io.f32(2), io.f32(3), io.f32(4));
        let (m, s): (Vec<_>, Vec<_>) = (0..view.items)
            .map(|item| (view.per_channel(item, mean), view.per_channel(item, inverse)))
            .unzip();
        // Per channel of every item: Σ dy and Σ dy h.
        let sums: Vec<Vec<f64>> = if wanted.weights || wanted.through_statistics {
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
            let mut means = vec![[0f32; 2]; view.statistics()];
            if wanted.through_statistics {
                for (item, sums) in sums.iter().enumerate() {
                    for (which, sums) in sums.chunks(c).enumerate() {
                        let weighted: Vec<f64> =
                            sums.iter().zip(weight).map(|(s, &w)| s * f64::from(w)).collect();
                        for (group, mean) in view.group_means(&weighted).enumerate() {
                            means[item * view.groups + group][which] = mean as f32;
                        }
                    }
                }
            }
            let (a, b): (Vec<f32>, Vec<f32>) = means.iter().map(|&[a, b]| (a, b)).unzip();
            let (a, b): (Vec<_>, Vec<_>) =
                (0..view.items).map(|item| (view.per_channel(item, &a), view.per_channel(item, &b))).unzip();
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
        let [x, dy, mean, inverse, weight] = [0, 1, 2, 3, 4].map(|which| io.input(which));
        let (space, means) = (io.output(self.space_at()), io.output(self.space_at() + 1));
        let (rows, c, groups) = (view.rows, view.channels, view.groups);
        if wanted.weights || wanted.through_statistics {
            let (name, launch) = view.pass("products", io.dtype(0));
            let args = args![
                space,
                x,
                dy,
                mean,
                inverse,
                rows,
                c,
                groups,
                view.threads_per_row(),
                view.rows_per_part()
            ];
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
        if wanted.through_statistics {
            (sums, products) = (means, means + 4 * view.statistics() as u64);
            let args = args![sums, products, space, weight, view.statistics(), groups, rows, c, view.parts()];
            io.launch("channel_norm_means", Launch::line(view.statistics().div_ceil(4), 128), &args)?;
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
            view.threads_per_row(),
            view.rows_per_part()
        ];
        io.launch(&name, launch, &args)
    }
}

/// Adds the backward pass of a norm whose inputs are x, weight and bias, and whose first three outputs are y, mean,
/// inverse.
pub(super) fn backward(g: &mut Gradients<'_>, view: View, through_statistics: bool) {
    let weights = g.wants(1) || g.wants(2);
    assert!(
        !weights || (g.wants(1) && g.wants(2)),
        "weight and bias of a norm must both be trained or both be frozen"
    );
    let wanted = Wanted { input: g.wants(0), weights, through_statistics };
    if !wanted.input && !weights {
        return;
    }
    let inputs = [g.input(0), g.result_gradient(), g.output(1), g.output(2), g.input(1)];
    let mut targets = Vec::new();
    if wanted.input {
        targets.push(g.target(0));
    }
    if weights {
        targets.extend([g.target(1), g.target(2)]);
    }
    let space = [view.workspace(), Spec::constant([2 * view.statistics()], DType::F32)];
    g.push_with_workspace(Backward { view, wanted }, &inputs, &targets, &space);
}
