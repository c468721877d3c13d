use crate::suite::Case;
use myxtts_tensor::ops::activation::Function;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("softmax_time", |b| {
            let shape = [b.size(1, 3), b.size(1, 60), b.size(1, 70)];
            let x = b.variable(shape);
            vec![b.tape.softmax_time(x, None)]
        }),
        Case::new("softmax_time with lengths", |b| {
            let shape = [4, b.size(1, 60), 8 * b.size(1, 5)];
            // One item is empty, and one claims more than there is.
            let lengths = vec![0, b.size(1, shape[1]) as i32, shape[1] as i32, shape[1] as i32 + 3];
            let (x, lengths) = (b.variable(shape), b.integers([4], lengths));
            let y = b.tape.softmax_time(x, Some(lengths));
            vec![y, b.tape.activation(x, Function::Sigmoid)]
        }),
    ]
}
