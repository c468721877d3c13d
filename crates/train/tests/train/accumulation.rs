//! A step of several batches applies the mean of their gradients.

use myxtts_run::plan::StageKind;
use myxtts_tensor::Control;
use myxtts_tensor::engine::Arena;
use myxtts_train::ComputeDevice;

use super::small::{self, Clips};

/// The first moment after one step of a new GPT: its gradient, times the factor of AdamW.
fn moment(accumulate: u64, step: u64) -> Vec<f32> {
    let mut plan = small::plan(StageKind::Gpt, 4);
    // Dropout differs between the batches of a step.
    plan.training.dropout = Some(0.0);
    let mut stage = small::stage(StageKind::Gpt, &plan, Clips::default(), accumulate, ComputeDevice::CPU);
    let control = Control { rate: 1e-3, weight: 1.0, clip: 0.0, average: 0.0, seed: 1 };
    let queued = stage.submit(step, &control).unwrap();
    assert!(stage.wait(queued.ticket).unwrap().good);
    stage.engine().read_arena(Arena::Moment1).unwrap()
}

#[test]
fn accumulation_of_two_batches_is_the_mean_of_their_gradients() {
    let (first, second, both) = (moment(1, 0), moment(1, 1), moment(2, 0));
    let mean: Vec<f32> = first.iter().zip(&second).map(|(a, b)| 0.5 * (a + b)).collect();
    let norm = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let apart = |a: &[f32], b: &[f32]| norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f32>>());
    assert!(apart(&first, &second) > 0.01 * norm(&mean), "the two batches are the same");
    let off = apart(&both, &mean) / norm(&mean);
    assert!(off < 1e-4, "off by {off:.2e}");
}
