use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("concatenate_time", |b| {
            let (batch, c) = (b.size(1, 4), b.size(1, 20));
            let times: Vec<_> = (0..b.size(1, 4)).map(|_| b.size(1, 9)).collect();
            let mut parts: Vec<_> = times.into_iter().map(|t| b.variable([batch, t, c])).collect();
            // One of them appears twice.
            parts.push(parts[0]);
            vec![b.tape.concatenate_time(&parts)]
        }),
        Case::new("concatenate_channels", |b| {
            let (batch, time) = (b.size(1, 4), b.size(1, 9));
            let channels: Vec<_> = (0..b.size(1, 4)).map(|_| b.size(1, 20)).collect();
            let parts: Vec<_> = channels.into_iter().map(|c| b.variable([batch, time, c])).collect();
            vec![b.tape.concatenate_channels(&parts)]
        }),
        Case::new("concatenate, aligned", |b| {
            let (batch, time, c) = (b.size(1, 4), b.size(1, 9), 8 * b.size(1, 4));
            let (x, y) = (b.variable([batch, time, c]), b.variable([batch, time, 8]));
            let z = b.tape.concatenate_channels(&[x, y, x]);
            vec![b.tape.concatenate_time(&[z, z]), b.tape.concatenate_channels(&[y, y])]
        }),
    ]
}
