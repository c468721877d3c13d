//! The perceiver has no norms between its layers. With weights a few times their initial size its attention saturates,
//! and gradients that should cancel must cancel: rounding made them 1e7 to 1e25 times too long, which ended training
//! runs.

use crate::rig;
use myxtts_model::Declare;
use myxtts_model::perceiver::{Perceiver, PerceiverSizes};
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::random::Stream;
use myxtts_tensor::{Backward, Control, DType, Device, Engine, EngineOptions, Precision, Tape, Training};

const BATCH: usize = 4;
const FRAMES: usize = 100;

/// Length of the gradient of all query, key and value weights, where all weights are `scale` times their initial size.
fn gradient_length(device: Device, precision: Precision, scale: f32) -> f64 {
    let sizes = PerceiverSizes { heads: 4, head_size: 64, ..PerceiverSizes::of(256) };
    let mut declare = Declare::new(0.0, &|_| true);
    let perceiver = Perceiver::declare(&mut declare, "perceiver", sizes.clone());
    let (layout, released) = declare.finish();
    let options = EngineOptions { training: Training::Adam, ..EngineOptions::default() };
    let mut engine = Engine::new(device, layout, precision, options).unwrap();
    for tensor in released.iter().filter(|tensor| !tensor.name.ends_with("gamma")) {
        let scaled: Vec<f32> =
            engine.read_parameter(tensor.id).unwrap().iter().map(|weight| weight * scale).collect();
        engine.write_parameter(tensor.id, &scaled).unwrap();
    }
    let mut random = Stream::new(3);
    let mut numbers = |count: usize, size: f32| -> Vec<f32> {
        (0..count).map(|_| (random.uniform() - 0.5) * 3.4 * size).collect()
    };
    let mut tape = Tape::new(engine.layout().clone(), precision);
    let frames = tape.input([BATCH, FRAMES, sizes.width], DType::F32);
    let direction = tape.input([BATCH, sizes.latents, sizes.width], DType::F32);
    let heard = tape.cast(frames, tape.dtype());
    let made = perceiver.forward(&mut tape, heard, None);
    let made = tape.cast(made, DType::F32);
    let along = tape.multiply(made, direction);
    let loss = tape.sum(along);
    tape.backward(loss, Backward::default());
    tape.update(loss, AdamW::default());
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, frames, &numbers(BATCH * FRAMES * sizes.width, scale)).unwrap();
    engine.write(&program, direction, &numbers(BATCH * sizes.latents * sizes.width, 1.0)).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    let attention =
        released.iter().filter(|tensor| tensor.name.contains(".to_q") || tensor.name.contains(".to_kv"));
    let squares = attention.flat_map(|tensor| engine.read_gradient(tensor.id).unwrap());
    squares.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn gradients_of_a_saturated_perceiver_are_not_dominated_by_rounding_errors() {
    let precisions = |device| match device {
        Device::Cpu => vec![(device, Precision::F32)],
        Device::Cuda(_) => vec![(device, Precision::F32), (device, Precision::Bf16)],
    };
    let devices = rig::devices("gradients_of_a_saturated_perceiver_are_not_dominated_by_rounding_errors");
    for (device, precision) in devices.into_iter().flat_map(precisions) {
        let usual = gradient_length(device, precision, 1.0);
        for scale in [4.0, 8.0] {
            let length = gradient_length(device, precision, scale);
            println!("{device}, {precision:?}, scale {scale}: {length:.3e}, {usual:.3e} at scale 1");
            assert!(
                length.is_finite() && length < 30.0 * usual,
                "{device}, {precision:?}: {length:.2e} at {scale} times the weights, {usual:.2e} at their initial size"
            );
        }
    }
}
