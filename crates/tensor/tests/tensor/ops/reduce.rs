use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("sum and mean", |b| {
            let shape = [b.size(1, 5), b.size(1, 400)];
            let x = b.variable(shape);
            let sum = b.tape.sum(x);
            vec![sum, b.tape.mean(x)]
        }),
        // More than one block in the first pass.
        Case::new("sum of many elements", |b| {
            let n = b.size(20_000, 40_000);
            let x = b.variable([n]);
            vec![b.tape.sum(x)]
        })
        .rounds(2)
        .step(0.1),
    ]
}
