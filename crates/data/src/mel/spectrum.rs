//! The power spectrum of one windowed frame.
//!
//! A real FFT of N samples is a complex FFT of N/2 pairs followed by an unpacking step. That step is implemented here for
//! the power only, so that the compiler can process eight bins at once: in the general library it takes longer than the FFT.

use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftNum, FftPlanner};

/// The two precisions in which spectra are computed.
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

/// Bins unpacked at once.
const LANES: usize = 8;

/// A window, an FFT plan, and their buffers.
pub(super) struct Spectrum<T: Real> {
    /// Halved: its square is the factor 1/4 that the unpacking step would otherwise multiply by.
    window: Vec<T>,
    fft: Arc<dyn Fft<T>>,
    frame: Vec<Complex<T>>,
    bins: Vec<Complex<T>>,
    scratch: Vec<Complex<T>>,
    parts: Parts<T>,
    power: Vec<f32>,
}

/// Real and imaginary parts of the FFT and of the twiddle factors of the unpacking step.
struct Parts<T> {
    re: Vec<T>,
    im: Vec<T>,
    twiddle_re: Vec<T>,
    twiddle_im: Vec<T>,
}

impl<T: Real> Spectrum<T> {
    /// Creates a spectrum for frames of an even number of samples, zero-padded to `n_fft`. The power is followed by
    /// `padding` zeros.
    pub(super) fn new(window: impl Iterator<Item = f64>, n_fft: usize, padding: usize) -> Spectrum<T> {
        let pairs = n_fft / 2;
        let fft = FftPlanner::new().plan_fft_forward(pairs);
        let angle = |bin: usize| -2.0 * std::f64::consts::PI * bin as f64 / n_fft as f64;
        let zeros = || vec![T::zero(); pairs];
        Spectrum {
            window: window.map(|weight| T::widen(weight / 2.0)).collect(),
            frame: vec![Complex::new(T::zero(), T::zero()); pairs],
            bins: vec![Complex::new(T::zero(), T::zero()); pairs],
            scratch: vec![Complex::new(T::zero(), T::zero()); fft.get_outofplace_scratch_len()],
            parts: Parts {
                re: zeros(),
                im: zeros(),
                twiddle_re: (0..pairs).map(|bin| T::widen(angle(bin).cos())).collect(),
                twiddle_im: (0..pairs).map(|bin| T::widen(angle(bin).sin())).collect(),
            },
            power: vec![0.0; pairs + 1 + padding],
            fft,
        }
    }

    /// Computes the power of the window around sample `centre`: `n_fft / 2 + 1` bins and the padding. Outside the signal,
    /// the window covers the signal mirrored at its first and last sample.
    ///
    /// `piece` is the part of a signal of `whole` samples from sample `first` on; it must contain all samples that the
    /// window needs.
    pub(super) fn power(&mut self, piece: &[T], (first, whole): (usize, usize), centre: usize) -> &[f32] {
        let half = self.window.len() / 2;
        // The window is at the start of the frame and not in its middle: that only changes phases, which do not affect the
        // power.
        let (body, rest) = self.frame.split_at_mut(half);
        let window = self.window.as_chunks::<2>().0;
        let inside = centre.checked_sub(half + first).and_then(|start| piece.get(start..start + 2 * half));
        match inside {
            Some(inside) => {
                for ((pair, sample), weight) in body.iter_mut().zip(inside.as_chunks::<2>().0).zip(window) {
                    *pair = Complex::new(sample[0] * weight[0], sample[1] * weight[1]);
                }
            }
            None => {
                let start = centre as i64 - half as i64;
                let at = |n: usize| piece[mirrored(start + n as i64, whole) - first];
                for ((n, pair), weight) in body.iter_mut().enumerate().zip(window) {
                    *pair = Complex::new(at(2 * n) * weight[0], at(2 * n + 1) * weight[1]);
                }
            }
        }
        rest.fill(Complex::new(T::zero(), T::zero()));
        self.fft.process_outofplace_with_scratch(&mut self.frame, &mut self.bins, &mut self.scratch);
        self.parts.unpack(&self.bins, &mut self.power);
        &self.power
    }
}

