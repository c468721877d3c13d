//! One step of several replicas is the step of one device on the whole batch: same loss, same gradient.
//!
//! Runs that go on drift apart, because rounding differs and Adam amplifies it. So every step starts here from the weights of the one
//! device, and from zero moments: the first moment is then the gradient up to a factor, with no square root to hide a wrong scale.

use std::sync::Arc;

use myxtts_model::dvae::DvaeSizes;
use myxtts_run::plan::{Recipe, StageKind};
use myxtts_tensor::Control;
use myxtts_tensor::engine::Arena;
use myxtts_train::align::{Aligned, Alignments};
use myxtts_train::mirrored::{Build, Mirrored};
use myxtts_train::overlay::WithCodes;
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::Stage;
use myxtts_train::stages::dvae::{DvaeSettings, DvaeStage, TokenTargets};
use myxtts_train::stages::gpt::{GptSettings, GptStage, Regularization};
use myxtts_train::{ComputeDevice, Model};

use super::mirrored::{decoder, made, plan};
use super::small::{self, CLIPS, Clips};

/// Copies the weights of one stage to all replicas of another, and clears the moments of both.
fn start_equal(alone: &mut dyn Stage, together: &mut Mirrored) {
    for arena in [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average] {
        if !alone.engine().holds(arena) {
            continue;
        }
        let mut values = alone.engine().read_arena(arena).unwrap();
        if matches!(arena, Arena::Moment1 | Arena::Moment2) {
            values.fill(0.0);
            alone.engine_mut().write_arena(arena, &values).unwrap();
        }
        together.core_mut().engine_mut().write_arena(arena, &values).unwrap();
    }
    let state = alone.engine().state().unwrap();
    together.core_mut().engine_mut().set_state(state).unwrap();
    together.restored().unwrap();
}

