//! Short-time Fourier transform: frames times a windowed basis, then the power or magnitude of each bin. All in
//! f32, for losses and front-ends.

use super::frames::Framing;
use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;
use std::f64::consts::TAU;

/// Window function; all are periodic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// `(1 - cos) / 2`.
    Hann,
    /// `0.54 - 0.46 cos`.
    Hamming,
}

impl Window {
    /// The window's factor for each sample of a frame.
    pub(super) fn weights(self, length: usize) -> impl Iterator<Item = f64> {
        (0..length).map(move |j| {
            let cosine = (TAU * j as f64 / length as f64).cos();
            match self {
                Window::Hann => 0.5 - 0.5 * cosine,
                Window::Hamming => 0.54 - 0.46 * cosine,
            }
        })
    }
}

/// A short-time Fourier transform with centred frames and reflected ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stft {
    /// Transform size; even.
    pub points: usize,
    /// Window size in samples, centred in the transform; even.
    pub length: usize,
    /// Window function.
    pub window: Window,
    /// Samples between consecutive frames.
    pub hop: usize,
}

impl Stft {
    /// How the waveform is cut into frames. If the window is shorter than the transform, the rest is zero: frames
    /// have the window's length, and the zeros are neither stored nor multiplied.
    pub fn framing(&self) -> Framing {
        Framing::centred(self.length, self.hop)
    }

    /// Number of bins, from 0 Hz to half the sample rate.
    pub fn bins(&self) -> usize {
        self.points / 2 + 1
    }

    /// The windowed basis `[2 bins, length]`: the rows of the real parts, then those of the imaginary parts.
    pub fn basis(&self) -> Vec<f32> {
        let Stft { points, length, window, .. } = *self;
        assert!(
            points.is_multiple_of(2) && length.is_multiple_of(2) && (1..=points).contains(&length),
            "a window of {length} in {points} points: both must be even, and the window must not be longer"
        );
        let left = (points - length) / 2;
        let window: Vec<f64> = window.weights(length).collect();
        // Angles are reduced to one turn: sine and cosine lose precision far from zero.
        let angle = |turn: usize| TAU * turn as f64 / points as f64;
        let [cosines, sines]: [Vec<f64>; 2] = [
            (0..points).map(|turn| angle(turn).cos()).collect(),
            (0..points).map(|turn| -angle(turn).sin()).collect(),
        ];
        let row = |row: usize| {
            let bin = row % self.bins();
            let table = if row >= self.bins() { &sines } else { &cosines };
            window
                .iter()
                .enumerate()
                .map(move |(j, window)| (window * table[(bin * (left + j)) % points]) as f32)
        };
        (0..2 * self.bins()).flat_map(row).collect()
    }
}

/// What is computed from a bin's real and imaginary part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spectrum {
    /// `re² + im²`.
    Power,
    /// `sqrt(re² + im² + epsilon)`; where that is zero, its gradient is zero.
    Magnitude {
        /// Bounds the gradient near silence.
        epsilon: f32,
    },
}

impl Spectrum {
    fn root(self) -> i32 {
        i32::from(self != Spectrum::Power)
    }

    fn epsilon(self) -> f32 {
        match self {
            Spectrum::Power => 0.0,
            Spectrum::Magnitude { epsilon } => epsilon,
        }
    }
}

/// Input: z `[.., 2 bins]`. Output: `[.., bins]`.
#[derive(Debug)]
struct Bins(Spectrum);

impl Op for Bins {
    fn name(&self) -> &'static str {
        match self.0 {
            Spectrum::Power => "power",
            Spectrum::Magnitude { .. } => "magnitude",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (z, y, bins) = (io.f32(0), io.take(0), io.output_shape(0).last());
        y.par_chunks_mut(bins).zip(z.par_chunks(2 * bins)).with_min_len(16).for_each(|(y, z)| {
            let (re, im) = z.split_at(bins);
            for ((y, re), im) in y.iter_mut().zip(re).zip(im) {
                let power = re * re + im * im;
                *y = match self.0 {
                    Spectrum::Power => power,
                    Spectrum::Magnitude { epsilon } => (power + epsilon).sqrt(),
                };
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, bins) = (io.output_shape(0).len(), io.output_shape(0).last());
        let args = args![io.output(0), io.input(0), n as i64, bins, self.0.root(), self.0.epsilon()];
        io.launch("spectrum_forward", Launch::each(n), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let inputs = [g.input(0), g.result_gradient()];
        let target = g.target(0);
        g.push(BinsBackward(self.0), &inputs, &[target]);
    }
}

/// Inputs: z, dy. Output: dz.
#[derive(Debug)]
struct BinsBackward(Spectrum);

impl Op for BinsBackward {
    fn name(&self) -> &'static str {
        match self.0 {
            Spectrum::Power => "power'",
            Spectrum::Magnitude { .. } => "magnitude'",
        }
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (z, dy, bins) = (io.f32(0), io.f32(1), io.shape(1).last());
        let rows = io.accumulate(0).par_chunks_mut(2 * bins).zip(z.par_chunks(2 * bins));
        rows.zip(dy.par_chunks(bins)).with_min_len(16).for_each(|((dz, z), dy)| {
            let ((dre, dim), (re, im)) = (dz.split_at_mut(bins), z.split_at(bins));
            for (k, dy) in dy.iter().enumerate() {
                let factor = match self.0 {
                    Spectrum::Power => 2.0 * dy,
                    Spectrum::Magnitude { epsilon } => {
                        let magnitude = (re[k] * re[k] + im[k] * im[k] + epsilon).sqrt();
                        if magnitude > 0.0 { dy / magnitude } else { 0.0 }
                    }
                };
                dre[k] += factor * re[k];
                dim[k] += factor * im[k];
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, bins) = (io.shape(1).len(), io.shape(1).last());
        let args = args![
            io.output(0),
            io.base(0),
            io.input(0),
            io.input(1),
            n as i64,
            bins,
            self.0.root(),
            self.0.epsilon()
        ];
        io.launch("spectrum_backward", Launch::each(n), &args)
    }
}

impl Tape {
    /// The transform `[batch, frames, 2 bins]` of waveforms `[batch, samples]`: real parts, then imaginary parts.
    /// `basis` holds `Stft::basis`, f32.
    pub fn stft(&mut self, x: Value, stft: &Stft, basis: Value) -> Value {
        let expected = [2 * stft.bins(), stft.length];
        assert_eq!(self.shape(basis).dims(), expected, "the basis does not match {stft:?}");
        let frames = self.frames(x, stft.framing());
        self.fourier(frames, stft, basis)
    }

    /// The power or magnitude `[.., bins]` of a transform `[.., 2 bins]`, f32.
    pub fn spectrum(&mut self, z: Value, kind: Spectrum) -> Value {
        let info = self.info(z);
        assert_eq!(info.dtype, DType::F32, "a spectrum must be f32");
        let channels = info.shape.last();
        assert!(
            channels.is_multiple_of(2) && channels > 0,
            "{channels} channels are not pairs of real and imaginary parts"
        );
        let spec = Spec::new(info.shape.with_last(channels / 2), DType::F32);
        self.push_one(Bins(kind), &[z], spec)
    }
}
