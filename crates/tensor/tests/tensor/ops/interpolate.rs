use crate::suite::Case;
use myxtts_tensor::*;
use std::sync::Arc;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("interpolate_nearest", |b| {
            let (batch, time, c, factor) = (b.size(1, 3), b.size(1, 20), b.size(1, 20), b.size(1, 5));
            let x = b.variable([batch, time, c]);
            vec![b.tape.interpolate_nearest(x, factor), b.tape.interpolate_nearest(x, 2)]
        }),
        Case::new("interpolate_linear", |b| {
            let (batch, time, c) = (b.size(1, 3), b.size(3, 40), b.size(1, 20));
            let x = b.variable([batch, time, c]);
            let scale = [4.0, 24000.0 / 22050.0, 0.4, 1.0, 2.6][b.random.below(5)];
            vec![b.tape.interpolate_linear(x, scale)]
        })
        .rounds(8),
        Case::new("interpolate, aligned, long", |b| {
            let c = 8 * b.size(1, 4);
            let x = b.variable([2, 300, c]);
            let y = b.tape.interpolate_linear(x, 24000.0 / 22050.0);
            vec![y, b.tape.interpolate_linear(x, 4.0), b.tape.interpolate_nearest(x, 3)]
        }),
    ]
}

fn interpolated(x: &[f32], scale: f64) -> Vec<f32> {
    let layout = Arc::new(Layout::empty());
    let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
    let value = tape.variable([1, x.len(), 1]);
    let y = tape.interpolate_linear(value, scale);
    tape.keep(y);
    let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, EngineOptions::default()).unwrap();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, value, x).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    engine.read(&program, y).unwrap()
}

#[test]
fn linear_interpolation_is_centred_and_clamped_at_the_ends() {
    // By hand: (i + 0.5) / 2 - 0.5 is -0.25, 0.25, 0.75, 1.25, 1.75, 2.25; the first is clamped to 0 and the last
    // lies beyond the end, where the last time step is repeated.
    assert_eq!(interpolated(&[0.0, 1.0, 3.0], 2.0), [0.0, 0.25, 0.75, 1.5, 2.5, 3.0]);
    // The scale as given, not as 3 / 2: 1.75 makes 3 of 2, at -0.21, 0.36, 0.93.
    let y = interpolated(&[0.0, 7.0], 1.75);
    for (y, truth) in y.iter().zip([0.0, 2.5, 6.5]) {
        assert!((y - truth).abs() < 1e-5, "{y} is not {truth}");
    }
    assert_eq!(y.len(), 3);
}
