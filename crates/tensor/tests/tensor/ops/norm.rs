use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("layer_norm", |b| {
            let (rows, c) = (b.size(1, 40), b.size(2, 70));
            let (x, w, bias) = (b.variable([rows, c]), b.master([c]), b.master([c]));
            vec![b.tape.layer_norm(x, w, bias, 1e-5)]
        })
        .step(3e-3),
        Case::new("layer_norm before a product", |b| {
            let (rows, c) = (b.size(2, 10), 8 * b.size(1, 4));
            let (x, w, bias, m) = (b.variable([rows, c]), b.master([c]), b.master([c]), b.weight([c, c]));
            let y = b.tape.layer_norm(x, w, bias, 1e-5);
            vec![b.tape.linear(y, m, None)]
        })
        .step(3e-3),
        Case::new("layer_norm, wide rows", |b| {
            let c = [256, 1024, 2056, 4104][b.random.below(4)];
            let (x, w, bias) = (b.variable([3, c]), b.master([c]), b.master([c]));
            vec![b.tape.layer_norm(x, w, bias, 1e-5)]
        }),
    ]
}
