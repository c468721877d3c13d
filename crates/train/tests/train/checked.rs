//! Checked results: a healthy step has no fault, and in a bad one the operation is named.

use myxtts_data::record::{DVAE_MEL, SPEAKER_MEL};
use myxtts_run::plan::StageKind;
use myxtts_tensor::{Control, Mode};
use myxtts_train::ComputeDevice;

use super::small::{self, Clips};

#[test]
fn every_result_of_a_healthy_step_is_finite_in_every_stage() {
    for kind in [StageKind::Dvae, StageKind::Gpt, StageKind::Decoder] {
        let plan = small::plan(kind, 4);
        let mut stage = small::stage(kind, &plan, Clips::default(), 1, ComputeDevice::CPU);
        stage.engine_mut().set_mode(Mode::Checked);
        // The decoder's later steps have discriminators.
        for step in 0..4 {
            let taken = stage.submit(step, &Control { rate: 1e-4, ..Control::default() }).unwrap();
            assert!(stage.wait(taken.ticket).unwrap().good);
            let fault = stage.engine_mut().take_first_nonfinite().map(|fault| fault.to_string());
            assert_eq!(fault, None, "step {step} of {kind:?}");
        }
    }
}

#[test]
fn a_clip_with_nan_is_traced_to_the_first_operation_that_reads_it() {
    for (kind, column) in [(StageKind::Dvae, DVAE_MEL), (StageKind::Decoder, SPEAKER_MEL)] {
        let mut plan = small::plan(kind, 6);
        plan.training.enable_eager_debug = true;
        let mut stage = small::stage(kind, &plan, Clips::poisoned(1, column), 1, ComputeDevice::CPU);
        stage.engine_mut().set_mode(Mode::Checked);
        let folder = tempfile::tempdir().unwrap();
        let (_, said) = small::run(folder.path(), &plan, &mut *stage);
        let named = said.iter().find(|line| line.contains("is the first with a NaN or Inf output"));
        let named = named.unwrap_or_else(|| panic!("{kind:?}: {said:?}"));
        assert!(named.contains("its inputs are not finite either"), "{named}");
        assert!(!small::events(folder.path(), "fault").is_empty());
    }
}

/// The memory contents left by a step, finite or not, must not affect the next: each step writes what it reads.
#[test]
fn a_step_reads_nothing_that_it_did_not_write() {
    for machine in small::machines("a_step_reads_nothing_that_it_did_not_write") {
        for kind in [StageKind::Dvae, StageKind::Gpt, StageKind::Decoder] {
            let plan = small::plan(kind, 6);
            let run = |forgetful: bool| {
                let mut stage = small::stage(kind, &plan, Clips::default(), 1, machine);
                for step in 0..6 {
                    if forgetful {
                        stage.engine().poison_scratch().unwrap();
                    }
                    let control = Control { rate: 1e-4, seed: step, ..Control::default() };
                    let taken = stage.submit(step, &control).unwrap();
                    let report = stage.wait(taken.ticket).unwrap();
                    assert!(report.good, "{kind:?} on {machine:?}: step {step} is NaN or Inf");
                }
                small::everything(&*stage)
            };
            assert!(
                run(false) == run(true),
                "{kind:?} on {machine:?}: old memory contents have changed the weights"
            );
        }
    }
}
