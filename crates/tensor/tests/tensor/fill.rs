//! Weights filled on all cores equal weights written one by one; an engine created with zeros holds only zeros.

use crate::gpu;
use myxtts_tensor::engine::Arena;
use myxtts_tensor::*;
use std::sync::Arc;

/// One is larger than the page-locked memory, so that it is copied in several pieces.
const COUNTS: [usize; 9] = [3, 700, 1, 9 << 20, 5_000_000, 64, 4_000_000, 100_003, 17];

fn value(parameter: usize, place: usize) -> f32 {
    (parameter * 31 + place % 1009) as f32 / 64.0 - 8.0
}

fn assert_filled(device: Device, precision: Precision) {
    let mut builder = LayoutBuilder::new();
    let group = builder.group("all", 0.0, 1.0);
    let ids: Vec<ParameterId> = COUNTS
        .iter()
        .enumerate()
        .map(|(i, &count)| {
            builder.add(&format!("parameter-{i}"), [count], Role::Trained(group), Init::Normal(1.0))
        })
        .collect();
    let layout = Arc::new(builder.finish());
    let options = EngineOptions { initial: InitialWeights::Zeros, ..EngineOptions::default() };
    let mut engine = Engine::new(device, Arc::clone(&layout), precision, options).unwrap();
    assert!(engine.read_arena(Arena::Weights).unwrap().iter().all(|weight| *weight == 0.0));
    // All but one, in another order than their offsets.
    let chosen: Vec<usize> = (0..COUNTS.len()).rev().filter(|&i| i != 5).collect();
    let some: Vec<ParameterId> = chosen.iter().map(|&i| ids[i]).collect();
    let fill = |number: usize, out: &mut [f32]| {
        out.iter_mut().enumerate().for_each(|(place, out)| *out = value(chosen[number], place));
        Ok::<(), Error>(())
    };
    engine.fill_parameters(&some, fill).unwrap();
    for (i, &id) in ids.iter().enumerate() {
        let found = engine.read_parameter(id).unwrap();
        let right = |(place, found): (usize, &f32)| *found == if i == 5 { 0.0 } else { value(i, place) };
        assert!(found.len() == COUNTS[i] && found.iter().enumerate().all(right), "{i} on {device}");
    }
    // Programs compute with these weights, rounded.
    let mut tape = Tape::new(Arc::clone(&layout), precision);
    let mut parameter = tape.parameter(ids[1]);
    if precision == Precision::Bf16 {
        parameter = tape.cast(parameter, DType::F32);
    }
    let twice = tape.scale(parameter, 2.0);
    tape.keep(twice);
    let mut program = engine.load(tape).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    let seen = engine.read(&program, twice).unwrap();
    let near = |(place, seen): (usize, &f32)| (seen - 2.0 * value(1, place)).abs() <= 0.01 * seen.abs();
    assert!(seen.iter().enumerate().all(near), "on {device} in {precision:?}");
    // A fill that fails leaves the memory of other parameters alone.
    let failed = engine.fill_parameters(&some, |number, _| match number {
        3 => Err(Error::Unsupported("the third".to_owned())),
        _ => Ok(()),
    });
    assert!(failed.unwrap_err().to_string().contains("the third"));
}

#[test]
fn weights_filled_on_all_cores_have_the_right_offsets() {
    assert_filled(Device::Cpu, Precision::F32);
    if let Some(_gpu) = gpu::present("fill") {
        assert_filled(Device::Cuda(0), Precision::F32);
        assert_filled(Device::Cuda(0), Precision::Bf16);
    }
}
