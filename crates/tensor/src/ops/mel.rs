//! Differentiable log-mel spectrograms: spectrum, filter bank, logarithm.

use super::stft::{Spectrum, Stft};
use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};

/// Conversion from hertz to mels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// `2595 log10(1 + f / 700)`.
    Htk,
    /// Linear below 1 kHz, logarithmic above.
    Slaney,
}

impl Scale {
    fn mel(self, hertz: f64) -> f64 {
        match self {
            Scale::Htk => 2595.0 * (1.0 + hertz / 700.0).log10(),
            Scale::Slaney if hertz < 1000.0 => hertz * 3.0 / 200.0,
            Scale::Slaney => 15.0 + 27.0 * (hertz / 1000.0).ln() / 6.4f64.ln(),
        }
    }

    fn hertz(self, mel: f64) -> f64 {
        match self {
            Scale::Htk => 700.0 * (10f64.powf(mel / 2595.0) - 1.0),
            Scale::Slaney if mel < 15.0 => mel * 200.0 / 3.0,
            Scale::Slaney => 1000.0 * ((mel - 15.0) / 27.0 * 6.4f64.ln()).exp(),
        }
    }
}

/// The final logarithm, bounded away from zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Log {
    /// `ln(max(x, floor))`; below the floor no gradient flows.
    Floor(f32),
    /// `ln(x + plus)`, x must not be negative.
    Plus(f32),
}

impl Log {
    /// Both in the form `ln(max(x, floor) + plus)`.
    fn parts(self) -> (f32, f32) {
        match self {
            Log::Floor(floor) => (floor, 0.0),
            Log::Plus(plus) => (-plus, plus),
        }
    }
}

/// A log-mel front-end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mel {
    /// The transform.
    pub stft: Stft,
    /// Power or magnitude spectrum.
    pub spectrum: Spectrum,
    /// Sample rate in hertz.
    pub rate: f64,
    /// Number of filters.
    pub channels: usize,
    /// Start of the first filter and end of the last, in hertz.
    pub range: (f64, f64),
    /// Spacing of the filters' corners.
    pub scale: Scale,
    /// Normalise filters to area 1 (Slaney's norm) instead of height 1.
    pub area: bool,
    /// The final logarithm.
    pub log: Log,
}

impl Mel {
    /// The triangular filters `[channels, bins]`, as torchaudio computes them.
    pub fn filters(&self) -> Vec<f32> {
        let (low, high) = (self.scale.mel(self.range.0), self.scale.mel(self.range.1));
        let corner = |n: usize| self.scale.hertz(low + (high - low) * n as f64 / (self.channels + 1) as f64);
        let filter = |channel: usize| {
            let [low, centre, high] = [0, 1, 2].map(|n| corner(channel + n));
            let norm = if self.area { 2.0 / (high - low) } else { 1.0 };
            (0..self.stft.bins()).map(move |bin| {
                let hertz = bin as f64 * self.rate / self.stft.points as f64;
                let slope = ((hertz - low) / (centre - low)).min((high - hertz) / (high - centre));
                (slope.max(0.0) * norm) as f32
            })
        };
        (0..self.channels).flat_map(filter).collect()
    }
}

/// Input: x. Output: its logarithm. Both f32.
#[derive(Debug)]
struct MelLog(Log);

impl Op for MelLog {
    fn name(&self) -> &'static str {
        "mel_log"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (floor, plus) = self.0.parts();
        vector::map(io.f32(0), io.take(0), |x| (x.max(floor) + plus).ln());
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, (floor, plus)) = (io.shape(0).len(), self.0.parts());
        let args = args![io.output(0), io.input(0), n as i64, floor, plus];
        io.launch("mel_log_forward", Launch::each(n), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let inputs = [g.input(0), g.result_gradient()];
        let target = g.target(0);
        g.push(MelLogBackward(self.0), &inputs, &[target]);
    }
}

/// Inputs: x, dy. Output: dx.
#[derive(Debug)]
struct MelLogBackward(Log);

impl Op for MelLogBackward {
    fn name(&self) -> &'static str {
        "mel_log'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (floor, plus) = self.0.parts();
        let (x, dy) = (io.f32(0), io.f32(1));
        vector::add_map2(x, dy, io.accumulate(0), |x, dy| if x > floor { dy / (x + plus) } else { 0.0 });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, (floor, plus)) = (io.shape(0).len(), self.0.parts());
        let args = args![io.output(0), io.base(0), io.input(0), io.input(1), n as i64, floor, plus];
        io.launch("mel_log_backward", Launch::each(n), &args)
    }
}

impl Tape {
    /// The log-mel spectrogram `[batch, frames, channels]` of waveforms `[batch, samples]`, all f32. `basis` holds
    /// `Stft::basis`, `filters` holds `Mel::filters`.
    pub fn mel(&mut self, x: Value, mel: &Mel, basis: Value, filters: Value) -> Value {
        let expected = [mel.channels, mel.stft.bins()];
        assert_eq!(self.shape(filters).dims(), expected, "the filters do not match {mel:?}");
        let z = self.stft(x, &mel.stft, basis);
        let bins = self.spectrum(z, mel.spectrum);
        let filtered = self.transform(bins, filters);
        self.mel_log(filtered, mel.log)
    }

    /// The logarithm of every element, f32.
    pub fn mel_log(&mut self, x: Value, log: Log) -> Value {
        assert_eq!(self.info(x).dtype, DType::F32, "a spectrum must be f32");
        self.push_one(MelLog(log), &[x], Spec::new(self.shape(x), DType::F32))
    }
}
