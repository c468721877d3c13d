//! NaN or Inf in the audio, the loss or a gradient: the step is skipped, no bit changes, the clips are named, the run
//! continues, and a limit on such steps ends it.

use myxtts_data::record::{CONDITIONING_MEL, Column, DVAE_MEL, SPEAKER_MEL};
use myxtts_run::plan::StageKind;
use myxtts_tensor::engine::{Arena, Ticket};
use myxtts_tensor::{Control, Role};
use myxtts_train::session::StageEnd;
use myxtts_train::stages::{self, Stage, StageCore, Submitted, Validation};
use myxtts_train::{ComputeDevice, TrainError};
use serde_json::Value;
use std::collections::BTreeSet;

use super::small::{self, Clips, everything};

/// The fault of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Only what the clips contain.
    Sound,
    /// A weight is infinite during the step.
    Loss,
    /// The gradient is multiplied by NaN; the loss is unchanged.
    Gradient,
    /// The gradient is a billion times too large.
    Explosion,
}

/// A stage some of whose steps have a fault, with the outcome of every step.
struct FaultyStage {
    inner: Box<dyn Stage>,
    fault: Fault,
    /// The steps with the fault.
    when: fn(u64) -> bool,
    /// The last step that had its fault, if each has it only once.
    once: Option<u64>,
    /// Per step: whether it changed anything, and the clips in it.
    steps: Vec<(bool, BTreeSet<String>)>,
}

impl Stage for FaultyStage {
    fn core(&self) -> &dyn StageCore {
        self.inner.core()
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self.inner.core_mut()
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let again = self.once.is_some_and(|last| step <= last);
        let fault = if (self.when)(step) && !again { self.fault } else { Fault::Sound };
        if let Some(last) = &mut self.once {
            *last = step.max(*last);
        }
        let healthy = self.inner.engine().read_arena(Arena::Weights)?;
        if fault == Fault::Loss {
            let mut weights = healthy.clone();
            weights[..self.inner.engine().layout().trained_len()].fill(f32::INFINITY);
            self.inner.engine_mut().write_arena(Arena::Weights, &weights)?;
        }
        let weight = match fault {
            Fault::Gradient => f32::NAN,
            Fault::Explosion => 1e9,
            Fault::Sound | Fault::Loss => control.weight,
        };
        let before = everything(&*self.inner);
        // On the CPU the step is complete when this returns.
        let queued = self.inner.submit(step, &Control { weight, ..*control })?;
        assert!(self.inner.kind() != StageKind::Decoder || queued.rows == 2, "{} rows of two", queued.rows);
        let changed = everything(&*self.inner) != before;
        if fault == Fault::Loss {
            self.inner.engine_mut().write_arena(Arena::Weights, &healthy)?;
        }
        self.steps.push((changed, queued.records.iter().map(|&record| self.inner.clip(record)).collect()));
        Ok(queued)
    }

    fn replay(&mut self, shape: [usize; 3], control: &Control) -> Result<Option<Ticket>, TrainError> {
        let weight = match self.fault {
            Fault::Gradient => f32::NAN,
            Fault::Explosion => 1e9,
            Fault::Sound | Fault::Loss => control.weight,
        };
        self.inner.replay(shape, &Control { weight, ..*control })
    }

    fn between(&mut self, step: u64) -> Result<(), TrainError> {
        self.inner.between(step)
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        self.inner.validate()
    }
}

/// State that a step updates without a gradient: running statistics, a codebook.
fn state(stage: &dyn Stage) -> Vec<f32> {
    let engine = stage.engine();
    let held = engine.layout().parameters().filter(|(_, parameter)| parameter.role == Role::State);
    held.flat_map(|(id, _)| engine.read_parameter(id).unwrap()).collect()
}

/// A DVAE checks its codes after 20 steps; discriminators join a decoder after half of the steps, and are slow.
fn steps(kind: StageKind) -> u64 {
    match kind {
        StageKind::Dvae => 28,
        StageKind::Gpt => 12,
        StageKind::Decoder => 6,
    }
}

fn faulty(
    kind: StageKind,
    clips: Clips,
    accumulate: u64,
    fault: Fault,
    when: fn(u64) -> bool,
) -> FaultyStage {
    let inner = small::stage(kind, &small::plan(kind, steps(kind)), clips, accumulate, ComputeDevice::CPU);
    FaultyStage { inner, fault, when, once: None, steps: Vec::new() }
}

