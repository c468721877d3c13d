use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![Case::new("transpose", |b| {
        let (batch, time, c) = (b.size(1, 3), b.size(1, 150), b.size(1, 150));
        let x = b.variable([batch, time, c]);
        let y = b.tape.transpose(x);
        // Used twice: its gradient has a base.
        vec![b.tape.add(y, y), b.tape.transpose(x)]
    })]
}
