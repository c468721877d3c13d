//! A checkpoint depends on the network and its data, not on the device it was made on.

use myxtts_run::checkpoint::{Checkpoint, Checkpoints};
use myxtts_run::plan::StageKind;
use myxtts_tensor::engine::Arena;
use myxtts_tensor::{Device, Precision};
use myxtts_train::{ComputeDevice, TrainError};
use std::path::Path;

use super::small::{self, Clips};

const KINDS: [StageKind; 3] = [StageKind::Dvae, StageKind::Gpt, StageKind::Decoder];

fn newest(runs: &Path) -> Checkpoint {
    let latest = Checkpoints::at(&runs.join("run/checkpoints")).latest_valid().unwrap();
    assert!(latest.damaged.is_empty(), "{:?}", latest.damaged);
    latest.checkpoint.unwrap()
}

/// Resumes a run for one step on this device; returns the number of good steps so far. A GPU also completes the steps that
/// were queued.
fn one_step(runs: &Path, kind: StageKind, machine: ComputeDevice) -> u64 {
    let plan = small::plan(kind, 64);
    let mut stage = small::stage(kind, &plan, Clips::default(), 1, machine);
    match small::run_until(runs, &plan, &mut *stage, 0).0 {
        Err(TrainError::Stopped { step, .. }) => {
            let steps = stage.engine().state().unwrap().steps;
            assert_eq!(steps, step, "{kind:?}: a step was NaN or Inf");
            steps
        }
        other => panic!("{kind:?}: {other:?}"),
    }
}

/// The blobs of a checkpoint have the sizes of the layout, which is built without a device, and its metadata does not
/// mention one.
#[test]
fn nothing_in_a_checkpoint_depends_on_the_device() {
    for kind in KINDS {
        let runs = tempfile::tempdir().unwrap();
        one_step(runs.path(), kind, ComputeDevice::CPU);
        let stage = small::stage(kind, &small::plan(kind, 8), Clips::default(), 1, ComputeDevice::CPU);
        let layout = stage.engine().layout();
        let checkpoint = newest(runs.path());
        let sizes: Vec<(String, u64)> =
            checkpoint.blobs.iter().map(|blob| (blob.name.clone(), blob.bytes)).collect();
        let of = |name: &str, elements: usize| (name.to_owned(), 4 * elements as u64);
        let trained = layout.trained_len();
        let expected =
            [("weights", layout.len()), ("moment1", trained), ("moment2", trained), ("average", trained)];
        assert_eq!(sizes, expected.map(|(name, elements)| of(name, elements)), "{kind:?}");
        let meta = checkpoint.meta.as_object().unwrap();
        let known = [
            "advice",
            "bad",
            "best",
            "early",
            "engine_steps",
            "layout",
            "position",
            "spikes",
            "stage",
            "step",
            "trend",
        ];
        assert!(meta.keys().map(String::as_str).eq(known), "{kind:?}: is {meta:?} true on every device?");
        let words = checkpoint.meta.to_string().to_lowercase();
        for word in ["cuda", "cpu", "device", "precision"] {
            assert!(!words.contains(word), "{kind:?}: {word} in {words}");
        }
    }
}

#[test]
fn a_run_moves_from_the_cpu_to_a_gpu_and_back() {
    let gpu = match ComputeDevice::choose(Some(Device::Cuda(0))) {
        Ok(gpu) => gpu,
        Err(reason) => {
            println!("a_run_moves_from_the_cpu_to_a_gpu_and_back: skipped, no CUDA device: {reason}");
            return;
        }
    };
    for kind in KINDS {
        // The heads of this GPT have 16 channels, which the bf16 kernels do not support.
        let gpu =
            if kind == StageKind::Gpt { ComputeDevice { precision: Precision::F32, ..gpu } } else { gpu };
        for order in [
            [ComputeDevice::CPU, gpu, ComputeDevice::CPU, gpu],
            [gpu, ComputeDevice::CPU, gpu, ComputeDevice::CPU],
        ] {
            let runs = tempfile::tempdir().unwrap();
            let mut before = 0;
            for machine in order {
                let now = one_step(runs.path(), kind, machine);
                assert!(now > before, "{kind:?} on {:?}: {before} steps, then {now}", machine.device);
                before = now;
            }
        }
        // A stage resumed on the other device starts with exactly the saved bits.
        let runs = tempfile::tempdir().unwrap();
        one_step(runs.path(), kind, gpu);
        let checkpoint = newest(runs.path());
        let saved = Checkpoints::at(&runs.path().join("run/checkpoints")).load(&checkpoint.name()).unwrap();
        let mut stage = small::stage(kind, &small::plan(kind, 1), Clips::default(), 1, ComputeDevice::CPU);
        // A stage of one step has nothing left to do.
        small::run(runs.path(), &small::plan(kind, 1), &mut *stage).0.unwrap();
        let weights = stage.engine().read_arena(Arena::Weights).unwrap();
        assert!(bytemuck::cast_slice::<f32, u8>(&weights) == saved.read("weights").unwrap(), "{kind:?}");
    }
}
