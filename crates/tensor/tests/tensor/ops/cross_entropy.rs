use crate::suite::{Build, Case};
use myxtts_tensor::*;
use std::sync::Arc;

/// About every fourth row is not counted.
fn targets(b: &mut Build<'_>, rows: usize, n: usize) -> Value {
    let data = (0..rows).map(|_| if b.random.below(4) == 0 { -100 } else { b.random.below(n) as i32 });
    let data = data.collect();
    b.integers([rows], data)
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("cross_entropy", |b| {
            let (rows, n) = (b.size(1, 20), b.size(1, 50));
            let logits = b.variable([rows, n]);
            let targets = targets(b, rows, n);
            vec![b.tape.cross_entropy(logits, targets, 0.0).loss]
        }),
        Case::new("cross_entropy, smoothed, twice", |b| {
            let (batch, time, n) = (b.size(1, 3), b.size(1, 8), 8 * b.size(1, 20));
            let logits = b.variable([batch, time, n]);
            let (one, two) = (targets(b, batch * time, n), targets(b, batch * time, n));
            // Used twice, so that gradients are accumulated.
            vec![b.tape.cross_entropy(logits, one, 0.1).loss, b.tape.cross_entropy(logits, two, 0.0).loss]
        }),
        // With few distinct logits many are equal: the first of the largest is the prediction on every device.
        Case::new("cross_entropy, equal logits", |b| {
            let (rows, n) = (b.size(20, 60), [2, 7, 33, 260][b.random.below(4)]);
            let data = (0..rows * n).map(|_| b.random.below(3) as f32).collect();
            let logits = b.variable_of([rows, n], data);
            let targets = targets(b, rows, n);
            let found = b.tape.cross_entropy(logits, targets, 0.0);
            vec![found.loss, found.correct, found.count, found.rows]
        })
        .not_smooth(),
        // Rows with every alignment, and more of them than threads.
        Case::new("cross_entropy, many classes", |b| {
            let n = [1026, 1027, 7001, 32771][b.random.below(4)];
            let data = b.random.normals(9 * n).into_iter().map(|x| 4.0 * x).collect();
            let logits = b.variable_of([9, n], data);
            let targets = targets(b, 9, n);
            let found = b.tape.cross_entropy(logits, targets, 0.05);
            vec![found.loss, found.correct, found.rows]
        })
        .not_smooth(),
        Case::new("cross_entropy, no row counts", |b| {
            let logits = b.variable([3, 5]);
            let targets = b.integers([3], vec![-1; 3]);
            let found = b.tape.cross_entropy(logits, targets, 0.0);
            vec![found.loss, found.correct, found.count]
        }),
    ]
}

fn run(targets: &[i32], classes: usize, logits: &[f32]) -> Result<(f32, f32, f32), Error> {
    let layout = Arc::new(Layout::empty());
    let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
    let (x, t) = (tape.variable([targets.len(), classes]), tape.input([targets.len()], DType::I32));
    let found = tape.cross_entropy(x, t, 0.0);
    [found.loss, found.correct, found.count].into_iter().for_each(|v| tape.keep(v));
    let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, EngineOptions::default())?;
    let mut program = engine.load(tape)?;
    engine.write(&program, x, logits)?;
    engine.write_i32(&program, t, targets)?;
    engine.run(&mut program, &Control::default())?;
    let one = |v| Ok::<f32, Error>(engine.read(&program, v)?[0]);
    Ok((one(found.loss)?, one(found.correct)?, one(found.count)?))
}

#[test]
fn cross_entropy_has_known_values() {
    // ln(1 + e) for the first row; the second is ignored; the third's largest logit appears first elsewhere.
    let (loss, correct, count) =
        run(&[1, -1, 2], 3, &[0.0, 1.0, f32::NEG_INFINITY, 5.0, 5.0, 5.0, 2.0, 2.0, 2.0]).unwrap();
    let expected = ((1f32 + (-1f32).exp()).ln() + 3f32.ln()) / 2.0;
    assert!((loss - expected).abs() < 1e-6, "{loss} is not {expected}");
    assert_eq!((correct, count), (1.0, 2.0));
}

#[test]
fn a_batch_without_counted_rows_has_zero_loss() {
    assert_eq!(run(&[-1, -5], 2, &[1.0, 2.0, 3.0, 4.0]).unwrap(), (0.0, 0.0, 0.0));
}

#[test]
fn an_out_of_range_target_is_named() {
    let error = run(&[3], 3, &[0.0; 3]).unwrap_err().to_string();
    assert!(error.contains("target 3 ") && error.contains("3 classes"), "{error}");
}
