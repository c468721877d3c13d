use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("matmul", (false, false)),
        ("matmul, first transposed", (true, false)),
        ("matmul, second transposed", (false, true)),
        ("matmul, both transposed", (true, true)),
    ]
    .into_iter()
    .map(|(name, transposed)| {
        Case::new(name, move |b| {
            // Odd sizes, and every other time sizes suited to tensor cores.
            let unit = [1, 8][b.random.below(2)];
            let [m, k, p] = [b.size(1, 9) * unit, b.size(1, 9) * unit, b.size(1, 9) * unit];
            let n = b.size(1, 4);
            let left = if transposed.0 { [n, k, m] } else { [n, m, k] };
            let right = if transposed.1 { [n, p, k] } else { [n, k, p] };
            let (x, y) = (b.variable(left), b.variable(right));
            vec![b.tape.matmul(x, y, transposed)]
        })
    })
    .collect();
    cases.push(Case::new("matmul by itself, then by a weight", |b| {
        let (n, m, k) = (b.size(1, 3), b.size(1, 7), b.size(1, 7));
        let (x, w) = (b.variable([n, m, k]), b.weight([n, m, k]));
        let square = b.tape.matmul(x, x, (false, true));
        vec![b.tape.matmul(square, w, (true, false))]
    }));
    cases
}
