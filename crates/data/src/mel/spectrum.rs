//! The power spectrum of one windowed frame.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{FftNum, RealFftPlanner, RealToComplex};

/// The two precisions that spectra are computed in.
pub(super) trait Real: FftNum {
    fn narrow(self) -> f32;
    fn widen(value: f64) -> Self;
}

impl Real for f32 {
    fn narrow(self) -> f32 {
        self
    }
    fn widen(value: f64) -> f32 {
        value as f32
    }
}

impl Real for f64 {
    fn narrow(self) -> f32 {
        self as f32
    }
    fn widen(value: f64) -> f64 {
        value
    }
}

/// A window, a transform, and the buffers between them.
pub(super) struct Spectrum<T: Real> {
    window: Vec<T>,
    fft: Arc<dyn RealToComplex<T>>,
    frame: Vec<T>,
    bins: Vec<Complex<T>>,
    scratch: Vec<Complex<T>>,
}

impl<T: Real> Spectrum<T> {
    /// For frames of `window.len()` samples, filled up to `n_fft`.
    pub(super) fn new(window: impl Iterator<Item = f64>, n_fft: usize) -> Spectrum<T> {
        let fft = RealFftPlanner::new().plan_fft_forward(n_fft);
        Spectrum {
            window: window.map(T::widen).collect(),
            frame: fft.make_input_vec(),
            bins: fft.make_output_vec(),
            scratch: fft.make_scratch_vec(),
            fft,
        }
    }

    /// The power of the window around sample `centre`, as many bins as `out` takes. What the window
    /// covers outside the signal is the signal mirrored at its first and last sample.
    pub(super) fn power(&mut self, signal: &[T], centre: usize, out: &mut [f32]) {
        let half = self.window.len() / 2;
        // The window stands at the start of the frame and not in its middle: that turns phases, and the
        // power does not see phases.
        let (body, rest) = self.frame.split_at_mut(self.window.len());
        match centre.checked_sub(half).and_then(|start| signal.get(start..centre + half)) {
            Some(inside) => {
                for ((value, &sample), &weight) in body.iter_mut().zip(inside).zip(&self.window) {
                    *value = sample * weight;
                }
            }
            None => {
                for ((n, value), &weight) in body.iter_mut().enumerate().zip(&self.window) {
                    let position = (centre + n) as i64 - half as i64;
                    *value = signal[mirrored(position, signal.len())] * weight;
                }
            }
        }
        rest.fill(T::zero());
        self.fft
            .process_with_scratch(&mut self.frame, &mut self.bins, &mut self.scratch)
            .expect("the buffers were made by the plan itself");
        for (power, bin) in out.iter_mut().zip(&self.bins) {
            *power = (bin.re * bin.re + bin.im * bin.im).narrow();
        }
    }
}

/// Where a position lands when it is folded back at both ends of a signal that is not empty.
pub(super) fn mirrored(position: i64, length: usize) -> usize {
    let last = length as i64 - 1;
    if last == 0 {
        return 0;
    }
    let folded = position.rem_euclid(2 * last);
    (if folded > last { 2 * last - folded } else { folded }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_fold_back_at_both_ends() {
        let folded: Vec<usize> = (-5..9).map(|position| mirrored(position, 4)).collect();
        assert_eq!(folded, [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1, 2]);
        assert_eq!(mirrored(-3, 1), 0);
    }
}
