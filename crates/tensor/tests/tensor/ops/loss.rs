use crate::suite::{Build, Case};
use myxtts_tensor::Value;

/// Two values that differ everywhere by more than the finite-difference step.
fn apart(b: &mut Build<'_>) -> (Value, Value) {
    let shape = [b.size(1, 5), b.size(1, 100)];
    let x = b.random.normals(shape[0] * shape[1]);
    let y = x.iter().map(|x| x + (0.1 + b.random.uniform()) * b.random.normal().signum()).collect();
    (b.variable_of(shape, x), b.variable_of(shape, y))
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("l1_loss", |b| {
            let (x, y) = apart(b);
            vec![b.tape.l1_loss(x, y)]
        }),
        Case::new("mse_loss", |b| {
            let (x, y) = apart(b);
            let loss = b.tape.mse_loss(x, y);
            vec![loss, b.tape.l1_loss(y, x)]
        }),
        Case::new("mse_to_constant", |b| {
            let (x, y) = apart(b);
            let loss = b.tape.mse_to_constant(x, 1.0);
            vec![loss, b.tape.mse_to_constant(y, 0.0), b.tape.l1_loss(x, y)]
        }),
    ]
}
