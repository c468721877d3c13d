use crate::suite::Case;
use myxtts_tensor::ops::activation::Function;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("group_norm", |b| {
            let (groups, per) = (b.size(1, 5), b.size(1, 9));
            let (batch, time, c) = (b.size(1, 3), b.size(1, 40), groups * per);
            // At least two elements per group, otherwise the variance is zero.
            let time = if per == 1 { time + 3 } else { time };
            let (x, w, bias) = (b.variable([batch, time, c]), b.master([c]), b.master([c]));
            let y = b.tape.group_norm(x, groups, w, bias, 1e-5);
            // Used twice: gradients are accumulated.
            vec![y, b.tape.activation(x, Function::Tanh)]
        })
        .step(3e-3),
        Case::new("group_norm, many channels", |b| {
            let (batch, time) = (b.size(1, 2), b.size(10, 60));
            let (groups, c) = [(32, 1024), (32, 256), (8, 1160), (16, 64)][b.random.below(4)];
            let (x, w, bias) = (b.variable([batch, time, c]), b.master([c]), b.master([c]));
            vec![b.tape.group_norm(x, groups, w, bias, 1e-5)]
        })
        .step(3e-2),
        Case::new("group_norm, long, far from zero, before a product", |b| {
            let (time, c) = (b.size(500, 550), 8 * b.size(1, 3));
            let data = (0..time * c).map(|_| b.random.normal() + 5.0).collect();
            let x = b.variable_of([1, time, c], data);
            let (w, bias, m) = (b.master([c]), b.master([c]), b.weight([c, c]));
            let y = b.tape.group_norm(x, 4, w, bias, 1e-5);
            vec![b.tape.linear(y, m, None)]
        })
        .step(3e-2),
    ]
}
