//! Faults in the real pipeline: a stage on the CPU whose batches are delayed on purpose.

use crate::synthetic::{CODES, COUNT, VOCABULARY, Voices, codes};
use myxtts_data::batch::Rows;
use myxtts_model::{GptSizes, Masks};
use myxtts_run::config::{HostResources, Sources};
use myxtts_run::plan::{Plan, StageKind};
use myxtts_tensor::Mode;
use myxtts_train::diagnose::trace::Batch;
use myxtts_train::diagnose::{
    BatchSetup, Cause, Fault, FaultKind, NoMachineSampler, Trace, TraceSettings, collect, diagnose,
};
use myxtts_train::feed::FeedSettings;
use myxtts_train::overlay::WithCodes;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::Stage;
use myxtts_train::stages::gpt::{GptSettings, GptStage, Lengths};
use myxtts_train::{ComputeDevice, Model};
use std::sync::Arc;

const ROWS: usize = 4;

fn trace_of(kind: FaultKind) -> Trace {
    short_trace(kind, 12)
}

fn short_trace(kind: FaultKind, batches: u64) -> Trace {
    // Other programs on the test machine must not affect the diagnosis.
    Trace { cpu: None, ..measured(kind, 7, batches) }
}

/// With all measurements.
fn measured(kind: FaultKind, seed: u64, batches: u64) -> Trace {
    let fault = Fault::new(kind);
    let plan = Plan::resolve(&Sources::for_host(HostResources::detect())).unwrap();
    let recipe = plan.recipe(StageKind::Gpt, false);
    let mut sizes = GptSizes::of(1, 32, 2, VOCABULARY, CODES);
    (sizes.conditioning.blocks, sizes.perceiver.latents, sizes.perceiver.depth) = (1, 4, 1);
    (sizes.max_text, sizes.max_audio) = (40, 40);
    (sizes.start_text, sizes.stop_text) = (1, 2);
    let feeding = fault.feeding(FeedSettings { workers: 2, ..FeedSettings::default() });
    let settings = GptSettings {
        sizes,
        rows: Rows::Fixed(ROWS as u32),
        frames: 8,
        masks: Masks::Corrected,
        accumulate: 1,
        mode: Mode::Captured,
        feeding,
        lengths: fault.lengths(Lengths { buckets: 2, unit: 16 }),
        balance: 1.0,
        order: Default::default(),
        conditioning: Default::default(),
        start_delay: None,
        seed,
        memory_limit: None,
        freeze_layers: 0,
        lora_rank: None,
        regularization: Default::default(),
    };
    let source = fault.source(Arc::new(Voices { broken: None }));
    let source = Arc::new(WithCodes::new(source, (0..COUNT).map(codes).collect()));
    let train: Vec<u32> = (0..COUNT as u32).collect();
    let stage = GptStage::new(
        ReplicaSlice::WHOLE,
        settings,
        recipe,
        ComputeDevice::CPU,
        source,
        RecordSplit { train: &train, validation: &[] },
        &Model::default(),
    )
    .unwrap();
    let mut stage: Box<dyn Stage> = Box::new(stage);
    let setup = BatchSetup { workers: feeding.workers, batch_size: ROWS };
    let run = |stage: &mut dyn Stage, batches| {
        let amount = TraceSettings { batches, warm: 4, ahead: 0 };
        collect(stage, &recipe, 1, amount, setup, Some(fault), &mut NoMachineSampler).unwrap()
    };
    let healthy = run(&mut *stage, 6);
    let step = healthy.batches.iter().map(|batch| batch.period).sum::<f64>() / 6.0;
    // So slow that other load of this machine is small in comparison.
    fault.arm_with(step.max(0.004), ROWS);
    let hog = fault.hog().unwrap();
    let trace = run(&mut *stage, batches);
    drop(hog);
    trace
}

/// Tried a few times: other load of this machine may be named instead.
fn is_named(kind: FaultKind) -> Trace {
    is_named_in(kind, || trace_of(kind))
}

fn is_named_in(kind: FaultKind, trace: impl Fn() -> Trace) -> Trace {
    let mut named = Vec::new();
    for _ in 0..4 {
        let trace = trace();
        let findings = diagnose(&trace).findings;
        if findings.iter().any(|finding| finding.cause == kind.cause()) {
            return trace;
        }
        named.push(findings);
    }
    panic!("{kind:?} was never named: {named:#?}")
}

