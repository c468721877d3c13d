use crate::suite::Case;
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::*;
use std::sync::Arc;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("dropout", |b| {
            let shape = [b.size(1, 5), b.size(1, 700)];
            let x = b.variable(shape);
            let y = b.tape.dropout(x, 0.3);
            // Another stream has another mask.
            vec![y, b.tape.dropout(x, 0.5), b.tape.dropout(x, 0.0)]
        }),
        Case::new("dropout_add", |b| {
            let shape = [b.size(1, 5), b.size(1, 700)];
            let [x, residual] = [b.variable(shape), b.variable(shape)];
            let y = b.tape.dropout_add(x, residual, 0.3);
            // As between two transformer blocks: the residual is read twice.
            let z = b.tape.dropout_add(y, y, 0.2);
            vec![y, z, b.tape.dropout_add(x, z, 0.0)]
        }),
        Case::new("dropout, of a slice of a batch", |b| {
            b.tape.set_replica(2, 3);
            let shape = [b.size(1, 5), b.size(1, 700)];
            let x = b.variable(shape);
            vec![b.tape.dropout(x, 0.4)]
        }),
        // What is recomputed must equal what was computed, including the mask.
        Case::new("dropout, computed again", |b| {
            let shape = [b.size(1, 5), b.size(1, 100)];
            let x = b.variable(shape);
            let y = b.tape.checkpoint(|tape| {
                let y = tape.dropout(x, 0.4);
                let y = tape.activation(y, Function::Silu);
                tape.activation(y, Function::Tanh)
            });
            vec![y]
        })
        .step(5e-3),
    ]
}

fn dropped(seed: u64, p: f32, n: usize) -> [Vec<f32>; 2] {
    let layout = Arc::new(Layout::empty());
    let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
    let x = tape.variable([n]);
    let both = [tape.dropout(x, p), tape.dropout(x, p)];
    both.into_iter().for_each(|y| tape.keep(y));
    let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, EngineOptions::default()).unwrap();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, x, &vec![1.0; n]).unwrap();
    engine.run(&mut program, &Control { seed, ..Control::default() }).unwrap();
    both.map(|y| engine.read(&program, y).unwrap())
}

#[test]
fn dropout_drops_the_given_fraction_and_keeps_the_mean() {
    let n = 100_000;
    let [y, other] = dropped(5, 0.1, n);
    let kept = y.iter().filter(|&&y| y != 0.0).count();
    assert!((kept as f64 / n as f64 - 0.9).abs() < 4e-3, "{kept} of {n} were kept");
    assert!(y.iter().all(|&y| y == 0.0 || (y - 1.0 / 0.9).abs() < 1e-6));
    let both = y.iter().zip(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count();
    assert!((both as f64 / n as f64 - 0.01).abs() < 2e-3, "two streams drop {both} of {n} together");
}

#[test]
fn replicas_drop_what_one_device_drops_in_the_whole_batch() {
    let (rows, channels, layout) = (6, 24, Arc::new(Layout::empty()));
    let dropped = |replica: u32, of: u32| {
        let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
        tape.set_replica(replica, of);
        let n = rows / of as usize * channels;
        let x = tape.variable([n / channels, channels]);
        let y = tape.dropout(x, 0.5);
        let y = tape.dropout(y, 0.1);
        tape.keep(y);
        let options = EngineOptions::default();
        let mut engine = Engine::new(Device::Cpu, Arc::clone(&layout), Precision::F32, options).unwrap();
        let mut program = engine.load(tape).unwrap();
        engine.write(&program, x, &vec![1.0; n]).unwrap();
        engine.run(&mut program, &Control { seed: 3, ..Control::default() }).unwrap();
        engine.read(&program, y).unwrap()
    };
    let whole = dropped(0, 1);
    for of in [2, 3, 6] {
        let slices: Vec<f32> = (0..of).flat_map(|replica| dropped(replica, of)).collect();
        assert!(slices == whole, "{of} replicas");
    }
}

#[test]
fn dropout_add_uses_the_mask_of_dropout() {
    let (n, layout) = (1000, Arc::new(Layout::empty()));
    let read = |add: bool| {
        let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
        let (x, residual) = (tape.variable([n]), tape.variable([n]));
        let y = if add { tape.dropout_add(x, residual, 0.1) } else { tape.dropout(x, 0.1) };
        tape.keep(y);
        let options = EngineOptions::default();
        let mut engine = Engine::new(Device::Cpu, Arc::clone(&layout), Precision::F32, options).unwrap();
        let mut program = engine.load(tape).unwrap();
        engine.write(&program, x, &vec![1.0; n]).unwrap();
        engine.write(&program, residual, &vec![2.0; n]).unwrap();
        engine.run(&mut program, &Control { seed: 3, ..Control::default() }).unwrap();
        engine.read(&program, y).unwrap()
    };
    let (alone, added) = (read(false), read(true));
    assert!(alone.iter().zip(&added).all(|(x, y)| x + 2.0 == *y));
}

#[test]
fn the_mask_depends_on_the_seed() {
    assert_eq!(dropped(1 << 40, 0.5, 999), dropped(1 << 40, 0.5, 999));
    assert_ne!(dropped(1 << 40, 0.5, 999), dropped(1 << 41, 0.5, 999));
}
