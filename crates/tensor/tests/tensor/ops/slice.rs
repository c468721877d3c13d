use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("slice_time", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(2, 20), b.size(1, 20));
            let x = b.variable([batch, time, c]);
            let cut = b.size(1, time - 1);
            vec![b.tape.slice_time(x, 0..cut), b.tape.slice_time(x, cut - 1..time)]
        }),
        Case::new("slice_channels", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(1, 20), b.size(2, 40));
            let x = b.variable([batch, time, c]);
            let cut = b.size(1, c - 1);
            vec![b.tape.slice_channels(x, 0..cut), b.tape.slice_channels(x, cut - 1..c)]
        }),
        Case::new("slices, aligned", |b| {
            let (batch, time, n) = (b.size(1, 4), b.size(2, 20), 8 * b.size(1, 5));
            let x = b.variable([batch, time, 3 * n]);
            let y = b.tape.slice_channels(x, n..2 * n);
            vec![b.tape.slice_time(y, 1..time), b.tape.slice_channels(x, 8..3 * n)]
        }),
    ]
}
