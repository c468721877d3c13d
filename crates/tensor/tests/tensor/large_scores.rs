//! Attention with scores so large that a float cannot resolve their differences, as in networks without inner norms
//! such as a perceiver. Weights must be at most 1 in both passes, and gradients must stay finite.

use crate::gpu;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::ops::attention::{Mask, Order};
use myxtts_tensor::random::Stream;
use myxtts_tensor::*;
use std::sync::Arc;

const TIME: usize = 70;
const SIZE: usize = 64;

/// The gradients of the sum of an attention's output for inputs of this magnitude.
fn gradients(device: Device, precision: Precision, magnitude: f32) -> Vec<f32> {
    let mut builder = LayoutBuilder::new();
    let group = builder.group("all", 0.0, 1.0);
    let weight = builder.add("qkv", [1, TIME, 3 * SIZE], Role::Trained(group), Init::Zeros);
    let options = EngineOptions { training: Training::Adam, ..EngineOptions::default() };
    let mut engine = Engine::new(device, Arc::new(builder.finish()), precision, options).unwrap();
    let mut random = Stream::new(5);
    let data: Vec<f32> = (0..TIME * 3 * SIZE).map(|_| (random.uniform() * 2.0 - 1.0) * magnitude).collect();
    engine.write_parameter(weight, &data).unwrap();
    let mut tape = Tape::new(engine.layout().clone(), precision);
    let qkv = tape.parameter(weight);
    let made = tape.self_attention(qkv, 1, Order::Parts, Mask::default());
    let made = if precision == Precision::F32 { made } else { tape.cast(made, DType::F32) };
    let loss = tape.sum(made);
    tape.backward(loss, Backward::default());
    tape.update(loss, AdamW::default());
    let mut program = engine.load(tape).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    engine.read_gradient(weight).unwrap()
}

#[test]
fn weights_of_huge_scores_are_at_most_one() {
    let mut devices = vec![(Device::Cpu, Precision::F32)];
    if gpu::present("weights_of_scores_beyond_all_digits_are_at_most_one").is_some() {
        devices.extend([(Device::Cuda(0), Precision::F32), (Device::Cuda(0), Precision::Bf16)]);
    }
    for (device, precision) in devices {
        // Scores of about 1, 1e8 and 1e10.
        for magnitude in [1.0, 3e4, 3e5] {
            let all = gradients(device, precision, magnitude);
            assert!(all.iter().all(|x| x.is_finite()), "{device}, {precision:?}, {magnitude}");
            // The gradient of a value is the sum of its weights over the queries: over all values, one for each
            // query.
            let values: Vec<f32> = all
                .chunks_exact(3 * SIZE)
                .map(|row| row[2 * SIZE..].iter().sum::<f32>() / SIZE as f32)
                .collect();
            let most = TIME as f32 * 1.01;
            let largest = values.iter().copied().fold(0.0, f32::max);
            assert!(
                largest <= most,
                "{device}, {precision:?}, {magnitude}: a value has {largest} of {TIME} queries"
            );
        }
    }
}
