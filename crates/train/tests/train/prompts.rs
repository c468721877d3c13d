//! A speaker with only one clip is conditioned on that clip, and the conditioning part is not a target.

use myxtts_run::plan::StageKind;
use myxtts_tensor::Control;
use myxtts_train::ComputeDevice;

use super::small::{self, Clips};

/// Number of code targets in each of the first steps.
fn counted(clips: Clips) -> Vec<f32> {
    let mut stage =
        small::stage(StageKind::Gpt, &small::plan(StageKind::Gpt, 8), clips, 1, ComputeDevice::CPU);
    let count = |step| {
        let queued = stage.submit(step, &Control::default()).unwrap();
        stage.engine_mut().wait(queued.ticket).unwrap().notes[3]
    };
    (0..8).map(count).collect()
}

#[test]
fn only_codes_of_the_conditioning_part_are_left_out_of_the_loss() {
    // Two rows of ten codes and STOP.
    assert!(counted(Clips::default()).iter().all(|&count| count == 22.0));
    // 20 of 40 frames condition: five codes of four frames each, or six if they do not start at a code.
    let alone = counted(Clips { alone: true, ..Clips::default() });
    assert!(alone.iter().all(|count| (10.0..=12.0).contains(count)), "{alone:?}");
    assert!(alone.iter().any(|count| *count < 12.0), "it always starts at a code: {alone:?}");
}
