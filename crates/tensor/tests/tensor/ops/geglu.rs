use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("geglu", |b| {
            let (batch, time, n) = (b.size(1, 3), b.size(1, 10), b.size(1, 30));
            let x = b.variable([batch, time, 2 * n]);
            vec![b.tape.geglu(x)]
        })
        .step(5e-3),
        Case::new("geglu before a product", |b| {
            let (rows, n) = (b.size(2, 10), 8 * b.size(1, 4));
            let (x, w) = (b.variable([rows, 2 * n]), b.weight([2 * n, n]));
            let y = b.tape.geglu(x);
            let y = b.tape.linear_add(y, w, None, Some(x));
            vec![y]
        })
        .step(5e-3),
        Case::new("geglu, aligned, twice", |b| {
            let (rows, n) = (b.size(2, 10), 8 * b.size(1, 4));
            let x = b.variable([rows, 4 * n]);
            let y = b.tape.geglu(x);
            vec![b.tape.geglu(x), b.tape.geglu(y)]
        })
        .step(5e-3),
    ]
}
