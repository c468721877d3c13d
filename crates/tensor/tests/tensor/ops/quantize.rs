use crate::suite::{Build, Case};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::quantize::Codebook;
use myxtts_tensor::*;
use std::sync::Arc;

fn codebook(b: &mut Build<'_>, d: usize, codes: usize) -> Value {
    let data = b.random.normals(d * codes);
    b.constant([d, codes], data)
}

/// Small integers with many duplicates: distances are exact, and there are ties.
fn whole(b: &mut Build<'_>, n: usize) -> Vec<f32> {
    (0..n).map(|_| b.random.below(3) as f32 - 1.0).collect()
}

pub fn cases() -> Vec<Case> {
    let cases = [
        Case::new("quantize", |b| {
            let (batch, time, d, codes) = (b.size(1, 3), b.size(1, 20), b.size(1, 40), b.size(1, 300));
            let x = b.variable([batch, time, d]);
            let table = codebook(b, d, codes);
            let found = b.tape.quantize(x, table);
            // The gradient of a commitment loss is added to the straight-through one.
            vec![found.ids, found.rows, b.tape.activation(x, Function::Tanh)]
        }),
        Case::new("quantize, ties", |b| {
            let (rows, d, codes) = (b.size(1, 40), b.size(1, 4), b.size(1, 600));
            let data = whole(b, rows * d);
            let x = b.variable_of([rows, d], data);
            let data = whole(b, d * codes);
            let table = b.constant([d, codes], data);
            let found = b.tape.quantize(x, table);
            vec![found.ids, found.rows]
        }),
        Case::new("code_rows", |b| {
            let (rows, d, codes) = (b.size(1, 40), b.size(1, 20), b.size(1, 30));
            let ids = (0..rows).map(|_| b.random.below(codes) as i32).collect();
            let (ids, table, x) = (b.integers([rows], ids), codebook(b, d, codes), b.variable([rows, d]));
            vec![b.tape.code_rows(ids, table), b.tape.activation(x, Function::Tanh)]
        }),
        Case::new("next_codebook", |b| {
            let (rows, d, codes) = (b.size(1, 700), [3, 40, 300][b.random.below(3)], b.size(1, 70));
            // Some codes are never chosen.
            let ids = (0..rows).map(|_| b.random.below(codes.div_ceil(2)) as i32).collect();
            let (ids, x) = (b.integers([rows], ids), b.variable([rows, d]));
            let counts = (0..codes).map(|_| 5.0 * b.random.uniform()).collect();
            let old = Codebook {
                embed: codebook(b, d, codes),
                cluster_size: b.constant([codes], counts),
                embed_avg: codebook(b, d, codes),
            };
            let next = b.tape.next_codebook(x, ids, old, 0.99, 1e-5);
            vec![next.embed, next.cluster_size, next.embed_avg]
        })
        // A code with few rows is divided by a small count.
        .tolerances(1e-5, 1e-4),
    ];
    cases.into_iter().map(Case::not_smooth).collect()
}

fn engine() -> Engine {
    Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default()).unwrap()
}

#[test]
fn the_nearest_code_is_found_and_ties_go_to_the_lower_index() {
    let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
    let (x, table) = (tape.variable([4, 2]), tape.input([2, 5], DType::F32));
    let found = tape.quantize(x, table);
    let weights = tape.input([4, 2], DType::F32);
    let loss = tape.dot(found.rows, weights, None);
    tape.backward(loss, Backward::default());
    let dx = tape.gradient(x).unwrap();
    [found.ids, found.rows, dx].into_iter().for_each(|value| tape.keep(value));
    let mut engine = engine();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, x, &[0.9, 0.1, 0.0, 0.0, -3.0, 2.0, f32::NAN, 0.0]).unwrap();
    // The codes (5, 5), (1, 0), (-1, 0), (1, 0), (-2, 2).
    engine.write(&program, table, &[5.0, 1.0, -1.0, 1.0, -2.0, 5.0, 0.0, 0.0, 0.0, 2.0]).unwrap();
    let given = [1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    engine.write(&program, weights, &given).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    assert_eq!(engine.read_i32(&program, found.ids).unwrap(), [1, 1, 4, 0]);
    let rows = engine.read(&program, found.rows).unwrap();
    assert_eq!(rows, [1.0, 0.0, 1.0, 0.0, -2.0, 2.0, 5.0, 5.0]);
    assert_eq!(engine.read(&program, dx).unwrap(), given, "the gradient goes straight through");
}

#[test]
fn a_codebook_moves_towards_the_rows_that_chose_it() {
    let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
    let (x, ids) = (tape.input([3, 1], DType::F32), tape.input([3], DType::I32));
    let [counts, sums] = [tape.input([2], DType::F32), tape.input([1, 2], DType::F32)];
    let old = Codebook { embed: sums, cluster_size: counts, embed_avg: sums };
    let next = tape.next_codebook(x, ids, old, 0.75, 1e-5);
    [next.embed, next.cluster_size, next.embed_avg].into_iter().for_each(|value| tape.keep(value));
    let mut engine = engine();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, x, &[1.0, 2.0, 8.0]).unwrap();
    engine.write_i32(&program, ids, &[0, 0, 1]).unwrap();
    engine.write(&program, counts, &[4.0, 8.0]).unwrap();
    engine.write(&program, sums, &[4.0, 16.0]).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    assert_eq!(engine.read(&program, next.cluster_size).unwrap(), [3.5, 6.25]);
    assert_eq!(engine.read(&program, next.embed_avg).unwrap(), [3.75, 14.0]);
    let total = 3.5 + 6.25;
    for (code, (sum, count)) in
        engine.read(&program, next.embed).unwrap().iter().zip([(3.75, 3.5), (14.0, 6.25)])
    {
        let size = (count + 1e-5) / (total + 2e-5) * total;
        assert!((f64::from(*code) - sum / size).abs() < 1e-6, "{code}");
    }
}
