use crate::suite::{Build, Case};
use myxtts_tensor::Value;
use myxtts_tensor::ops::conv1d::{Conv1d, Fused};

/// Away from zero, where leaky ReLU has no derivative.
pub fn away_from_zero(b: &mut Build<'_>, shape: [usize; 3]) -> Value {
    let n = shape.iter().product();
    let data = (0..n).map(|_| b.random.normal()).map(|x| x + 0.05f32.copysign(x)).collect();
    b.variable_of(shape, data)
}

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("conv1d, any shape", |b| {
            let (taps, dilation, stride) = (b.size(1, 5), b.size(1, 3), b.size(1, 3));
            let (cin, cout, padding) = (b.size(1, 9), b.size(1, 9), b.size(0, 4));
            let time = b.size(dilation * (taps - 1) + 1, 40);
            let (x, w) = (b.variable([2, time, cin]), b.weight([cout, taps, cin]));
            let bias = b.master([cout]);
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d { stride, padding, dilation, groups: 1 })]
        })
        .rounds(12),
        Case::new("conv1d, groups", |b| {
            let (taps, groups, stride) = (b.size(1, 7), b.size(2, 4), b.size(1, 4));
            let (cin, cout) = (groups * b.size(1, 8), groups * b.size(1, 5));
            let padding = taps / 2;
            let x = b.variable([3, 37, cin]);
            let (w, bias) = (b.weight([cout, taps, cin / groups]), b.master([cout]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d { stride, padding, groups, dilation: 1 })]
        })
        .rounds(6),
        Case::new("conv1d, one tap", |b| {
            let (cin, cout) = (8 * b.size(1, 5), 8 * b.size(1, 5));
            let (x, w, bias) = (b.variable([2, 19, cin]), b.weight([cout, 1, cin]), b.master([cout]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d::default())]
        }),
        Case::new("conv1d, strides", |b| {
            let (taps, stride) = [(3, 2), (16, 8), (5, 3), (4, 4), (2, 3), (41, 4)][b.random.below(6)];
            let (cin, cout) = (8 * b.size(1, 5), 8 * b.size(1, 5));
            let (padding, time) = (b.size(0, taps / 2), b.size(45, 90));
            let (x, w, bias) = (b.variable([2, time, cin]), b.weight([cout, taps, cin]), b.master([cout]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d { stride, padding, ..Conv1d::default() })]
        })
        .rounds(8),
        Case::new("conv1d, wide", |b| {
            let (taps, stride) = [(3, 1), (7, 1), (4, 2), (5, 1)][b.random.below(4)];
            let (cin, cout) = ([64, 72, 136, 264][b.random.below(4)], [64, 72, 136, 264][b.random.below(4)]);
            let (x, w, bias) = (b.variable([2, 90, cin]), b.weight([cout, taps, cin]), b.master([cout]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d { stride, padding: taps / 2, ..Conv1d::default() })]
        })
        // Linear in each input, with large sums: a large step drowns their rounding.
        .step(0.3)
        .rounds(6),
        // On a CPU, several items share a product, and the products are split over the cores.
        Case::new("conv1d, many short items", |b| {
            let (dilation, stride) = [(1, 1), (3, 1), (1, 2)][b.random.below(3)];
            let (cin, cout) = ([64, 72][b.random.below(2)], [64, 80][b.random.below(2)]);
            let (x, w, bias) = (b.variable([90, 30, cin]), b.weight([cout, 3, cin]), b.master([cout]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d { stride, padding: dilation, dilation, groups: 1 })]
        })
        .step(0.3)
        .rounds(3),
        Case::new("conv1d, a waveform out", |b| {
            let (cin, taps) = (8 * b.size(1, 4), 7);
            let (x, w) = (away_from_zero(b, [2, 150, cin]), b.weight([1, taps, cin]));
            let fused = Fused { input_slope: Some(0.01), input_scale: 1.0 / 3.0, ..Fused::default() };
            vec![b.tape.conv1d_fused(x, w, fused, Conv1d::same(taps, 1))]
        }),
        Case::new("conv1d, a waveform in", |b| {
            let (cout, taps) = (8 * b.size(1, 4), 15);
            let (x, w, bias) = (b.variable([2, 150, 1]), b.weight([cout, taps, 1]), b.master([cout]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d::same(taps, 1))]
        }),
        Case::new("conv1d in pieces", |b| {
            let (x, w, bias) = (b.variable([2, 60_000, 16]), b.weight([8, 41, 4]), b.master([8]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d { groups: 4, padding: 20, ..Conv1d::default() })]
        })
        .not_smooth()
        .rounds(1),
        Case::new("conv1d, long", |b| {
            let (x, w, bias) = (b.variable([3, 40_000, 8]), b.weight([16, 7, 8]), b.master([16]));
            vec![b.tape.conv1d(x, w, Some(bias), Conv1d::same(7, 3))]
        })
        .not_smooth()
        .rounds(1),
        Case::new("a residual block", |b| {
            let (c, taps) = (8 * b.size(1, 4), [3, 7, 11][b.random.below(3)]);
            let (x, more) = (away_from_zero(b, [2, 60, c]), b.variable([2, 60, c]));
            let (wa, wb) = (b.weight([c, taps, c]), b.weight([c, taps, c]));
            let (ba, bb) = (b.master([c]), b.master([c]));
            let open = Fused { bias: Some(ba), input_slope: Some(0.1), ..Fused::default() };
            let inner = b.tape.conv1d_fused(x, wa, open, Conv1d::same(taps, 5));
            let close = Fused { bias: Some(bb), residual: Some(x), plus: Some(more), ..Fused::default() };
            vec![b.tape.conv1d_fused(inner, wb, close, Conv1d::same(taps, 1))]
        }),
        Case::new("conv1d twice by one weight", |b| {
            let c = 8 * b.size(1, 4);
            let (x, w, bias) = (away_from_zero(b, [2, 30, c]), b.weight([c, 3, c]), b.master([c]));
            let y = b.tape.conv1d(x, w, Some(bias), Conv1d::same(3, 1));
            let fused = Fused { bias: Some(bias), residual: Some(x), ..Fused::default() };
            let fused = Fused { input_scale: 0.5, ..fused };
            vec![b.tape.conv1d_fused(y, w, fused, Conv1d::same(3, 2))]
        }),
    ];
    for (name, channels) in [("conv1d_fused", 8), ("conv1d_fused, odd channels", 1)] {
        cases.push(
            Case::new(name, move |b| {
                let (taps, dilation) = ([1, 3, 7, 11][b.random.below(4)], [1, 3, 5][b.random.below(3)]);
                let (cin, cout) = (channels * b.size(1, 6), channels * b.size(1, 6));
                let (batch, time) = (b.size(1, 3), b.size(1, 70));
                let (x, w) = (away_from_zero(b, [batch, time, cin]), b.weight([cout, taps, cin]));
                let which = b.size(0, 15);
                let mut there = |bit: usize, make: &mut dyn FnMut(&mut Build<'_>) -> Value| {
                    (which & bit != 0).then(|| make(b))
                };
                let fused = Fused {
                    bias: there(1, &mut |b| b.master([cout])),
                    per_item: there(2, &mut |b| b.variable([batch, cout])),
                    residual: there(4, &mut |b| b.variable([batch, time, cout])),
                    plus: there(8, &mut |b| b.variable([batch, time, cout])),
                    input_slope: Some(0.1),
                    input_scale: 0.5,
                };
                vec![b.tape.conv1d_fused(x, w, fused, Conv1d::same(taps, dilation))]
            })
            .rounds(10),
        );
    }
    cases
}