#[test]
fn late_records_are_distinguished_from_computed_records() {
    let disk = is_named(FaultKind::SlowDisk);
    assert!(disk.batches.iter().all(|batch| batch.decode == 0.0 && batch.read > 0.0));
    let decode = is_named(FaultKind::SlowDecode);
    let sum = |of: fn(&Batch) -> f64| decode.batches.iter().map(of).sum::<f64>();
    assert!(sum(|batch| batch.decode) > sum(|batch| batch.read), "what is computed is not read");
}

#[test]
fn without_a_gpu_nothing_is_copied_or_reported_as_copied() {
    let trace = trace_of(FaultKind::PageableUpload);
    assert!(trace.setup.pinned && FaultKind::PageableUpload.needs_gpu().is_some());
    assert!(diagnose(&trace).findings.iter().all(|found| found.cause != Cause::PageableUploads));
}

#[test]
fn a_lock_between_copies_and_steps_shows_in_the_measurements_of_the_feed() {
    let trace = is_named(FaultKind::UploadLock);
    // At least two fifths of a step of 4 ms.
    assert!(trace.batches.iter().all(|batch| batch.upload >= 0.0016), "{:?}", trace.batches);
    assert!(trace.batches.iter().map(|batch| batch.blocked).sum::<f64>() > 0.0);
}

#[test]
fn a_stall_of_the_feed_shows_in_its_measurements() {
    let trace = trace_of(FaultKind::PeriodicStall);
    // At least ten steps of 4 ms, for one batch in six.
    let late = trace.batches.iter().filter(|batch| batch.fill >= 0.040).count();
    assert_eq!(late, 2, "{:?}", trace.batches);
    assert!(trace.batches.iter().all(|batch| batch.upload < 0.040 && batch.blocked < 0.040));
}

/// Enough batches that each of the four threads makes several.
#[test]
fn a_slow_thread_is_named_with_its_number() {
    let trace = is_named_in(FaultKind::SlowWorker, || short_trace(FaultKind::SlowWorker, 48));
    let findings = diagnose(&trace).findings;
    assert!(findings.iter().any(|found| found.evidence.contains("thread batch-1 ")), "{findings:?}");
}

#[test]
fn two_slots_and_uneven_batches_are_a_buffer_that_is_too_small() {
    let trace = is_named_in(FaultKind::TinyBuffer, || short_trace(FaultKind::TinyBuffer, 48));
    assert_eq!(trace.setup.slots, 2);
}

#[test]
fn steps_that_are_computed_twice_are_slow_and_some_that_are_computed_several_times_vary() {
    is_named_in(FaultKind::SlowStep, || short_trace(FaultKind::SlowStep, 24));
    is_named_in(FaultKind::NoisyStep, || short_trace(FaultKind::NoisyStep, 24));
}

#[test]
fn programs_that_use_all_cores_are_named_by_the_counters_of_the_system() {
    let cpu = measured(FaultKind::Healthy, 7, 4).cpu;
    if cpu.is_none_or(|cpu| cpu.delayed.is_none()) {
        return println!("skipped: this system does not count the CPU time of its threads");
    }
    is_named_in(FaultKind::CpuHog, || measured(FaultKind::CpuHog, 7, 48));
}

#[test]
fn many_lengths_are_many_shapes() {
    let shapes = |trace: &Trace| {
        trace.batches.iter().map(|b| b.shape).collect::<std::collections::BTreeSet<_>>().len()
    };
    let (few, many) = (trace_of(FaultKind::Healthy), trace_of(FaultKind::ShapeChurn));
    assert!(
        few.setup.pinned && shapes(&few) <= 2 && shapes(&many) > 4,
        "{} and {}",
        shapes(&few),
        shapes(&many)
    );
    assert!(!few.replayed.is_empty() && diagnose(&few).compared.is_some(), "nothing was replayed");
}

/// On this machine as it is: other programs that use it are named as well.
#[test]
#[ignore = "a measurement without assertions: cargo test -p myxtts-train --test train -- --ignored every_fault --nocapture"]
fn how_often_every_fault_is_named_on_this_cpu() {
    let from: u64 = std::env::var("FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(100);
    for seed in from..from + 5 {
        for kind in FaultKind::ALL {
            let trace = measured(kind, seed, 48);
            let found = diagnose(&trace);
            let all: Vec<Cause> = found.findings.iter().map(|finding| finding.cause).collect();
            let row = serde_json::json!({
                "planted": kind, "seed": seed, "first": found.cause() == kind.cause(),
                "named": all.contains(&kind.cause()), "findings": found.findings, "busy": found.busy,
                "waiting": found.waiting, "left_out": found.left_out, "processor": trace.cpu,
                "setup": trace.setup,
            });
            println!("{row}");
        }
    }
}
