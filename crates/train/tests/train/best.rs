//! The model gets the weights that validated best, exactly as they were measured.

use myxtts_run::plan::StageKind;
use myxtts_tensor::Control;
use myxtts_tensor::engine::Arena;
use myxtts_train::model::Model;
use myxtts_train::overlay::WithCodes;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::session::{StageEnd, StageOutcome};
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::gpt::GptStage;
use myxtts_train::stages::{Stage, StageCore, Submitted, TEXT_GAIN, Validation};
use myxtts_train::{ComputeDevice, TrainError};
use std::sync::Arc;

use super::small::{self, Clips};

/// A stage with scripted validation scores by step; records the weights at each validation.
struct Scripted {
    inner: Box<dyn Stage>,
    score: fn(u64) -> f64,
    seen: Vec<(u64, Vec<f32>)>,
}

impl Stage for Scripted {
    fn core(&self) -> &dyn StageCore {
        self.inner.core()
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self.inner.core_mut()
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        self.inner.submit(step, control)
    }

    fn between(&mut self, step: u64) -> Result<(), TrainError> {
        self.inner.between(step)
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        let step = self.inner.engine().state()?.steps;
        self.seen.push((step, self.inner.engine().read_arena(Arena::Weights)?));
        let score = (self.score)(step);
        Ok(Some(Validation { score, loss: score, numbers: vec![("asked", score)] }))
    }
}

const STEPS: u64 = 6;
/// A decoder keeps its last weights once discriminators have joined, so it is tested separately.
const KINDS: [StageKind; 2] = [StageKind::Dvae, StageKind::Gpt];

fn plan(kind: StageKind) -> myxtts_run::plan::Plan {
    let mut plan = small::plan(kind, STEPS);
    plan.training.validate_every = Some(1);
    plan
}

fn scripted(kind: StageKind, plan: &myxtts_run::plan::Plan, score: fn(u64) -> f64) -> Scripted {
    let inner = small::stage(kind, plan, Clips::default(), 1, ComputeDevice::CPU);
    Scripted { inner, score, seen: Vec::new() }
}

fn weights(stage: &dyn Stage) -> Vec<f32> {
    stage.engine().read_arena(Arena::Weights).unwrap()
}

/// Best after the fifth step, worse at the end.
fn fifth(step: u64) -> f64 {
    if step == 5 { 1.0 } else { 2.0 + step as f64 }
}

#[test]
fn the_last_weights_became_the_model_whatever_validation_said() {
    for kind in KINDS {
        let plan = plan(kind);
        let runs = tempfile::tempdir().unwrap();
        let mut stage = scripted(kind, &plan, fifth);
        let (finished, said) = small::run_finished(runs.path(), &plan, &mut stage, u64::MAX, None);
        let StageOutcome { ended, steps, chosen } = finished.unwrap();
        assert_eq!((ended, steps), (StageEnd::Done, STEPS));
        assert_eq!(chosen.map(|chosen| (chosen.step, chosen.score)), Some((5, 1.0)), "{kind:?}");
        let measured = |step| &stage.seen.iter().find(|(seen, _)| *seen == step).unwrap().1;
        assert!(weights(&stage) == *measured(5), "{kind:?}: other weights than those that were measured");
        assert!(measured(5) != measured(6), "{kind:?}: there was nothing to choose");
        assert!(said.iter().any(|line| line.contains("keeps the weights of step 5 of 6")), "{said:?}");
        let end = &small::events(runs.path(), "stage_end")[0];
        assert_eq!((end["chosen_step"].as_u64(), end["score"].as_f64()), (Some(5), Some(1.0)));
        // A model takes the measured weights, which are averages if the stage keeps them.
        let raw = stage.inner.engine().read_arena(Arena::Average).unwrap();
        assert!(!raw.is_empty(), "{kind:?}: the recipe keeps no average, so that the test tries half");
    }
}

