use crate::suite::{Build, Case};
use myxtts_tensor::*;
use std::sync::Arc;

fn ids(b: &mut Build<'_>, n: usize, rows: usize) -> Vec<i32> {
    (0..n).map(|_| b.random.below(rows) as i32).collect()
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("embedding", |b| {
            let (rows, c, batch, time) = (b.size(1, 20), b.size(1, 40), b.size(1, 3), b.size(1, 20));
            let table = b.weight([rows, c]);
            let data = ids(b, batch * time, rows);
            let ids = b.integers([batch, time], data);
            vec![b.tape.embedding(table, ids)]
        }),
        Case::new("embedding of an f32 table, twice", |b| {
            let (rows, c, n) = (b.size(5, 50), 8 * b.size(1, 40), b.size(1, 60));
            let table = b.master([rows, c]);
            let (one, two) = (ids(b, n, rows), ids(b, n, rows));
            let (one, two) = (b.integers([n], one), b.integers([n], two));
            vec![b.tape.embedding(table, one), b.tape.embedding(table, two)]
        }),
        // One row that nearly all positions use, and most rows unused.
        Case::new("embedding, one row at most positions", |b| {
            let (rows, c, n) = (b.size(30, 90), [256, 264, 50, 1024][b.random.below(4)], b.size(100, 400));
            let table = b.weight([rows, c]);
            let data = (0..n).map(|i| if i % 3 == 0 { b.random.below(rows) as i32 } else { 7 }).collect();
            let ids = b.integers([n], data);
            vec![b.tape.embedding(table, ids)]
        }),
        Case::new("add_positions", |b| {
            let (batch, time, c) = (b.size(1, 5), b.size(1, 20), b.size(1, 20));
            let (x, table) = (b.variable([batch, time, c]), b.weight([time + 3, c]));
            vec![b.tape.add_positions(x, table)]
        }),
        Case::new("add_positions of an f32 table, twice", |b| {
            let (batch, time, c) = (b.size(1, 5), b.size(1, 20), 8 * b.size(1, 5));
            let (x, table) = (b.variable([batch, time, c]), b.master([time, c]));
            let y = b.tape.add_positions(x, table);
            vec![b.tape.add_positions(y, table)]
        }),
        // No gradient flows to the zeros; the table alone is every item.
        Case::new("add_positions to zeros", |b| {
            let (batch, time, c) = (b.size(1, 5), b.size(1, 20), b.size(1, 20));
            let (zeros, table) = (b.tape.zeros([batch, time, c]), b.weight([time, c]));
            vec![b.tape.add_positions(zeros, table)]
        }),
    ]
}

#[test]
fn an_out_of_range_id_is_named() {
    for id in [-1, 5] {
        let layout = Arc::new(Layout::empty());
        let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
        let (table, ids) = (tape.weight([5, 3], DType::F32), tape.input([2], DType::I32));
        tape.embedding(table, ids);
        let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, EngineOptions::default()).unwrap();
        let mut program = engine.load(tape).unwrap();
        engine.write_i32(&program, ids, &[0, id]).unwrap();
        let error = engine.run(&mut program, &Control::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("id {id} ")) && error.contains("5 rows"), "{error}");
    }
}
