use crate::suite::Case;
use myxtts_tensor::ops::activation::Function;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("rms_norm", |b| {
            let (rows, c) = (b.size(1, 40), b.size(2, 70));
            let (x, w) = (b.variable([rows, c]), b.master([c]));
            vec![b.tape.rms_norm(x, w)]
        })
        .step(3e-3),
        Case::new("rms_norm, wide rows, before a product", |b| {
            let c = [64, 512, 1024, 2056][b.random.below(4)];
            let (x, w, m) = (b.variable([2, 3, c]), b.master([c]), b.weight([8, c]));
            let y = b.tape.rms_norm(x, w);
            vec![b.tape.linear(y, m, None)]
        }),
        Case::new("l2_normalize", |b| {
            let (rows, c) = (b.size(1, 20), b.size(2, 70));
            let x = b.variable([rows, c]);
            // Used twice: gradients are accumulated.
            vec![b.tape.l2_normalize(x), b.tape.activation(x, Function::Tanh)]
        })
        .step(3e-3),
        Case::new("l2_normalize, a row of zeros", |b| {
            let c = b.size(2, 70);
            let mut data = b.random.normals(2 * c);
            data[..c].fill(0.0);
            let x = b.variable_of([2, c], data);
            vec![b.tape.l2_normalize(x)]
        })
        // At zero the function jumps on the scale of any step.
        .not_smooth(),
    ]
}
