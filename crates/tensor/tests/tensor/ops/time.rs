use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("time_mean", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(1, 20), b.size(1, 40));
            let x = b.variable([batch, time, c]);
            vec![b.tape.time_mean(x, None)]
        }),
        Case::new("time_mean over lengths", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(1, 200), 8 * b.size(1, 10));
            let x = b.variable([batch, time, c]);
            let lengths = (0..batch).map(|_| b.random.below(time + 1) as i32).collect();
            let lengths = b.integers([batch], lengths);
            vec![b.tape.time_mean(x, Some(lengths)), b.tape.time_mean(x, None)]
        }),
    ]
}
