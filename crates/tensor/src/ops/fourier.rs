//! Fourier transform of frames. A GPU multiplies them with the basis matrix; the CPU uses a fast Fourier transform,
//! which needs a hundredth of the work.

use super::stft::Stft;
use super::transform::{Transform, TransformBackward};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Plans for both directions. They are cached: creating one takes longer than some hundred transforms.
fn plans(points: usize) -> (Arc<dyn RealToComplex<f32>>, Arc<dyn ComplexToReal<f32>>) {
    static PLANNER: OnceLock<Mutex<RealFftPlanner<f32>>> = OnceLock::new();
    let planner = PLANNER.get_or_init(|| Mutex::new(RealFftPlanner::new()));
    let mut planner = planner.lock().unwrap_or_else(PoisonError::into_inner);
    (planner.plan_fft_forward(points), planner.plan_fft_inverse(points))
}

/// Frames a thread processes at a time, with the same buffers.
const FRAMES_PER_TASK: usize = 8;

/// Inputs: frames `[.., length]`, the basis `[2 bins, length]`. Output: `[.., 2 bins]`, real parts, then imaginary
/// parts.
#[derive(Debug)]
struct Fourier(Stft);

impl Op for Fourier {
    fn name(&self) -> &'static str {
        "fourier"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let Stft { points, length, window, .. } = self.0;
        let (x, bins, left) = (io.f32(0), self.0.bins(), (points - length) / 2);
        let (plan, _) = plans(points);
        let window: Vec<f32> = window.weights(length).map(|weight| weight as f32).collect();
        let tasks =
            io.take(0).par_chunks_mut(FRAMES_PER_TASK * 2 * bins).zip(x.par_chunks(FRAMES_PER_TASK * length));
        tasks.for_each(|(y, x)| {
            let (mut samples, mut found) = (vec![0f32; points], plan.make_output_vec());
            let mut scratch = plan.make_scratch_vec();
            for (y, x) in y.chunks_exact_mut(2 * bins).zip(x.chunks_exact(length)) {
                samples.fill(0.0);
                let middle = &mut samples[left..left + length];
                middle.iter_mut().zip(x).zip(&window).for_each(|((to, x), weight)| *to = x * weight);
                plan.process_with_scratch(&mut samples, &mut found, &mut scratch)
                    .expect("buffers are of the plan's own lengths");
                let (re, im) = y.split_at_mut(bins);
                for ((re, im), bin) in re.iter_mut().zip(im).zip(&found) {
                    (*re, *im) = (bin.re, bin.im);
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        Transform.cuda(io)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let inputs = [g.result_gradient(), g.input(1)];
        let target = g.target(0);
        g.push(FourierBackward(self.0), &inputs, &[target]);
    }
}

/// Inputs: dy `[.., 2 bins]`, the basis. Output: dx `[.., length]`.
#[derive(Debug)]
struct FourierBackward(Stft);

impl Op for FourierBackward {
    fn name(&self) -> &'static str {
        "fourier'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let Stft { points, length, window, .. } = self.0;
        let (dy, bins, left) = (io.f32(0), self.0.bins(), (points - length) / 2);
        let (_, plan) = plans(points);
        let window: Vec<f32> = window.weights(length).map(|weight| weight as f32).collect();
        let add = io.has_base(0);
        let dx = if add { io.accumulate(0) } else { io.take(0) };
        let tasks =
            dx.par_chunks_mut(FRAMES_PER_TASK * length).zip(dy.par_chunks(FRAMES_PER_TASK * 2 * bins));
        tasks.for_each(|(dx, dy)| {
            let (mut samples, mut given) = (vec![0f32; points], plan.make_input_vec());
            let mut scratch = plan.make_scratch_vec();
            for (dx, dy) in dx.chunks_exact_mut(length).zip(dy.chunks_exact(2 * bins)) {
                let (re, im) = dy.split_at(bins);
                // A sample is the sum of `re cos - im sin` over the bins. The inverse transform counts every bin
                // twice, for itself and for its mirror image, except the first and the last, which have no sine.
                for ((to, re), im) in given.iter_mut().zip(re).zip(im) {
                    *to = Complex::new(0.5 * re, 0.5 * im);
                }
                (given[0], given[bins - 1]) = (Complex::new(re[0], 0.0), Complex::new(re[bins - 1], 0.0));
                plan.process_with_scratch(&mut given, &mut samples, &mut scratch)
                    .expect("buffers are of the plan's own lengths, and the ends have no imaginary part");
                let middle = samples[left..left + length].iter().zip(&window);
                let each = dx.iter_mut().zip(middle);
                match add {
                    true => each.for_each(|(dx, (sample, weight))| *dx += sample * weight),
                    false => each.for_each(|(dx, (sample, weight))| *dx = sample * weight),
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        TransformBackward.cuda(io)
    }
}

impl Tape {
    /// The transform `[.., 2 bins]` of frames `[.., length]`, both f32: real parts, then imaginary parts. `basis`
    /// holds `Stft::basis`.
    pub fn fourier(&mut self, frames: Value, stft: &Stft, basis: Value) -> Value {
        let (shape, m) = (self.shape(frames), self.info(basis));
        let expected = [2 * stft.bins(), stft.length];
        assert_eq!(m.shape.dims(), expected, "the basis is not that of {stft:?}");
        assert_eq!(shape.last(), stft.length, "frames must be as long as the window");
        assert!(!m.differentiable, "a transform's basis must be a constant");
        let f32s = [m.dtype, self.info(frames).dtype] == [DType::F32; 2];
        assert!(f32s, "frames and basis must be f32");
        let spec = Spec::new(shape.with_last(2 * stft.bins()), DType::F32);
        self.push_one(Fourier(*stft), &[frames, basis], spec)
    }
}
