use crate::suite::Case;
use myxtts_tensor::ops::pad::Padding;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("pad_time by zeros", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(1, 20), b.size(1, 20));
            let x = b.variable([batch, time, c]);
            let (left, right) = (b.size(0, 5), b.size(0, 5));
            vec![b.tape.pad_time(x, left, right, Padding::Zeros), b.tape.pad_time(x, 2, 0, Padding::Zeros)]
        }),
        Case::new("pad_time by reflection", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(2, 20), b.size(1, 20));
            let x = b.variable([batch, time, c]);
            let (left, right) = (b.size(0, time - 1), b.size(0, time - 1));
            vec![b.tape.pad_time(x, left, right, Padding::Reflection)]
        }),
        Case::new("pad_time, aligned", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(4, 20), 8 * b.size(1, 4));
            let x = b.variable([batch, time, c]);
            let y = b.tape.pad_time(x, 3, time - 1, Padding::Reflection);
            vec![b.tape.pad_time(y, 0, 5, Padding::Zeros), b.tape.pad_time(x, 1, 0, Padding::Reflection)]
        }),
    ]
}
