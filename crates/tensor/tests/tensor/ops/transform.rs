use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![Case::new("transform", |b| {
        let (batch, time, k, n) = (b.size(1, 3), b.size(1, 20), b.size(1, 40), b.size(1, 40));
        let data = b.random.normals(n * k);
        let (x, matrix) = (b.master([batch, time, k]), b.constant([n, k], data));
        let y = b.tape.transform(x, matrix);
        // Used twice: gradients are accumulated.
        vec![y, b.tape.transform(x, matrix)]
    })]
}
