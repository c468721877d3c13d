use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("add, subtract, multiply", |b| {
            let shape = [b.size(1, 5), b.size(1, 40)];
            let (x, y) = (b.variable(shape), b.variable(shape));
            let sum = b.tape.add(x, y);
            let product = b.tape.multiply(x, y);
            let apart = b.tape.subtract(sum, product);
            vec![apart, b.tape.multiply(x, x), b.tape.add(y, y), b.tape.subtract(x, y)]
        })
        .step(5e-3),
        Case::new("arithmetic of weights", |b| {
            let n = b.size(1, 40);
            let (x, y) = (b.master([n]), b.master([n]));
            let product = b.tape.multiply(x, y);
            vec![b.tape.affine(product, -0.5, 2.0)]
        }),
        Case::new("scale and affine", |b| {
            let shape = [b.size(1, 5), b.size(1, 40)];
            let x = b.variable(shape);
            let y = b.tape.scale(x, -2.5);
            vec![y, b.tape.affine(x, 1.0, 0.75)]
        }),
        Case::new("multiply_per_item", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(1, 20), 8 * b.size(1, 9));
            let (x, y) = (b.variable([batch, time, c]), b.variable([batch, c]));
            let z = b.tape.multiply_per_item(x, y);
            // Both are used again: gradients are accumulated.
            vec![b.tape.multiply_per_item(z, y), b.tape.multiply_per_item(x, y)]
        })
        .step(5e-3),
        // Long enough for several partial sums, with channels that end within a block.
        Case::new("multiply_per_item, long", |b| {
            let (time, c) = (b.size(130, 400), b.size(60, 70));
            let (x, y) = (b.variable([2, time, c]), b.variable([2, c]));
            vec![b.tape.multiply_per_item(x, y)]
        }),
        Case::new("weighted_sum", |b| {
            let scalars: Vec<_> =
                (0..b.size(1, 11)).map(|i| (b.master([1]), 1.0 - 0.25 * i as f32)).collect();
            let sum = b.tape.weighted_sum(&scalars);
            vec![sum, b.tape.weighted_sum(&[(sum, 3.0), (scalars[0].0, 1.0)])]
        }),
    ]
}
