use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("feed_forward", |b| {
            let (rows, c, h, n) = (b.size(1, 20), 8 * b.size(1, 3), 8 * b.size(1, 4), 8 * b.size(1, 3));
            let (x, w1, b1) = (b.variable([rows, c]), b.weight([h, c]), b.weight([h]));
            let (w2, b2, residual) = (b.weight([n, h]), b.weight([n]), b.variable([rows, n]));
            vec![b.tape.feed_forward(x, (w1, b1), (w2, b2), Some(residual))]
        })
        .step(3e-3),
        Case::new("feed_forward of odd sizes", |b| {
            let (rows, c, h) = (b.size(1, 9), b.size(1, 9), b.size(1, 9));
            let (x, w1, b1) = (b.variable([rows, c]), b.weight([h, c]), b.weight([h]));
            let (w2, b2) = (b.weight([c, h]), b.weight([c]));
            let y = b.tape.feed_forward(x, (w1, b1), (w2, b2), None);
            vec![y, x]
        })
        .step(3e-3),
    ]
}
