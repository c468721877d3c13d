use crate::suite::Case;
use myxtts_tensor::ops::activation::Function;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("softmax", |b| {
            let shape = [b.size(1, 3), b.size(1, 20), b.size(1, 90)];
            let x = b.variable(shape);
            // Used twice: gradients are accumulated.
            vec![b.tape.softmax(x), b.tape.activation(x, Function::Tanh)]
        }),
        Case::new("softmax, wide rows, far from zero", |b| {
            let c = b.size(1000, 1500);
            let data = (0..2 * c).map(|_| 5.0 * b.random.normal() + 40.0).collect();
            let x = b.variable_of([2, c], data);
            vec![b.tape.softmax(x)]
        })
        // If one element has nearly all of the weight, its gradient is a small difference.
        .tolerances(3e-5, 2e-2),
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
