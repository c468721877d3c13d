//! Convolutions against their definition, also at sizes where the work is split into pieces.

use myxtts_tensor::ops::conv1d::Conv1d;
use myxtts_tensor::random::Stream;
use myxtts_tensor::*;
use std::sync::Arc;

/// A convolution over height and width; over time it has width 1.
#[derive(Clone, Copy, Debug)]
struct Definition {
    batch: usize,
    input: [usize; 2],
    channels: usize,
    filters: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: usize,
    groups: usize,
}

impl Definition {
    fn output(&self) -> [usize; 2] {
        let along = |a: usize, dilation: usize| {
            (self.input[a] + 2 * self.padding[a] - dilation * (self.kernel[a] - 1) - 1) / self.stride[a] + 1
        };
        [along(0, self.dilation), along(1, 1)]
    }

    /// Calls `term(index in x, index in the weights, index in y)` for every product of the sum.
    fn each_term(&self, mut term: impl FnMut(usize, usize, usize)) {
        let ([height, width], [kh, kw]) = (self.output(), self.kernel);
        let (cg, fg) = (self.channels / self.groups, self.filters / self.groups);
        for (b, i, j) in each3(self.batch, height, width) {
            for (tap_h, tap_w, f) in each3(kh, kw, self.filters) {
                let h = (i * self.stride[0] + tap_h * self.dilation).wrapping_sub(self.padding[0]);
                let w = (j * self.stride[1] + tap_w).wrapping_sub(self.padding[1]);
                if h >= self.input[0] || w >= self.input[1] {
                    continue;
                }
                for c in 0..cg {
                    let x = ((b * self.input[0] + h) * self.input[1] + w) * self.channels + f / fg * cg + c;
                    let weight = ((f * kh + tap_h) * kw + tap_w) * cg + c;
                    term(x, weight, ((b * height + i) * width + j) * self.filters + f);
                }
            }
        }
    }
}

fn each3(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}

fn close(what: &str, found: &[f32], truth: &[f64], d: &Definition) {
    assert_eq!(found.len(), truth.len(), "{what} of {d:?}");
    let size = (truth.iter().map(|t| t * t).sum::<f64>() / truth.len() as f64).sqrt();
    for (i, (f, t)) in found.iter().zip(truth).enumerate() {
        assert!((f64::from(*f) - t).abs() < 1e-4 * size, "{what} of {d:?}: {f} at {i}, not {t}");
    }
}

