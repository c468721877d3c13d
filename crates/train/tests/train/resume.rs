//! A stage that is stopped and resumed equals one that was never stopped, wherever it was stopped.

use myxtts_run::plan::{Plan, StageKind};
use myxtts_train::session::StageEnd;
use myxtts_train::stages::Stage;
use myxtts_train::{ComputeDevice, TrainError};

use super::small::{self, Clips, everything};

/// A DVAE moves its unused codes after step 20, in the first three quarters: a run resumed there has to do the same.
const STEPS: [(StageKind, u64); 3] = [(StageKind::Dvae, 28), (StageKind::Gpt, 6), (StageKind::Decoder, 4)];

/// Builds a stage, any number of times.
type Make<'a> = &'a dyn Fn() -> Box<dyn Stage>;

#[test]
fn a_stage_stopped_after_every_step_is_bit_identical_to_an_uninterrupted_one() {
    let test = "a_stage_stopped_after_every_step_is_bit_identical_to_an_uninterrupted_one";
    for machine in small::machines(test) {
        for (kind, steps) in STEPS {
            let plan = validated(kind, steps);
            assert_resumes(kind, &plan, steps, &|| small::stage(kind, &plan, Clips::default(), 1, machine));
        }
    }
}

/// Fine-tuning a model, and training adapters for one, on the CPU and on a GPU.
#[test]
fn fine_tuning_and_adapters_resume_bit_identically() {
    for machine in small::machines("fine_tuning_and_adapters_resume_bit_identically") {
        for lora_rank in [None, Some(2)] {
            let plan = validated(StageKind::Gpt, 6);
            assert_resumes(StageKind::Gpt, &plan, 6, &|| small::fine_tuned_gpt(&plan, lora_rank, machine));
        }
    }
}

fn validated(kind: StageKind, steps: u64) -> Plan {
    let mut plan = small::plan(kind, steps);
    plan.training.validate_every = Some(2);
    plan
}

fn assert_resumes(kind: StageKind, plan: &Plan, steps: u64, make: Make<'_>) {
    let [whole, pieces] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut undisturbed = make();
    small::run(whole.path(), plan, &mut *undisturbed).0.unwrap();
    let (mut stops, mut last) = (0, 0);
    let stopped = loop {
        let mut stage = make();
        let in_turn = stage.engine().cuda().is_none();
        // It is asked to stop as soon as it has made one more step.
        match small::run_until(pieces.path(), plan, &mut *stage, 0).0 {
            Ok(ended) => {
                assert_eq!(ended, StageEnd::Done);
                break stage;
            }
            Err(TrainError::Stopped { step, .. }) => {
                // A GPU has steps in flight when it is asked.
                assert!(step > last && (step == last + 1 || !in_turn), "{kind:?}: {step} after {last}");
                (stops, last) = (stops + 1, step);
            }
            Err(error) => panic!("{kind:?}: {error}"),
        }
    };
    let expected = if undisturbed.engine().cuda().is_none() { steps - 1 } else { 1 };
    assert!(stops >= expected, "{kind:?}: stopped {stops} times");
    assert!(everything(&*stopped) == everything(&*undisturbed), "{kind:?}: another run");
    let losses = |runs: &tempfile::TempDir| -> Vec<String> {
        let events = small::events(runs.path(), "validation");
        events.iter().map(|event| event["numbers"].to_string()).collect()
    };
    assert_eq!(losses(&pieces), losses(&whole), "{kind:?}: validation");
}

/// Ended early, and killed before its model was written: a resumed run must find it ended.
#[test]
fn a_stage_that_ended_early_does_not_continue() {
    let kind = StageKind::Gpt;
    let mut plan = small::plan(kind, 20);
    plan.training.validate_every = Some(1);
    plan.training.early_stop_patience = Some(2);
    // Nothing changes, so nothing improves.
    plan.training.learning_rate = Some(1e-30);
    let runs = tempfile::tempdir().unwrap();
    let mut stage = small::stage(kind, &plan, Clips::default(), 1, ComputeDevice::CPU);
    assert_eq!(small::run(runs.path(), &plan, &mut *stage).0.unwrap(), StageEnd::Early);
    let (before, saved) = (everything(&*stage), small::events(runs.path(), "checkpoint").len());
    let mut again = small::stage(kind, &plan, Clips::default(), 1, ComputeDevice::CPU);
    assert_eq!(small::run(runs.path(), &plan, &mut *again).0.unwrap(), StageEnd::Early);
    assert!(everything(&*again) == before, "it trained on");
    assert_eq!(small::events(runs.path(), "checkpoint").len(), saved);
}
