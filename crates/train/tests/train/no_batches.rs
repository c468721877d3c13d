//! Batches that stop coming: the weights are saved before the run ends with the reason.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use myxtts_data::loader::LoaderError;
use myxtts_run::checkpoint::Checkpoints;
use myxtts_run::plan::StageKind;
use myxtts_train::stages::name;
use myxtts_train::{ComputeDevice, TrainError};

use super::small::{self, Clips, everything};

/// The step of the newest checkpoint; all checkpoints must be intact.
fn saved(runs: &Path) -> u64 {
    let checkpoints = Checkpoints::at(&runs.join("run/checkpoints"));
    let listing = checkpoints.list().unwrap();
    assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
    listing.checkpoints.iter().for_each(|checkpoint| checkpoints.verify(checkpoint).unwrap());
    listing.checkpoints.last().map_or(0, |checkpoint| checkpoint.step)
}

/// The run used to end at its last checkpoint; here there would be none. The decoder ended at the first bad clip, whatever
/// `data.failure_budget` was.
#[test]
fn too_many_bad_records_lost_the_steps_since_the_last_checkpoint() {
    for kind in [StageKind::Dvae, StageKind::Decoder] {
        let plan = small::plan(kind, 100_000);
        let runs = tempfile::tempdir().unwrap();
        let mut before = 0;
        for attempt in 0..3 {
            let (clips, is_damaged) = damaged(2);
            let mut stage = small::stage(kind, &plan, clips, 1, ComputeDevice::CPU);
            is_damaged.store(true, Ordering::Relaxed);
            let (ended, said) = small::run(runs.path(), &plan, &mut *stage);
            let Err(TrainError::Loader(LoaderError::BudgetSpent { step, .. })) = ended else {
                panic!("{kind:?}, attempt {attempt}: {ended:?}")
            };
            let now = saved(runs.path());
            assert_eq!(now, step, "{kind:?}, attempt {attempt}: the steps before {step} are done");
            assert!(now > before, "{kind:?}, attempt {attempt}: from step {before} to {now}");
            let words = format!("no batch for step {} of `{}`: step {now} is saved", now + 1, name(kind));
            assert!(
                said.iter().any(|line| line.starts_with(&words) && line.contains("--resume run")),
                "{said:?}"
            );
            before = now;
        }
    }
}

/// Clips; one of them is damaged once the flag is set.
fn damaged(record: usize) -> (Clips, &'static AtomicBool) {
    let is_damaged: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    (Clips { damaged: Some((record, is_damaged)), ..Clips::default() }, is_damaged)
}

/// The first bad clip ended the stage, although `data.failure_budget` allows some.
#[test]
fn one_bad_clip_ended_the_decoder_stage() {
    let mut plan = small::plan(StageKind::Decoder, 12);
    plan.training.validate_every = Some(6);
    let make = |is_bad: bool| {
        let (clips, is_damaged) = damaged(2);
        let stage = small::stage(StageKind::Decoder, &plan, clips, 1, ComputeDevice::CPU);
        is_damaged.store(is_bad, Ordering::Relaxed);
        stage
    };
    let [whole, bad, parts] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut undamaged = make(false);
    let (ended, said) = small::run(whole.path(), &plan, &mut *undamaged);
    ended.unwrap();
    assert!(!said.iter().any(|line| line.contains("clip-2")), "{said:?}");

    let mut replaced = make(true);
    let (ended, said) = small::run(bad.path(), &plan, &mut *replaced);
    ended.unwrap();
    let named: Vec<_> = said.iter().filter(|line| line.contains("clip-2")).collect();
    assert!(matches!(&named[..], [line] if line.contains("clip-2")), "named once: {named:?}");
    assert!(everything(&*replaced) != everything(&*undamaged), "the bad clip was never sampled");

    let stopped = small::run_until(parts.path(), &plan, &mut *make(true), 5).0;
    assert!(matches!(stopped, Err(TrainError::Stopped { .. })), "{stopped:?}");
    assert!((1..12).contains(&saved(parts.path())), "stopped on the way");
    let mut resumed = make(true);
    small::run(parts.path(), &plan, &mut *resumed).0.unwrap();
    assert!(everything(&*resumed) == everything(&*replaced), "a resumed run took other clips in its place");
}

/// A bad clip of the validation set ended the decoder stage too.
#[test]
fn one_bad_validation_clip_ended_the_decoder_stage() {
    let plan = small::plan(StageKind::Decoder, 2);
    let (clips, is_damaged) = damaged(5);
    let clips = Clips { validation: 2, ..clips };
    let mut stage = small::stage(StageKind::Decoder, &plan, clips, 1, ComputeDevice::CPU);
    let whole = stage.validate().unwrap().unwrap();
    is_damaged.store(true, Ordering::Relaxed);
    let replaced = stage.validate().unwrap().unwrap();
    assert_ne!(whole.score, replaced.score, "the clip before the bad one is measured twice");
    is_damaged.store(false, Ordering::Relaxed);
    assert_eq!(stage.validate().unwrap().unwrap(), whole);
}

#[test]
fn a_disk_that_goes_away_costs_no_step_of_any_stage() {
    for (kind, steps, accumulate) in
        [(StageKind::Dvae, 40, 1), (StageKind::Gpt, 8, 1), (StageKind::Gpt, 8, 2), (StageKind::Decoder, 4, 1)]
    {
        let what = format!("{kind:?}, {accumulate} batches a step");
        let plan = small::plan(kind, steps);
        let make = |clips| small::stage(kind, &plan, clips, accumulate, ComputeDevice::CPU);
        let [whole, broken] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut undisturbed = make(Clips::default());
        small::run(whole.path(), &plan, &mut *undisturbed).0.unwrap();
        let left: &'static AtomicI64 = Box::leak(Box::new(AtomicI64::new(i64::MAX)));
        let mut stage = make(Clips { reads_left: Some(left), ..Clips::default() });
        // Reads while the stage is built do not count.
        left.store(accumulate as i64 * steps as i64, Ordering::Relaxed);
        let error = small::run(broken.path(), &plan, &mut *stage).0.unwrap_err();
        assert!(error.to_string().contains("the disk is gone"), "{what}: {error}");
        let step = saved(broken.path());
        assert!((1..steps).contains(&step), "{what}: saved at step {step}");
        let mut resumed = make(Clips::default());
        small::run(broken.path(), &plan, &mut *resumed).0.unwrap();
        assert!(everything(&*resumed) == everything(&*undisturbed), "{what}: another run after step {step}");
    }
}