/// Checks output and gradients of a convolution or of its transpose.
fn check(d: Definition, transposed: bool) {
    let mut random = Stream::new(5);
    let (out, taps) = (d.output(), d.kernel[0] * d.kernel[1]);
    let x = random.normals(d.batch * d.input[0] * d.input[1] * d.channels);
    let y = random.normals(d.batch * out[0] * out[1] * d.filters);
    let w = random.normals(d.filters * taps * d.channels / d.groups);
    let (mut down, mut up, mut weight) = (vec![0f64; y.len()], vec![0f64; x.len()], vec![0f64; w.len()]);
    d.each_term(|i, k, j| {
        let (x, w, y) = (f64::from(x[i]), f64::from(w[k]), f64::from(y[j]));
        down[j] += x * w;
        up[i] += y * w;
        weight[k] += x * y;
    });
    // The output is weighted by the other operand, which makes that operand's sum the gradient.
    let mut tape = Tape::new(Arc::new(Layout::empty()), Precision::F32);
    let two = d.kernel[1] > 1 || d.input[1] > 1;
    let shape = |size: [usize; 2], channels: usize| match two {
        true => Shape::from([d.batch, size[0], size[1], channels]),
        false => Shape::from([d.batch, size[0], channels]),
    };
    let from = if transposed { shape(out, d.filters) } else { shape(d.input, d.channels) };
    let input = tape.variable(from);
    let matrix = match two {
        true => tape.weight([d.filters, d.kernel[0], d.kernel[1], d.channels / d.groups], DType::F32),
        false => tape.weight([d.filters, taps, d.channels / d.groups], DType::F32),
    };
    let (stride, padding) = (d.stride[0], d.padding[0]);
    let result = match (transposed, two) {
        (true, _) => tape.conv_transpose1d(input, matrix, None, stride, padding),
        (_, true) => tape.conv2d(input, matrix, None, (stride, d.stride[1]), (padding, d.padding[1])),
        _ => {
            let conv = Conv1d { stride, padding, dilation: d.dilation, groups: d.groups };
            tape.conv1d(input, matrix, None, conv)
        }
    };
    let other = tape.input(tape.shape(result), DType::F32);
    let loss = tape.dot(result, other, None);
    tape.backward(loss, Backward::default());
    let gradients = [input, matrix].map(|v| tape.gradient(v).unwrap());
    [result, gradients[0], gradients[1]].iter().for_each(|&v| tape.keep(v));
    let mut engine =
        Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default())
            .unwrap();
    let mut program = engine.load(tape).unwrap();
    let (read, weighed) = if transposed { (&y, &x) } else { (&x, &y) };
    engine.write(&program, input, read).unwrap();
    engine.write(&program, matrix, &w).unwrap();
    engine.write(&program, other, weighed).unwrap();
    engine.run(&mut program, &Control::default()).unwrap();
    let (forward, backward) = if transposed { (up, down) } else { (down, up) };
    close("the result", &engine.read(&program, result).unwrap(), &forward, &d);
    close("the gradient of x", &engine.read(&program, gradients[0]).unwrap(), &backward, &d);
    close("the gradient of the weight", &engine.read(&program, gradients[1]).unwrap(), &weight, &d);
}

const LINE: Definition = Definition {
    batch: 2,
    input: [50, 1],
    channels: 6,
    filters: 5,
    kernel: [3, 1],
    stride: [1, 1],
    padding: [1, 0],
    dilation: 1,
    groups: 1,
};

#[test]
fn convolutions_over_time_match_their_definition() {
    check(LINE, false);
    check(Definition { kernel: [1, 1], padding: [0, 0], ..LINE }, false);
    check(Definition { kernel: [1, 1], padding: [0, 0], groups: 3, filters: 6, ..LINE }, false);
    check(Definition { kernel: [4, 1], stride: [3, 1], dilation: 2, padding: [5, 0], ..LINE }, false);
    check(Definition { kernel: [5, 1], groups: 2, filters: 4, stride: [2, 1], ..LINE }, false);
    // Longer than a piece, and than eight of them, which are then processed in parallel.
    for time in [90_000, 400_000] {
        let long = Definition { batch: 1, input: [time, 1], channels: 8, filters: 3, ..LINE };
        check(Definition { kernel: [7, 1], dilation: 3, padding: [11, 0], ..long }, false);
        check(Definition { kernel: [5, 1], stride: [4, 1], padding: [2, 0], ..long }, false);
        check(Definition { kernel: [5, 1], filters: 4, groups: 2, padding: [2, 0], ..long }, false);
    }
}

#[test]
fn transposed_convolutions_match_their_definition() {
    for (kernel, stride) in [(16, 8), (4, 2), (3, 1), (2, 3)] {
        // A length without remainder.
        let grown = |time: usize| (time - 1) * stride + kernel - 2;
        let line = Definition { kernel: [kernel, 1], stride: [stride, 1], input: [grown(20), 1], ..LINE };
        check(line, true);
        check(
            Definition { batch: 1, input: [grown(50_000 / stride), 1], channels: 8, filters: 3, ..line },
            true,
        );
    }
}

#[test]
fn convolutions_over_height_and_width_match_their_definition() {
    let image = Definition { input: [9, 7], kernel: [3, 2], padding: [1, 1], ..LINE };
    check(image, false);
    check(Definition { stride: [2, 3], ..image }, false);
    check(Definition { kernel: [1, 1], padding: [0, 0], ..image }, false);
    check(Definition { input: [400, 150], ..image }, false);
    check(Definition { batch: 40, input: [70, 60], stride: [2, 1], ..image }, false);
}
