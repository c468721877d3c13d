use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("weight_norm", |b| {
            let (rows, taps, c) = (b.size(1, 20), b.size(1, 7), b.size(2, 30));
            let (v, g) = (b.master([rows, taps, c]), b.master([rows]));
            vec![b.tape.weight_norm(v, g)]
        })
        .step(3e-3),
        Case::new("weight_norm of a product's weight, used twice", |b| {
            let (rows, n, k) = (b.size(1, 10), b.size(1, 9), [4, 12, 200, 1500][b.random.below(4)]);
            let (x, v, g) = (b.variable([rows, k]), b.master([n, k]), b.master([n]));
            let (w, again) = (b.tape.weight_norm(v, g), b.tape.weight_norm(v, g));
            vec![b.tape.linear(x, w, None), again]
        }),
    ]
}