impl<T: Real> Parts<T> {
    /// With Z the FFT of the pairs, M their number, E = Z[k] + conj Z[M-k] and O = (Z[k] - conj Z[M-k]) / i, bins k and M-k
    /// of the real FFT are E + wO and conj(E - wO), where w = exp(-2 pi i k / 2M), except for the factor 1/2, which is in
    /// the window.
    fn unpack(&mut self, bins: &[Complex<T>], power: &mut [f32]) {
        for ((bin, re), im) in bins.iter().zip(&mut self.re).zip(&mut self.im) {
            (*re, *im) = (bin.re, bin.im);
        }
        let pairs = bins.len();
        let middle = pairs / 2;
        let (lower, upper) = power[..=pairs].split_at_mut(middle);
        let (first, last) = (self.re[0] + self.im[0], self.re[0] - self.im[0]);
        lower[0] = 4.0 * (first * first).narrow();
        upper[pairs - middle] = 4.0 * (last * last).narrow();
        let (re, im) = (self.re[middle], self.im[middle]);
        upper[0] = 4.0 * (re * re + im * im).narrow();

        // Bins 1 to middle - 1, and in the other direction pairs - 1 to middle + 1.
        let count = middle - 1;
        let (lower, upper) = (&mut lower[1..], &mut upper[1..=count]);
        let near = [
            &self.re[1..middle],
            &self.im[1..middle],
            &self.twiddle_re[1..middle],
            &self.twiddle_im[1..middle],
        ];
        let far = [&self.re[middle + 1..], &self.im[middle + 1..]];
        for start in (0..count - count % LANES).step_by(LANES) {
            let mirror = count - start - LANES;
            let near = near.map(|part| lanes(part, start));
            let far = far.map(|part| lanes(part, mirror));
            let (mut low, mut high) = ([0.0; LANES], [0.0; LANES]);
            for lane in 0..LANES {
                let back = LANES - 1 - lane;
                let near = near.map(|part| part[lane]);
                (low[lane], high[back]) = bin_pair(near, far.map(|part| part[back]));
            }
            lower[start..start + LANES].copy_from_slice(&low);
            upper[mirror..mirror + LANES].copy_from_slice(&high);
        }
        for bin in count - count % LANES..count {
            let back = count - 1 - bin;
            (lower[bin], upper[back]) = bin_pair(near.map(|part| part[bin]), far.map(|part| part[back]));
        }
    }
}

fn lanes<T>(part: &[T], start: usize) -> &[T; LANES] {
    part[start..].first_chunk().expect("the caller processes whole groups of lanes")
}

/// Power of bins k and M-k from Z\[k\] with its twiddle factor, and Z\[M-k\].
#[inline(always)]
fn bin_pair<T: Real>([re, im, twiddle_re, twiddle_im]: [T; 4], [far_re, far_im]: [T; 2]) -> (f32, f32) {
    let (even_re, even_im) = (re + far_re, im - far_im);
    let (odd_re, odd_im) = (im + far_im, far_re - re);
    let turned_re = twiddle_re * odd_re - twiddle_im * odd_im;
    let turned_im = twiddle_re * odd_im + twiddle_im * odd_re;
    let (sum_re, sum_im) = (even_re + turned_re, even_im + turned_im);
    let (difference_re, difference_im) = (even_re - turned_re, even_im - turned_im);
    (
        (sum_re * sum_re + sum_im * sum_im).narrow(),
        (difference_re * difference_re + difference_im * difference_im).narrow(),
    )
}

/// Maps a position outside a non-empty signal to the mirrored position inside it.
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

    /// A plain Fourier sum, for lengths whose halves are and are not multiples of the lanes.
    #[test]
    fn the_power_matches_the_fourier_sum() {
        for n_fft in [8, 24, 64, 100, 512] {
            let samples: Vec<f64> = (0..n_fft).map(|n| ((n * 37 % 101) as f64) / 50.0 - 1.0).collect();
            let mut spectrum = Spectrum::<f64>::new((0..n_fft).map(|_| 1.0), n_fft, 3);
            let power = spectrum.power(&samples, (0, n_fft), n_fft / 2);
            assert_eq!(power.len(), n_fft / 2 + 4);
            assert_eq!(power[n_fft / 2 + 1..], [0.0; 3]);
            for (bin, &ours) in power[..=n_fft / 2].iter().enumerate() {
                let (mut re, mut im) = (0.0, 0.0);
                for (n, sample) in samples.iter().enumerate() {
                    let angle = 2.0 * std::f64::consts::PI * (n * bin % n_fft) as f64 / n_fft as f64;
                    re += sample * angle.cos();
                    im += sample * angle.sin();
                }
                let exact = re * re + im * im;
                assert!(
                    (f64::from(ours) - exact).abs() < 1e-5 * (1.0 + exact),
                    "{n_fft}: {bin}: {ours} for {exact}"
                );
            }
        }
    }

    #[test]
    fn positions_fold_back_at_both_ends() {
        let folded: Vec<usize> = (-5..9).map(|position| mirrored(position, 4)).collect();
        assert_eq!(folded, [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1, 2]);
        assert_eq!(mirrored(-3, 1), 0);
    }
}
