//! Cuts a waveform into overlapping frames, with reflected ends.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// How a waveform is cut into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Samples per frame.
    pub size: usize,
    /// Samples between the starts of consecutive frames.
    pub hop: usize,
    /// Samples of reflected padding at each end.
    pub pad: usize,
}

impl Framing {
    /// Frames centred at 0, hop, 2 hop, ..
    pub fn centred(size: usize, hop: usize) -> Framing {
        Framing { size, hop, pad: size / 2 }
    }

    /// Number of frames of a waveform.
    pub fn count(&self, samples: usize) -> usize {
        match (samples + 2 * self.pad).checked_sub(self.size) {
            Some(left) => 1 + left / self.hop,
            None => 0,
        }
    }

    /// The sample at a position of the padded waveform.
    fn sample(&self, place: usize, samples: usize) -> usize {
        let s = place.abs_diff(self.pad);
        if place >= self.pad && s >= samples { 2 * (samples - 1) - s } else { s }
    }

    /// Sum over all frames of their element at a position of the padded waveform, first to last.
    fn overlap_sum(&self, dy: &[f32], place: usize, frames: usize) -> f32 {
        let first = (place + 1).saturating_sub(self.size).div_ceil(self.hop);
        let last = (place / self.hop).min(frames - 1);
        (first..=last).map(|f| dy[f * self.size + place - f * self.hop]).sum()
    }
}

/// Input: x `[b, samples]`. Output: `[b, frames, size]`. All f32.
#[derive(Debug)]
struct Frames(Framing);

impl Op for Frames {
    fn name(&self) -> &'static str {
        "frames"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, samples, frames) = (io.f32(0), io.shape(0).last(), io.output_shape(0).dim(1));
        let Framing { size, hop, pad } = self.0;
        vector::each_row(
            io.take(0),
            size,
            #[inline(always)]
            |i, frame| {
                let x = &x[i / frames * samples..][..samples];
                let start = i % frames * hop;
                if start >= pad && start + size <= pad + samples {
                    return frame.copy_from_slice(&x[start - pad..][..size]);
                }
                for (j, value) in frame.iter_mut().enumerate() {
                    *value = x[self.0.sample(start + j, samples)];
                }
            },
        );
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (items, samples, frames) = (io.shape(0).dim(0), io.shape(0).last(), io.output_shape(0).dim(1));
        let Framing { size, hop, pad } = self.0;
        let args = args![io.output(0), io.input(0), samples, frames, size, hop, pad];
        io.launch("frames_forward", Launch::grid(frames, size.div_ceil(256), items, 256), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        let target = g.target(0);
        g.push(FramesBackward(self.0), &[dy], &[target]);
    }
}

/// Input: dy `[b, frames, size]`. Output: dx, a sum over the frames that contain each sample.
#[derive(Debug)]
struct FramesBackward(Framing);

impl Op for FramesBackward {
    fn name(&self) -> &'static str {
        "frames'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, frames, samples) = (io.f32(0), io.shape(0).dim(1), io.output_shape(0).last());
        let (framing, pad) = (self.0, self.0.pad);
        io.accumulate(0).par_chunks_mut(1 << 12).enumerate().for_each(|(piece, dx)| {
            for (i, dx) in dx.iter_mut().enumerate() {
                let at = (piece << 12) + i;
                let (item, s) = (at / samples, at % samples);
                let dy = &dy[item * frames * framing.size..][..frames * framing.size];
                *dx += framing.overlap_sum(dy, pad + s, frames);
                if s > 0 && s <= pad {
                    *dx += framing.overlap_sum(dy, pad - s, frames);
                }
                if s + 1 < samples && s + 1 + pad >= samples {
                    *dx += framing.overlap_sum(dy, pad + 2 * (samples - 1) - s, frames);
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (frames, shape) = (io.shape(0).dim(1), io.output_shape(0));
        let Framing { size, hop, pad } = self.0;
        let args = args![io.output(0), io.base(0), io.input(0), shape.last(), frames, size, hop, pad];
        let launch = Launch::grid(shape.last().div_ceil(256), shape.dim(0), 1, 256);
        io.launch("frames_backward", launch, &args)
    }
}

impl Tape {
    /// Overlapping frames `[batch, frames, size]` of waveforms `[batch, samples]`, f32.
    pub fn frames(&mut self, x: Value, framing: Framing) -> Value {
        let info = self.info(x);
        let &[items, samples] = info.shape.dims() else {
            panic!("frames are cut from [batch, samples], not from {}", info.shape)
        };
        assert_eq!(info.dtype, DType::F32, "a waveform must be f32");
        assert!(framing.size > 0 && framing.hop > 0, "{framing:?} must have a size and a hop");
        assert!(framing.pad < samples, "{samples} samples are too few to reflect {} of them", framing.pad);
        let frames = framing.count(samples);
        assert!(frames > 0, "{samples} samples are less than one frame of {}", framing.size);
        self.push_one(
            Frames(framing),
            &[x],
            Spec::new(Shape::from([items, frames, framing.size]), DType::F32),
        )
    }
}
