use crate::suite::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("conv2d", |b| {
            let (kh, kw) = (b.size(1, 5), b.size(1, 3));
            let (stride, padding) = ((b.size(1, 3), b.size(1, 2)), (b.size(0, 2), b.size(0, 1)));
            let (cin, cout) = (b.size(1, 9), b.size(1, 9));
            let (height, width) = (b.size(kh, 16), b.size(kw, 10));
            let (x, w) = (b.variable([2, height, width, cin]), b.weight([cout, kh, kw, cin]));
            let bias = b.master([cout]);
            vec![b.tape.conv2d(x, w, Some(bias), stride, padding)]
        })
        .rounds(10),
        Case::new("conv2d, whole vectors", |b| {
            let (cin, cout, stride) = (8 * b.size(1, 3), 8 * b.size(1, 3), b.size(1, 2));
            let (x, w) = (b.variable([2, 9, 11, cin]), b.weight([cout, 3, 3, cin]));
            vec![b.tape.conv2d(x, w, None, (stride, stride), (1, 1))]
        }),
        Case::new("conv2d, one tap", |b| {
            let (x, w) = (b.variable([2, 5, 7, 8]), b.weight([16, 1, 1, 8]));
            let stride = b.size(1, 2);
            vec![b.tape.conv2d(x, w, None, (stride, stride), (0, 0))]
        }),
    ]
}
