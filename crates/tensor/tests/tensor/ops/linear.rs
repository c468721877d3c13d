use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("linear", |b| {
            let (rows, k, n) = (b.size(1, 30), b.size(1, 40), b.size(1, 40));
            let (x, w) = (b.variable([rows, k]), b.weight([n, k]));
            vec![b.tape.linear(x, w, None)]
        }),
        Case::new("linear with bias and residual", |b| {
            let (batch, time, k, n) = (b.size(1, 3), b.size(1, 20), 8 * b.size(1, 5), 8 * b.size(1, 5));
            let (x, w, bias) = (b.variable([batch, time, k]), b.weight([n, k]), b.weight([n]));
            let residual = b.variable([batch, time, n]);
            let y = b.tape.linear_add(x, w, Some(bias), Some(residual));
            vec![y]
        }),
        Case::new("linear twice by one weight", |b| {
            let (rows, k) = (b.size(2, 20), 8 * b.size(1, 4));
            let (x, w) = (b.variable([rows, k]), b.weight([k, k]));
            let y = b.tape.linear(x, w, None);
            vec![b.tape.linear_add(y, w, None, Some(x))]
        }),
    ]
}
