use super::conv1d::away_from_zero;
use crate::suite::Case;
use myxtts_tensor::ops::conv1d::Fused;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("conv_transpose1d, any shape", |b| {
            let (taps, stride) = (b.size(1, 7), b.size(1, 4));
            let (cin, cout, time) = (b.size(1, 9), b.size(1, 9), b.size(4, 20));
            let padding = b.size(0, taps / 2);
            let (x, w, bias) = (b.variable([2, time, cin]), b.weight([cin, taps, cout]), b.master([cout]));
            vec![b.tape.conv_transpose1d(x, w, Some(bias), stride, padding)]
        })
        .rounds(10),
        Case::new("conv_transpose1d of a vocoder", |b| {
            let (taps, stride) = [(16, 8), (4, 2)][b.random.below(2)];
            let (cin, cout) = (8 * b.size(1, 5), 8 * b.size(1, 5));
            let (batch, time) = (b.size(1, 3), b.size(1, 20));
            let (x, w) = (away_from_zero(b, [batch, time, cin]), b.weight([cin, taps, cout]));
            let fused = Fused {
                bias: Some(b.master([cout])),
                per_item: Some(b.variable([batch, cout])),
                input_slope: Some(0.1),
                input_scale: 1.0 / 3.0,
                ..Fused::default()
            };
            vec![b.tape.conv_transpose1d_fused(x, w, fused, stride, (taps - stride) / 2)]
        })
        .rounds(8),
        Case::new("conv_transpose1d, residual", |b| {
            let (taps, stride, c) = (b.size(2, 6), b.size(1, 3), 8 * b.size(1, 3));
            let time = b.size(4, 20);
            let (x, w) = (b.variable([2, time, c]), b.weight([c, taps, c]));
            let grown = (time - 1) * stride + taps - 2;
            let fused = Fused {
                residual: Some(b.variable([2, grown, c])),
                plus: Some(b.variable([2, grown, c])),
                ..Fused::default()
            };
            vec![b.tape.conv_transpose1d_fused(x, w, fused, stride, 1)]
        }),
        Case::new("conv_transpose1d in pieces", |b| {
            let (x, w) = (b.variable([1, 90_000, 8]), b.weight([8, 32, 20]));
            vec![b.tape.conv_transpose1d(x, w, None, 2, 3)]
        })
        .not_smooth()
        .rounds(1),
    ]
}