#[test]
fn a_run_killed_between_its_best_validation_and_its_model_makes_the_same_model() {
    for kind in KINDS {
        let plan = plan(kind);
        let best = |step: u64| if step == 4 { 1.0 } else { 2.0 };
        let whole = {
            let runs = tempfile::tempdir().unwrap();
            let mut stage = scripted(kind, &plan, best);
            small::run(runs.path(), &plan, &mut stage).0.unwrap();
            weights(&stage)
        };
        // Stopped one step after the best, and again when only the model was missing.
        let runs = tempfile::tempdir().unwrap();
        let mut stage = scripted(kind, &plan, best);
        let stopped = small::run_until(runs.path(), &plan, &mut stage, 5).0;
        assert!(matches!(stopped, Err(TrainError::Stopped { step: 5, .. })), "{kind:?}");
        for _ in 0..2 {
            let mut again = scripted(kind, &plan, best);
            let finished = small::run_finished(runs.path(), &plan, &mut again, u64::MAX, None).0.unwrap();
            assert_eq!(finished.chosen.map(|chosen| chosen.step), Some(4), "{kind:?}");
            assert!(weights(&again) == whole, "{kind:?}: other weights");
        }
    }
}

#[test]
fn early_stopping_kept_the_last_weights() {
    let mut plan = plan(StageKind::Gpt);
    plan.training.early_stop_patience = Some(2);
    let runs = tempfile::tempdir().unwrap();
    let mut stage = scripted(StageKind::Gpt, &plan, |step| if step == 2 { 1.0 } else { 3.0 });
    let finished = small::run_finished(runs.path(), &plan, &mut stage, u64::MAX, None).0.unwrap();
    assert_eq!((finished.ended, finished.steps), (StageEnd::Early, 4));
    assert_eq!(finished.chosen.map(|chosen| chosen.step), Some(2));
    assert!(weights(&stage) == stage.seen[1].1);
}

#[test]
fn a_decoder_keeps_its_last_weights_once_discriminators_have_joined() {
    let plan = plan(StageKind::Decoder);
    let runs = tempfile::tempdir().unwrap();
    // They join after half of the steps, and the mel loss rises with every step.
    let mut stage = scripted(StageKind::Decoder, &plan, |step| step as f64);
    let finished = small::run_finished(runs.path(), &plan, &mut stage, u64::MAX, None).0.unwrap();
    assert_eq!(finished.chosen.map(|chosen| chosen.step), Some(6));
    // Without them the lowest mel loss is the best.
    let runs = tempfile::tempdir().unwrap();
    let mut stage = scripted(StageKind::Decoder, &plan, |step| step as f64);
    let stopped = small::run_until(runs.path(), &plan, &mut stage, 3).0;
    assert!(matches!(stopped, Err(TrainError::Stopped { step: 3, .. })));
    let score = small::events(runs.path(), "validation").into_iter().filter(|e| e["best"] == true);
    assert_eq!(score.map(|e| e["step"].as_u64()).collect::<Vec<_>>(), [Some(1)]);
}

/// No score compares its weights from then on: patience that counted them would end it after a few validations.
#[test]
fn early_stopping_ends_a_decoder_stage_only_before_its_discriminators_join() {
    let mut plan = plan(StageKind::Decoder);
    plan.training.early_stop_patience = Some(1);
    let end = |score| {
        let runs = tempfile::tempdir().unwrap();
        let mut stage = scripted(StageKind::Decoder, &plan, score);
        let finished = small::run_finished(runs.path(), &plan, &mut stage, u64::MAX, None).0.unwrap();
        (finished.ended, finished.steps, finished.chosen.map(|chosen| chosen.step))
    };
    assert_eq!(end(|step| step as f64), (StageEnd::Early, 2, Some(1)));
    // They join after half of the steps.
    let worse = |step: u64| if step <= 3 { 9.0 - step as f64 } else { 100.0 + step as f64 };
    assert_eq!(end(worse), (StageEnd::Done, STEPS, Some(STEPS)));
}

#[test]
fn a_nan_score_is_never_the_best() {
    let plan = plan(StageKind::Gpt);
    let runs = tempfile::tempdir().unwrap();
    let mut stage = scripted(StageKind::Gpt, &plan, |_| f64::NAN);
    let finished = small::run_finished(runs.path(), &plan, &mut stage, u64::MAX, None).0.unwrap();
    assert_eq!(finished.chosen, None);
    assert!(weights(&stage) == stage.seen[STEPS as usize - 1].1, "not the last weights");
}

