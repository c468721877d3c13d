//! A voice with one clip is heard by that clip, and what was heard of it is not asked of the model.

use myxtts_run::plan::StageKind;
use myxtts_tensor::Control;
use myxtts_train::ComputeDevice;

use super::small::{self, Clips};

/// Codes that count in the loss of each of the first steps.
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
fn codes_that_were_heard_are_left_out_of_the_loss_and_no_others() {
    // Two rows of ten codes and the end.
    assert!(counted(Clips::default()).iter().all(|&count| count == 22.0));
    // Of 40 frames 20 are heard: five codes of four frames each, or six where they do not begin with one.
    let alone = counted(Clips { alone: true, ..Clips::default() });
    assert!(alone.iter().all(|count| (10.0..=12.0).contains(count)), "{alone:?}");
    assert!(alone.iter().any(|count| *count < 12.0), "it always begins with a code: {alone:?}");
}