/// Runs a stage and checks everything that is promised about bad steps; returns their number.
fn assert_unharmed(what: &str, mut stage: FaultyStage, named: Option<&str>) -> usize {
    let kind = stage.inner.kind();
    let steps = steps(kind);
    let mut plan = small::plan(kind, steps);
    (plan.training.bad_steps_in_a_row, plan.training.bad_step_budget) = (steps, steps);
    let runs = tempfile::tempdir().unwrap();
    // The initial state is computed from the clips, too: mean mels, first codes.
    let (numbers, fresh) = (stage.inner.engine().read_arena(Arena::Weights).unwrap(), state(&stage));
    assert!(numbers.iter().all(|x| x.is_finite()), "{what}: its initial state has NaN or Inf");
    let (ended, said) = small::run(runs.path(), &plan, &mut stage);
    assert_eq!(ended.unwrap(), StageEnd::Done, "{what}");
    let mut bad = BTreeSet::new();
    for event in small::events(runs.path(), "bad_step") {
        let step = event["step"].as_u64().unwrap();
        let clips: BTreeSet<String> =
            event["clips"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        assert_eq!(clips, stage.steps[step as usize - 1].1, "{what}: the clips of step {step}");
        if let Some(named) = named {
            assert!(clips.contains(named), "{what}: step {step} names {clips:?}");
        }
        let line = said.iter().find(|line| line.starts_with(&format!("step {step} of")));
        let line = line.unwrap_or_else(|| panic!("{what}: step {step} was not reported"));
        assert!(clips.iter().all(|id| line.contains(id)), "{what}: {line}");
        bad.insert(step);
    }
    for (i, (changed, _)) in stage.steps.iter().enumerate() {
        let step = i as u64 + 1;
        assert_eq!(*changed, !bad.contains(&step), "{what}: step {step}; bad ones are {bad:?}");
    }
    assert!(bad.len() < steps as usize, "{what}: every step was bad");
    let weights = stage.inner.engine().read_arena(Arena::Weights).unwrap();
    assert!(weights.iter().all(|x| x.is_finite()), "{what}: the weights have NaN or Inf");
    // Otherwise the comparison of bits above would compare nothing.
    let (now, has) = (state(&stage), kind != StageKind::Gpt);
    assert_eq!(has, now.iter().zip(&fresh).any(|(a, b)| a != b), "{what}: running state");
    bad.len()
}

const KINDS: [StageKind; 3] = [StageKind::Dvae, StageKind::Gpt, StageKind::Decoder];

#[test]
fn a_clip_with_nan_is_named_and_costs_only_its_own_steps() {
    let never = |_| false;
    let sounds: [(StageKind, Column, u64); 4] = [
        (StageKind::Dvae, DVAE_MEL, 1),
        // Conditioning mostly comes from another clip: it must be named all the same.
        (StageKind::Gpt, CONDITIONING_MEL, 1),
        (StageKind::Gpt, CONDITIONING_MEL, 2),
        (StageKind::Decoder, SPEAKER_MEL, 1),
    ];
    for (kind, column, accumulate) in sounds {
        let what = format!("{kind:?}, {} of a clip, {accumulate} batches a step", column.name);
        let stage = faulty(kind, Clips::poisoned(3, column), accumulate, Fault::Sound, never);
        let bad = assert_unharmed(&what, stage, Some("clip-3"));
        assert!(bad > 0, "{what}: the clip was never used");
    }
}

/// The mels of a joined clip are targets of the acoustic head, but its steps named only the clips that rows were sampled for.
#[test]
fn a_joined_clip_with_nan_was_not_named() {
    for poisoned in [0, 2, 4] {
        // Rows stay whole in the last steps of a stage, which this one does not reach.
        let inner = small::joining_gpt(Clips::poisoned(poisoned, DVAE_MEL), 0.05, 100);
        let stage =
            FaultyStage { inner, fault: Fault::Sound, when: |_| false, once: None, steps: Vec::new() };
        let named = format!("clip-{poisoned}");
        assert!(
            assert_unharmed("GPT, mel of a joined clip", stage, Some(&named)) > 0,
            "{named} was never used"
        );
    }
}

#[test]
fn a_nan_loss_or_gradient_changes_no_bit() {
    for kind in KINDS {
        for fault in [Fault::Loss, Fault::Gradient] {
            // The first step; before and after discriminators join; just before the codes of a DVAE are checked.
            let when = |step| matches!(step, 0 | 2 | 4 | 19);
            let what = format!("{kind:?}, {fault:?}");
            let stage = faulty(kind, Clips::default(), 1, fault, when);
            let planted = (0..steps(kind)).filter(|step| when(*step)).count();
            assert_eq!(assert_unharmed(&what, stage, None), planted, "{what}");
        }
    }
}

#[test]
fn too_many_bad_steps_end_the_run_and_save_the_batch() {
    for kind in KINDS {
        for (in_a_row, total, when, at) in
            [(2, 100, (|_| true) as fn(u64) -> bool, 3), (100, 1, |step| step % 2 == 1, 4)]
        {
            let mut plan = small::plan(kind, steps(kind));
            (plan.training.bad_steps_in_a_row, plan.training.bad_step_budget) = (in_a_row, total);
            let runs = tempfile::tempdir().unwrap();
            let mut stage = faulty(kind, Clips::default(), 1, Fault::Gradient, when);
            let (ended, _) = small::run(runs.path(), &plan, &mut stage);
            let error = ended.unwrap_err();
            let TrainError::BadSteps { step, saved, clips, .. } = &error else { panic!("{kind:?}: {error}") };
            assert_eq!(*step, at, "{kind:?}");
            assert!(saved.starts_with(runs.path().join("run")), "{kind:?}: {}", saved.display());
            let batch: Value = serde_json::from_slice(&std::fs::read(saved).unwrap()).unwrap();
            assert_eq!(batch["step"], at, "{kind:?}");
            let of_step = &stage.steps[at as usize - 1].1;
            for id in of_step {
                assert!(batch["clips"].to_string().contains(id) && clips.contains(id), "{kind:?}: {batch}");
            }
            assert!(!of_step.is_empty());
            // The parameters concerned, and the first operation.
            let gradients = batch["gradients"].as_array().unwrap();
            assert!(
                gradients[0]["parameter"].is_string() && gradients[0]["norm"] == "NaN",
                "{kind:?}: {batch}"
            );
            assert!(batch["first_fault"].as_str().unwrap().contains("`seed`"), "{kind:?}: {batch}");
            assert!(error.to_string().contains("`seed`"), "{kind:?}: {error}");
        }
    }
}

/// Eight steps with a checkpoint after every fourth, and a limit of two bad steps in a row.
fn plan_with_checkpoints(kind: StageKind) -> myxtts_run::plan::Plan {
    let mut plan = small::plan(kind, 8);
    (plan.training.checkpoint_every, plan.training.bad_steps_in_a_row) = (4, 2);
    plan
}

#[test]
fn a_temporary_fault_costs_only_the_steps_since_the_last_checkpoint() {
    for kind in KINDS {
        let plan = plan_with_checkpoints(kind);
        let weights = |once: Option<u64>, when: fn(u64) -> bool| {
            let runs = tempfile::tempdir().unwrap();
            let mut stage = faulty(kind, Clips::default(), 1, Fault::Gradient, when);
            stage.once = once;
            let (ended, said) = small::run(runs.path(), &plan, &mut stage);
            assert_eq!(ended.unwrap(), StageEnd::Done, "{kind:?}");
            let returned = small::events(runs.path(), "returned");
            (stage.inner.engine().read_arena(Arena::Weights).unwrap(), returned, said)
        };
        let (healthy, returned, _) = weights(None, |_| false);
        assert!(returned.is_empty(), "{kind:?}");
        let (weights, returned, said) = weights(Some(0), |step| (4..7).contains(&step));
        let [event] = &returned[..] else { panic!("{kind:?}: {returned:?}") };
        assert_eq!(event["step"], 4, "{kind:?}");
        assert!(said.iter().any(|line| line.contains("continues from step 4")), "{kind:?}: {said:?}");
        assert_eq!(weights, healthy, "{kind:?}: the weights differ");
    }
}

#[test]
fn a_permanent_fault_ends_the_run_the_second_time() {
    for kind in KINDS {
        let runs = tempfile::tempdir().unwrap();
        let mut stage = faulty(kind, Clips::default(), 1, Fault::Gradient, |step| step >= 4);
        let (ended, _) = small::run(runs.path(), &plan_with_checkpoints(kind), &mut stage);
        assert!(matches!(ended.unwrap_err(), TrainError::BadSteps { step: 7, .. }), "{kind:?}");
        assert_eq!(small::events(runs.path(), "returned").len(), 1, "{kind:?}");
    }
}

#[test]
fn an_exploding_gradient_is_skipped_and_its_parameters_are_named() {
    for kind in [StageKind::Dvae, StageKind::Gpt] {
        let plan = small::plan(kind, 4);
        let runs = tempfile::tempdir().unwrap();
        let mut stage = faulty(kind, Clips::default(), 1, Fault::Explosion, |step| step == 2);
        let (ended, said) = small::run(runs.path(), &plan, &mut stage);
        assert_eq!(ended.unwrap(), StageEnd::Done, "{kind:?}");
        let events = small::events(runs.path(), "exploded_gradient");
        let [event] = &events[..] else { panic!("{kind:?}: {events:?}") };
        assert_eq!(event["step"], 3, "{kind:?}");
        let named = event["gradients"][0]["parameter"].as_str().unwrap();
        let line = said.iter().find(|line| line.contains("was skipped")).unwrap();
        assert!(line.contains(named) && line.contains("training.gradient_clip"), "{kind:?}: {line}");
        assert!(small::events(runs.path(), "bad_step").is_empty(), "{kind:?}: the gradient is finite");
    }
}

#[test]
fn gradients_that_keep_exploding_end_the_stage_with_its_best_weights() {
    for kind in [StageKind::Dvae, StageKind::Gpt] {
        let mut plan = plan_with_checkpoints(kind);
        plan.training.validate_every = Some(2);
        let runs = tempfile::tempdir().unwrap();
        // From the fourth step on: a checkpoint after it would contain exploding weights.
        plan.training.checkpoint_every = 2;
        let mut stage = faulty(kind, Clips::default(), 1, Fault::Explosion, |step| step >= 3);
        let (ended, said) = small::run(runs.path(), &plan, &mut stage);
        assert_eq!(ended.unwrap(), StageEnd::Early, "{kind:?}");
        let returned = small::events(runs.path(), "returned");
        let [event] = &returned[..] else { panic!("{kind:?}: {returned:?}") };
        assert_eq!(event["step"], 2, "{kind:?}: the checkpoint before the first of them");
        let [again] = &small::events(runs.path(), "exploded_again")[..] else { panic!("{kind:?}: {said:?}") };
        assert_eq!(again["best"], 2, "{kind:?}");
        assert!(said.iter().any(|line| line.contains("had far too large gradients")), "{kind:?}: {said:?}");
        // The magnitude of every result: gradients multiplied by 1e9 are found where they begin.
        let batch = runs.path().join("run").join(format!("bad-batch-{}-6.json", stages::name(kind)));
        let batch: Value = serde_json::from_slice(&std::fs::read(batch).unwrap()).unwrap();
        let magnitudes = batch["magnitudes"].as_array().unwrap();
        let largest = |scope: fn(&str) -> bool| {
            let of = magnitudes.iter().filter(|one| scope(one["scope"].as_str().unwrap()));
            of.flat_map(|one| one["largest"].as_array().unwrap())
                .map(|x| x.as_f64().unwrap())
                .fold(0.0, f64::max)
        };
        assert!(largest(|scope| scope.ends_with('\'')) > 1e6, "{kind:?}");
        assert!(largest(|scope| !scope.ends_with('\'') && scope.contains("norm")) < 1e6, "{kind:?}");
    }
}

#[test]
fn good_clips_are_never_reported_as_bad() {
    for kind in KINDS {
        let stage = faulty(kind, Clips::default(), 1, Fault::Sound, |_| false);
        assert_eq!(assert_unharmed(&format!("{kind:?}"), stage, None), 0);
    }
}

#[test]
fn a_validation_clip_with_nan_is_reported_and_chooses_no_checkpoint() {
    let kind = StageKind::Dvae;
    let mut plan = small::plan(kind, 3);
    plan.training.validate_every = Some(1);
    let runs = tempfile::tempdir().unwrap();
    let clips = Clips::poisoned(small::CLIPS - 1, DVAE_MEL);
    let mut stage = small::stage(kind, &plan, clips, 1, ComputeDevice::CPU);
    let (ended, said) = small::run(runs.path(), &plan, &mut *stage);
    assert_eq!(ended.unwrap(), StageEnd::Done);
    assert!(said.iter().any(|line| line.contains("NaN or Inf")), "{said:?}");
    assert!(small::events(runs.path(), "checkpoint").iter().all(|event| event["score"].is_null()));
    assert!(small::events(runs.path(), "bad_step").is_empty(), "it was only validated on");
}