#[test]
fn overfitting_is_reported_once_with_advice() {
    let mut plan = small::plan(StageKind::Gpt, 12);
    plan.training.validate_every = Some(1);
    let runs = tempfile::tempdir().unwrap();
    let mut stage = scripted(StageKind::Gpt, &plan, |step| 1.0 + (step as f64 - 2.0).abs());
    let (_, said) = small::run_finished(runs.path(), &plan, &mut stage, u64::MAX, None);
    let told: Vec<&String> = said.iter().filter(|line| line.contains("overfitting")).collect();
    assert_eq!(told.len(), 1, "{said:?}");
    assert!(told[0].contains("since step 2") && told[0].contains("--from"), "{}", told[0]);
}

#[test]
fn early_stopping_is_on_for_many_epochs_over_few_clips_and_gives_its_reason() {
    let said = |steps: u64, patience| {
        let mut plan = small::plan(StageKind::Gpt, steps);
        plan.training.validate_every = Some(1);
        plan.training.early_stop_patience = patience;
        let runs = tempfile::tempdir().unwrap();
        let mut stage = scripted(StageKind::Gpt, &plan, |step| step as f64);
        let (finished, said) = small::run_finished(runs.path(), &plan, &mut stage, u64::MAX, None);
        (finished.unwrap(), said.iter().any(|line| line.contains("early stopping is on, because")))
    };
    // At most three batches per epoch: 80 steps are 20 epochs and more.
    let (finished, told) = said(80, None);
    assert!(told);
    assert_eq!((finished.ended, finished.steps), (StageEnd::Early, 21), "one, and a quarter of the steps");
    let (finished, told) = said(80, Some(100));
    assert_eq!((finished.ended, told), (StageEnd::Done, false), "the user's number counts");
    let (finished, told) = said(20, None);
    assert_eq!((finished.ended, told), (StageEnd::Done, false), "too few epochs");
}

#[test]
fn the_text_gain_is_the_increase_of_the_loss_with_other_texts_and_zero_if_text_is_ignored() {
    let settings = small::gpt_settings(1);
    let codes = (0..small::CLIPS).map(|i| (0..10).map(|j| ((i + j) % 8) as i32).collect()).collect();
    let source = Arc::new(WithCodes::new(Arc::new(Clips::default()), codes));
    let recipe = small::plan(StageKind::Gpt, 1).recipe(StageKind::Gpt, false);
    let gain = |held_out: &[u32], deaf: bool| {
        let sides = RecordSplit { train: &[0, 1, 2], validation: held_out };
        let (settings, source, model) = (settings.clone(), source.clone(), Model::default());
        let mut stage =
            GptStage::new(ReplicaSlice::WHOLE, settings, recipe, ComputeDevice::CPU, source, sides, &model)
                .unwrap();
        if deaf {
            let table = stage.engine().layout().find("gpt.text_embedding.weight").unwrap();
            let zeros = vec![0.0; stage.engine().read_parameter(table).unwrap().len()];
            stage.engine_mut().write_parameter(table, &zeros).unwrap();
        }
        let before = weights(&stage);
        let [first, second] = [(); 2].map(|()| stage.validate().unwrap().unwrap());
        assert_eq!(first, second, "a validation is a pure function");
        assert!(weights(&stage) == before, "validating changed the weights");
        let gain = first.numbers.iter().find(|(name, _)| *name == TEXT_GAIN).map(|(_, gain)| *gain);
        (gain, first.score)
    };
    let (heard, score) = gain(&[3, 4, 5], false);
    assert!(heard.unwrap() != 0.0 && heard.unwrap().abs() < score, "{heard:?}");
    assert_eq!(gain(&[3, 4, 5], true).0, Some(0.0), "texts of one length that are ignored");
    assert_eq!(gain(&[5], false).0, None, "one clip has no other's text");
}
