use crate::suite::{Build, Case};
use myxtts_tensor::*;
use std::sync::Arc;

/// x, weight and bias, running mean and variance.
fn inputs(b: &mut Build<'_>, shape: &[usize]) -> (Value, (Value, Value), (Value, Value)) {
    let c = shape[shape.len() - 1];
    let (x, weight, bias) = (b.variable(shape), b.master([c]), b.master([c]));
    let mean = b.random.normals(c);
    let variance = (0..c).map(|_| 0.5 + b.random.uniform()).collect();
    (x, (weight, bias), (b.constant([c], mean), b.constant([c], variance)))
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("batch_norm", |b| {
            let shape = [b.size(1, 3), b.size(2, 40), b.size(1, 70)];
            let (x, affine, running) = inputs(b, &shape);
            vec![b.tape.batch_norm_with(x, affine, running, 0.1, 1e-5).y]
        })
        .step(3e-3),
        Case::new("batch_norm, many rows, before a product", |b| {
            let c = 8 * b.size(1, 3);
            let shape = [2, 5, b.size(100, 300), c];
            let (x, affine, running) = inputs(b, &shape);
            let m = b.weight([4, c]);
            let y = b.tape.batch_norm_with(x, affine, running, 0.1, 1e-5).y;
            vec![b.tape.linear(y, m, None)]
        })
        .step(3e-2),
        // The running statistics are constants for the gradient, but not for finite differences of the loss.
        Case::new("batch_norm, its running statistics", |b| {
            let shape = [b.size(1, 50), b.size(1, 40)];
            let (x, affine, running) = inputs(b, &shape);
            let normed = b.tape.batch_norm_with(x, affine, running, 0.1, 1e-5);
            vec![normed.y, normed.mean, normed.variance]
        })
        .not_smooth(),
        Case::new("batch_norm_running", |b| {
            let shape = [b.size(1, 3), b.size(1, 40), b.size(1, 70)];
            let (x, affine, running) = inputs(b, &shape);
            vec![b.tape.batch_norm_running(x, affine, running, 1e-5)]
        })
        .step(3e-3),
    ]
}

#[test]
fn running_statistics_move_towards_the_samples() {
    let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
    let (x, one, zero) =
        (tape.input([4, 1], DType::F32), tape.input([1], DType::F32), tape.input([1], DType::F32));
    let normed = tape.batch_norm_with(x, (one, zero), (zero, one), 0.25, 0.0);
    for value in [normed.y, normed.mean, normed.variance] {
        tape.keep(value);
    }
    let mut engine =
        Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default())
            .unwrap();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, x, &[1.0, 3.0, 5.0, 7.0]).unwrap();
    engine.write(&program, one, &[1.0]).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    // Mean 4; variance 5 over n, 20 / 3 over n - 1.
    assert_eq!(engine.read(&program, normed.mean).unwrap(), [1.0]);
    let variance = engine.read(&program, normed.variance).unwrap()[0];
    assert!((variance - (0.75 + 0.25 * 20.0 / 3.0)).abs() < 1e-6, "{variance}");
    let y = engine.read(&program, normed.y).unwrap();
    assert!((y[0] + 3.0 / 5f32.sqrt()).abs() < 1e-6, "{y:?}");
}
