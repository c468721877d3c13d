//! Audio codes: those of a clip do not depend on the clips of its batch.

use myxtts_model::dvae::DvaeSizes;
use myxtts_run::plan::StageKind;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::stages::codes::Encoder;
use myxtts_train::stages::dvae::{DvaeSettings, DvaeStage};
use myxtts_train::stages::{RecordSplit, StageCore};
use myxtts_train::{ComputeDevice, Model};
use std::collections::HashSet;
use std::sync::Arc;

use super::small::{self, Clips};

const BANDS: usize = 80;

/// A DVAE of the preset tiny with random weights, and a codebook of the rows it computes.
fn model() -> Model {
    let sizes = DvaeSizes { hidden: 64, blocks: 1, codes: 256, code_width: 64, ..DvaeSizes::v2() };
    let settings = DvaeSettings { sizes, ..small::dvae_settings() };
    let recipe = small::plan(StageKind::Dvae, 1).recipe(StageKind::Dvae, false);
    let sides = RecordSplit { train: &[0, 1, 2, 3, 4, 5], validation: &[] };
    let source = Arc::new(Clips::default());
    let mut model = Model::default();
    let (slice, machine) = (ReplicaSlice::WHOLE, ComputeDevice::CPU);
    let stage = DvaeStage::new(slice, settings, recipe, machine, source, sides, &model).unwrap();
    stage.finish(&mut model, false).unwrap();
    model
}

fn mel(frames: usize, clip: usize) -> Vec<f32> {
    (0..frames * BANDS).map(|i| -6.0 + 3.0 * (i as f32 * 0.37 + (i / 173 + clip) as f32).sin()).collect()
}

#[test]
fn codes_of_a_batch_equal_those_of_each_clip_alone() {
    let model = model();
    let mut encoder = Encoder::new(&model, ComputeDevice::CPU).unwrap();
    // Every remainder of a code's 4 frames and of the unit of padding; several clips of most padded lengths.
    let lengths = (0..140).chain([191, 192, 193, 254, 255, 256, 257, 511, 640, 1023, 1025, 1090, 2000]);
    let mels: Vec<Vec<f32>> = lengths.enumerate().map(|(clip, frames)| mel(frames, clip)).collect();
    let clips: Vec<&[f32]> = mels.iter().map(|mel| &mel[..]).collect();
    let together = encoder.codes_of_all(&clips).unwrap();
    let used: HashSet<i32> = together.iter().flatten().copied().collect();
    assert!(used.len() > 20, "all clips have the same {} codes", used.len());
    for (clip, codes) in clips.iter().zip(&together) {
        let frames = clip.len() / BANDS;
        assert_eq!(codes.len(), frames.div_ceil(4), "{frames} frames");
        assert_eq!(*codes, encoder.codes(clip).unwrap(), "{frames} frames");
    }
    // In another batch, and at another place of it.
    let backwards: Vec<&[f32]> = clips.iter().copied().rev().step_by(3).collect();
    let made = encoder.codes_of_all(&backwards).unwrap();
    assert!(made.iter().eq(together.iter().rev().step_by(3)));
}
