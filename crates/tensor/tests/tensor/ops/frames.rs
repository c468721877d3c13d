use crate::suite::Case;
use myxtts_tensor::ops::frames::Framing;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("frames", |b| {
            let (items, samples) = (b.size(1, 3), b.size(20, 400));
            let (size, hop) = (b.size(1, 20), b.size(1, 24));
            let pad = b.size(0, samples - 1);
            let x = b.master([items, samples]);
            vec![b.tape.frames(x, Framing { size, hop, pad })]
        })
        .rounds(8),
        Case::new("frames, centred and twice", |b| {
            let x = b.master([2, 600]);
            let first = b.tape.frames(x, Framing::centred(512, 128));
            vec![first, b.tape.frames(x, Framing::centred(64, 16))]
        }),
    ]
}

#[test]
fn the_number_of_frames_is_known() {
    for (framing, samples, frames) in [
        (Framing::centred(1024, 256), 41_885, 164),
        (Framing { size: 4, hop: 2, pad: 0 }, 10, 4),
        (Framing { size: 4, hop: 2, pad: 0 }, 11, 4),
        (Framing { size: 4, hop: 2, pad: 0 }, 3, 0),
    ] {
        assert_eq!(framing.count(samples), frames, "{framing:?} of {samples}");
    }
}
