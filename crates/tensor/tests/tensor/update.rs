//! The update of a step against AdamW as published, computed in f64: clipping by the global norm, moments and their
//! corrections, decoupled decay and rate of each group, the moving average.

use crate::gpu;
use myxtts_tensor::engine::Arena;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::random::Stream;
use myxtts_tensor::*;
use std::sync::Arc;

const COUNT: usize = 50;
const STEPS: usize = 6;
/// Between the first and the last gradient norms: some steps are clipped and some are not.
const CLIP: f64 = 0.5;
const RATE: f64 = 0.2;
const KEPT: f64 = 0.8;

/// An optimiser group: weight decay, and factor of the learning rate.
const GROUPS: [(f64, f64); 2] = [(0.1, 1.0), (0.0, 0.25)];

/// AdamW's state for one parameter.
struct Reference {
    weights: Vec<f64>,
    moments: [Vec<f64>; 2],
    average: Vec<f64>,
}

impl Reference {
    fn update(&mut self, gradients: &[f64], scale: f64, step: i32, (decay, factor): (f64, f64)) {
        let AdamW { beta1, beta2, epsilon, .. } = AdamW::default();
        let (beta1, beta2) = (f64::from(beta1), f64::from(beta2));
        let rate = RATE * factor;
        for (i, gradient) in gradients.iter().enumerate() {
            let g = gradient * scale;
            let [m, v] = &mut self.moments;
            m[i] = beta1 * m[i] + (1.0 - beta1) * g;
            v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
            let (m, v) = (m[i] / (1.0 - beta1.powi(step)), v[i] / (1.0 - beta2.powi(step)));
            self.weights[i] -= rate * decay * self.weights[i];
            self.weights[i] -= rate * m / (v.sqrt() + f64::from(epsilon));
            self.average[i] = KEPT * self.average[i] + (1.0 - KEPT) * self.weights[i];
        }
    }
}

/// Trains two parameters towards targets, by the mean of `(x - target)²`, next to the reference.
fn assert_updates(device: Device) {
    let mut builder = LayoutBuilder::new();
    let ids = [0, 1].map(|i| {
        let (decay, rate) = GROUPS[i];
        let group = builder.group(&format!("group-{i}"), decay as f32, rate as f32);
        builder.add(&format!("parameter-{i}"), [COUNT], Role::Trained(group), Init::Zeros)
    });
    let layout = Arc::new(builder.finish());
    let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
    let targets = ids.map(|_| tape.input([COUNT], DType::F32));
    let losses = [0, 1].map(|i| {
        let parameter = tape.parameter(ids[i]);
        tape.mse_loss(parameter, targets[i])
    });
    let loss = tape.add(losses[0], losses[1]);
    tape.backward(loss, Backward::default());
    tape.update(loss, AdamW { average: true, ..AdamW::default() });
    let options = EngineOptions { training: Training::AdamWithAverage, ..EngineOptions::default() };
    let mut engine = Engine::new(device, Arc::clone(&layout), Precision::F32, options).unwrap();
    let mut program = engine.load(tape).unwrap();

    let mut random = Stream::new(5);
    let wanted: [Vec<f32>; 2] = [0, 1].map(|i| random.normals(COUNT).iter().map(|x| x + i as f32).collect());
    let mut references = [0, 1].map(|i| {
        let begins = random.normals(COUNT);
        engine.write_parameter(ids[i], &begins).unwrap();
        engine.write(&program, targets[i], &wanted[i]).unwrap();
        let zeros = vec![0.0; COUNT];
        let weights = begins.iter().map(|&x| f64::from(x)).collect();
        Reference { weights, moments: [zeros.clone(), zeros.clone()], average: zeros }
    });
    engine.write_arena(Arena::Average, &vec![0.0; layout.trained_len()]).unwrap();
    let mut clipped = 0;
    for step in 1..=STEPS {
        let gradients = [0, 1].map(|i| -> Vec<f64> {
            let pairs = references[i].weights.iter().zip(&wanted[i]);
            pairs.map(|(x, target)| 2.0 * (x - f64::from(*target)) / COUNT as f64).collect()
        });
        let norm = gradients.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
        let scale = if norm > CLIP { CLIP / norm } else { 1.0 };
        clipped += usize::from(scale < 1.0);
        for (i, reference) in references.iter_mut().enumerate() {
            reference.update(&gradients[i], scale, step as i32, GROUPS[i]);
        }
        let (rate, clip, average) = (RATE as f32, CLIP as f32, KEPT as f32);
        let report =
            engine.run(&mut program, &Control { rate, clip, average, ..Control::default() }).unwrap();
        assert!(report.good && (f64::from(report.norm) - norm).abs() < 1e-5 * norm, "{report:?}, {norm}");
        let arenas = [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average];
        let held = arenas.map(|arena| engine.read_arena(arena).unwrap());
        for (i, reference) in references.iter().enumerate() {
            let Reference { weights, moments: [m, v], average } = reference;
            for ((what, ours), theirs) in arenas.iter().zip(&held).zip([weights, m, v, average]) {
                // Bias corrections of the first steps are small differences in f32.
                let largest = theirs.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                for (ours, theirs) in ours[layout.get(ids[i]).range()].iter().zip(theirs) {
                    let off = (f64::from(*ours) - theirs).abs() / largest;
                    assert!(off < 1e-4, "{what:?} after step {step}: {ours}, not {theirs}");
                }
            }
        }
    }
    assert!(clipped > 0 && clipped < STEPS, "{clipped} of {STEPS} steps were clipped");
}

#[test]
fn updates_match_the_published_adamw() {
    assert_updates(Device::Cpu);
    if let Some(_gpu) = gpu::present("an_update_is_that_of_the_paper") {
        assert_updates(Device::Cuda(0));
    }
}