fn length(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

/// Compares loss, norm, notes and the gradient of every parameter in each of `steps` steps. `rounding` is the relative difference
/// allowed between gradients of one parameter.
fn assert_every_step_is_equal(
    build: &Build,
    recipe: &Recipe,
    (replicas, steps): (usize, u64),
    rounding: f64,
    label: &str,
) {
    let mut alone = made(build, 1).unwrap();
    let mut together = Mirrored::new(&vec![ComputeDevice::CPU; replicas], build).unwrap();
    let (mut worst_loss, mut worst_gradient) = (0.0f64, 0.0f64);
    for step in 0..steps {
        start_equal(&mut *alone, &mut together);
        let control =
            Control { rate: recipe.schedule.at(step) as f32, seed: 31 + step, ..Control::default() };
        let mut reports = Vec::new();
        for stage in [&mut *alone, &mut together] {
            if stage.due(step) {
                stage.between(step).unwrap();
            }
            let queued = stage.submit(step, &control).unwrap();
            reports.push(stage.wait(queued.ticket).unwrap());
        }
        let (a, b) = (&reports[0], &reports[1]);
        assert!(a.good && b.good, "{label}: step {step}");
        let relative = |a: f32, b: f32| f64::from((a - b).abs()) / f64::from(a.abs().max(1e-3));
        assert!(relative(a.norm, b.norm) < rounding, "{label}: step {step}: {reports:?}");
        for (a, b) in [(a.loss, b.loss)].into_iter().chain(a.notes.into_iter().zip(b.notes)) {
            let apart = relative(a, b);
            assert!(apart < 1e-5, "{label}: step {step}: {a} on one device, {b} on {replicas}: {reports:?}");
            worst_loss = worst_loss.max(apart);
        }
        let gradients =
            [alone.engine(), together.core().engine()].map(|e| e.read_arena(Arena::Moment1).unwrap());
        let whole = length(&gradients[0]);
        assert!(whole > 0.0, "{label}: step {step} has no gradient");
        for (_, parameter) in alone.engine().layout().parameters() {
            let Some((a, b)) = gradients[0].get(parameter.range()).zip(gradients[1].get(parameter.range()))
            else {
                continue;
            };
            let difference: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            // Where the exact gradient is zero, as for a bias before a norm, only rounding is left.
            let apart = length(&difference) / (length(a) + 1e-4 * whole);
            assert!(
                apart < rounding,
                "{label}: step {step}: the gradient of {} differs by {apart:.1e}",
                parameter.name
            );
            worst_gradient = worst_gradient.max(apart);
        }
    }
    println!(
        "{label}, {replicas} replicas: losses within {worst_loss:.1e}, gradients within {worst_gradient:.1e}"
    );
}

/// Alignments of some of the clips, so that slices of a batch have different numbers of tokens.
fn alignments(records: &[u32], codes: impl Fn(u32) -> usize) -> Arc<Alignments> {
    let aligned = |record: u32| {
        let tokens: Vec<i32> = (0..7).map(|i| (i + record as i32) % 9 + 1).collect();
        let at_code = (0..codes(record)).map(|i| (i as u32 / 2).min(6)).collect();
        (record, Aligned { tokens, at_code, words: vec![(1, 0), (3, 2)] })
    };
    Arc::new(records.iter().map(|&record| aligned(record)).collect())
}

#[test]
fn the_token_loss_of_a_dvae_was_a_mean_of_the_means_of_its_slices() {
    let recipe = Recipe { ema_decay: None, ..plan(40).recipe(StageKind::Dvae, false) };
    let known = alignments(&[0, 2, 3], |_| 10);
    let build: Build = Arc::new(move |machine, slice| {
        let settings = DvaeSettings {
            sizes: DvaeSizes { hidden: 8, blocks: 1, codes: 8, code_width: 8, ..DvaeSizes::v2() },
            rows: 6,
            token_targets: Some(TokenTargets { weight: 0.3, vocabulary: 12, alignments: known.clone() }),
            ..small::dvae_settings()
        };
        let source = Arc::new(Clips::default());
        let records: Vec<u32> = (0..CLIPS as u32).collect();
        let sides = RecordSplit { train: &records, validation: &records[..2] };
        Ok(Box::new(DvaeStage::new(slice, settings, recipe, machine, source, sides, &Model::default())?))
    });
    for replicas in [2, 3, 6] {
        assert_every_step_is_equal(&build, &recipe, (replicas, 24), 1e-4, "a DVAE with token targets");
    }
}

#[test]
fn a_gpt_with_all_its_heads_and_augmentations_takes_the_step_of_the_whole_batch() {
    let recipe = plan(8).recipe(StageKind::Gpt, false);
    let codes = |record: u32| 4 + record as usize;
    let known = alignments(&[0, 1, 3, 4], codes);
    let all: Vec<Vec<i32>> =
        (0..CLIPS as u32).map(|i| (0..codes(i)).map(|j| ((i as usize + j) % 8) as i32).collect()).collect();
    let source = Arc::new(WithCodes::new(Arc::new(Clips::default()), all));
    let build: Build = Arc::new(move |machine, slice| {
        let regularization = Regularization {
            masking: 0.3,
            recombination: 0.5,
            alignment_weight: 0.3,
            acoustic_weight: 3.0,
            text_dropout: 0.3,
            alignments: Some(known.clone()),
            space: 2,
            ..Regularization::default()
        };
        let settings = GptSettings {
            rows: myxtts_data::batch::Rows::Fixed(6),
            regularization,
            ..small::gpt_settings(1)
        };
        let records: Vec<u32> = (0..CLIPS as u32).collect();
        let sides = RecordSplit { train: &records, validation: &records[5..] };
        let mut model = Model::default();
        model.set("mel_stats", &[80], &[5.0; 80]);
        Ok(Box::new(GptStage::new(slice, settings, recipe, machine, source.clone(), sides, &model)?))
    });
    for replicas in [2, 3] {
        assert_every_step_is_equal(&build, &recipe, (replicas, 8), 1e-4, "a GPT with all heads");
    }
}

#[test]
fn a_decoder_takes_the_step_of_the_whole_batch_with_and_without_discriminators() {
    let recipe = Recipe { ema_decay: None, ..plan(12).recipe(StageKind::Decoder, false) };
    // The gradient of an absolute error is a sum of signs, thousands of which cancel: more of it is rounding.
    assert_every_step_is_equal(&decoder(recipe, true), &recipe, (2, 12), 5e-3, "a decoder");
}
