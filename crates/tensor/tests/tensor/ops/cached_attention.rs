use crate::suite::{Build, Case};
use myxtts_tensor::ops::activation::Function;
use myxtts_tensor::ops::attention::{Mask, Order};
use myxtts_tensor::random::Stream;
use myxtts_tensor::*;
use std::sync::Arc;

/// A non-empty cache, rows at a random position in it, and their attention.
fn case(b: &mut Build<'_>, heads: usize, size: usize, most: usize) -> Vec<Value> {
    let (batch, new, before, after) = (b.size(1, 3), b.size(1, most), b.size(0, 50), b.size(0, 9));
    let (room, width) = (before + new + after, heads * size);
    let data = b.random.normals(batch * new * 3 * width);
    let rows = b.constant([batch, new, 3 * width], data);
    let rows = b.tape.cast(rows, b.tape.dtype());
    let data = b.random.normals(batch * room * 2 * width);
    let cache = b.constant([batch, room, 2 * width], data);
    let position = b.integers([1], vec![before as i32]);
    let seen = b.tape.cached_attention(rows, cache, position, heads);
    // It has no gradient, but the case needs one.
    let x = b.variable([3]);
    vec![seen, cache, b.tape.activation(x, Function::Tanh)]
}

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("cached attention, a row", |b| case(b, 2, 64, 1)).not_smooth(),
        Case::new("cached attention, many rows", |b| case(b, 3, 32, 80)).not_smooth(),
        Case::new("cached attention, heads of 24", |b| case(b, 2, 24, 9)).not_smooth(),
    ]
}

/// A sequence in pieces through one cache, single rows by one program, equals the whole sequence.
#[test]
fn a_sequence_in_pieces_equals_the_whole() {
    let gpu = crate::gpu::present("a_sequence_in_pieces_equals_the_whole");
    for device in [Some(Device::Cpu), gpu.as_ref().map(|_| Device::Cuda(0))].into_iter().flatten() {
        let (batch, heads, width, first, steps) = (2, 3, 96, 11, 6);
        let time = first + steps;
        let mut builder = LayoutBuilder::new();
        let cache = builder.add("cache", [batch, time, 2 * width], Role::State, Init::Normal(1.0));
        let layout = Arc::new(builder.finish());
        let mut engine =
            Engine::new(device, Arc::clone(&layout), Precision::F32, EngineOptions::default()).unwrap();
        let data = Stream::new(4).normals(batch * time * 3 * width);
        let piece = |engine: &mut Engine, new: usize, starts: &[usize]| -> Vec<Vec<f32>> {
            let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
            let qkv = tape.input([batch, new, 3 * width], DType::F32);
            let position = tape.input([1], DType::I32);
            let cache = tape.master(cache);
            let seen = tape.cached_attention(qkv, cache, position, heads);
            tape.keep(seen);
            let mut program = engine.load(tape).unwrap();
            let rows = |start: usize| -> Vec<f32> {
                let items = data.chunks(time * 3 * width);
                items.flat_map(|item| item[start * 3 * width..][..new * 3 * width].to_vec()).collect()
            };
            let run = |&start: &usize| {
                engine.write(&program, qkv, &rows(start)).unwrap();
                engine.write_i32(&program, position, &[start as i32]).unwrap();
                engine.run(&mut program, &Control::default()).unwrap();
                engine.read(&program, seen).unwrap()
            };
            starts.iter().map(run).collect()
        };
        let mut found = piece(&mut engine, first, &[0]);
        found.extend(piece(&mut engine, 1, &(first..time).collect::<Vec<_>>()));

        let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
        let qkv = tape.input([batch, time, 3 * width], DType::F32);
        let mask = Mask { causal: true, ..Mask::default() };
        let whole = tape.self_attention(qkv, heads, Order::Parts, mask);
        tape.keep(whole);
        let mut program = engine.load(tape).unwrap();
        engine.write(&program, qkv, &data).unwrap();
        engine.run(&mut program, &Control::default()).unwrap();
        let whole = engine.read(&program, whole).unwrap();
        let mut start = 0;
        for piece in &found {
            let new = piece.len() / batch / width;
            for item in 0..batch {
                let wanted = &whole[(item * time + start) * width..][..new * width];
                let piece = &piece[item * new * width..][..new * width];
                let far = piece.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
                assert!(far < 1e-5, "{device}: rows at {start} of item {item} differ by {far}");
            }
            start += new;
        }
        assert_eq!(start, time);
    }
}

#[test]
fn rows_that_do_not_fit_the_cache_are_rejected() {
    let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
    let (qkv, cache) = (tape.input([1, 2, 12], DType::F32), tape.input([1, 5, 8], DType::F32));
    let position = tape.input([1], DType::I32);
    tape.cached_attention(qkv, cache, position, 1);
    let mut engine =
        Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default())
            .unwrap();
    let mut program = engine.load(tape).unwrap();
    for (at, fits) in [(-1, false), (0, true), (3, true), (4, false)] {
        engine.write_i32(&program, position, &[at]).unwrap();
        assert_eq!(engine.run(&mut program, &Control::default()).is_ok(), fits, "{at}");
    }
}
