//! Resampling by a windowed sinc over the reduced ratio: the kernel of `torchaudio.functional.resample` with its defaults,
//! which XTTS uses.
//!
//! With both rates divided by their greatest common divisor, output `o` is at input position `o * from / to`; there are `to`
//! different positions between two samples (phases), each with its own row of taps. Only the taps inside the window are
//! stored: two thirds of the reference's taps are zeros.

use std::f64::consts::PI;

use super::SAMPLE_RATES;

/// Zero crossings of the sinc on each side.
const WIDTH: f64 = 6.0;

/// Cut-off as a fraction of the lower Nyquist frequency.
const ROLLOFF: f64 = 0.99;

/// Maximum number of taps in the table (4 MiB); with more, each row is computed when needed.
const MAX_TABLE_TAPS: usize = 1 << 20;

/// Up to this reduced rate the taps are rounded as the reference rounds them. The reference's error grows with the rate, up
/// to 1e-3 for coprime rates, and is not reproduced beyond this limit.
const MAX_ROUNDED_RATE: usize = 1000;

/// Rows are padded to a multiple of this, so that dot products have no remainder.
const LANES: usize = 8;

/// Outputs computed at a time when decimating, all in registers.
const BLOCK: usize = 32;

/// Converts clips from one sample rate to another. Reuse it: computing the taps costs as much as applying them.
pub struct Resampler {
    from: usize,
    to: usize,
    /// Taps per row, without padding.
    taps: usize,
    rows: Rows,
    padded: Vec<f32>,
}

enum Rows {
    /// The rates are equal.
    Same,
    /// One phase only: every `from`-th sample is kept.
    Decimate(Vec<f32>),
    /// All rows, concatenated.
    Table { taps: Vec<f32>, first: Vec<isize> },
    /// Too many rows to store: a single row, overwritten for each output.
    OnTheFly(Vec<f32>),
}

impl Resampler {
    /// Creates a resampler from `from` to `to` Hz.
    ///
    /// # Panics
    /// If a rate is outside 1,000 to 768,000; the decoders return no others.
    pub fn new(from: u32, to: u32) -> Resampler {
        assert!(
            SAMPLE_RATES.contains(&from) && SAMPLE_RATES.contains(&to),
            "rates of {from} and {to} Hz: decoders and configuration reject rates outside {SAMPLE_RATES:?}"
        );
        let divisor = greatest_common_divisor(from, to);
        let (from, to) = ((from / divisor) as usize, (to / divisor) as usize);
        let taps = (2.0 * WIDTH / per_input(from, to)).floor() as usize + 1;
        let stride = taps.next_multiple_of(LANES);
        let mut resampler = Resampler { from, to, taps, rows: Rows::Same, padded: Vec::new() };
        resampler.rows = match to {
            _ if from == to => Rows::Same,
            1 => {
                let mut row = vec![0.0; taps];
                resampler.fill(0, &mut row);
                Rows::Decimate(row)
            }
            _ if to * stride > MAX_TABLE_TAPS => Rows::OnTheFly(vec![0.0; stride]),
            _ => {
                let mut table = vec![0.0; to * stride];
                for (phase, row) in table.chunks_exact_mut(stride).enumerate() {
                    resampler.fill(phase, row);
                }
                Rows::Table { taps: table, first: (0..to).map(|phase| resampler.first(phase)).collect() }
            }
        };
        resampler
    }

    /// Number of output samples for `samples` input samples: `ceil(samples * to / from)`.
    pub(crate) fn output_len(&self, samples: usize) -> usize {
        let exact = (samples as u128 * self.to as u128).div_ceil(self.from as u128);
        usize::try_from(exact)
            .expect("a clip in memory, at most 768 times longer, has a length that fits in usize")
    }

    /// Resamples a whole clip.
    pub fn resample(&mut self, samples: &[f32]) -> Vec<f32> {
        if matches!(self.rows, Rows::Same) {
            return samples.to_vec();
        }
        let length = self.output_len(samples.len());
        let mut padded = std::mem::take(&mut self.padded);
        let mut rows = std::mem::replace(&mut self.rows, Rows::Same);
        let out = match &mut rows {
            Rows::Same => Vec::new(),
            Rows::Decimate(row) => self.decimate(samples, row, &mut padded, length),
            Rows::Table { taps, first } => {
                let stride = taps.len() / self.to;
                let lead = self.pad(samples, stride, &mut padded);
                let mut out = Vec::with_capacity(length + self.to);
                for base in (lead..).step_by(self.from) {
                    if out.len() >= length {
                        break;
                    }
                    for (row, first) in taps.chunks_exact(stride).zip(first.iter()).take(length - out.len()) {
                        let start = base.wrapping_add_signed(*first);
                        out.push(dot(row, &padded[start..start + stride]));
                    }
                }
                out
            }
            Rows::OnTheFly(row) => {
                let lead = self.pad(samples, row.len(), &mut padded);
                let position = |output: usize| (output / self.to * self.from, output % self.to);
                (0..length)
                    .map(|output| {
                        let (base, phase) = position(output);
                        self.fill(phase, row);
                        let start = (lead + base).wrapping_add_signed(self.first(phase));
                        dot(row, &padded[start..start + row.len()])
                    })
                    .collect()
            }
        };
        self.rows = rows;
        self.padded = padded;
        out
    }

    /// Input position of the first tap of a phase, relative to the start of the group.
    fn first(&self, phase: usize) -> isize {
        let centre = phase as f64 * self.from as f64 / self.to as f64;
        (centre - WIDTH / per_input(self.from, self.to)).ceil() as isize
    }

    fn fill(&self, phase: usize, row: &mut [f32]) {
        let first = self.first(phase);
        let exact = self.to.max(self.from) > MAX_ROUNDED_RATE;
        for (tap, value) in row.iter_mut().enumerate().take(self.taps) {
            let input = first + tap as isize;
            *value = if exact {
                exact_tap(input, phase, self.from, self.to)
            } else {
                rounded_tap(input, phase, self.from, self.to)
            };
        }
    }

    /// Pads the clip with zeros so that no tap reaches outside. Returns the offset of the first sample.
    fn pad(&self, samples: &[f32], stride: usize, padded: &mut Vec<f32>) -> usize {
        let lead = self.first(0).unsigned_abs();
        padded.clear();
        padded.resize(lead, 0.0);
        padded.extend_from_slice(samples);
        padded.resize(lead + samples.len() + 2 * self.from + stride, 0.0);
        lead
    }

    /// Decimates (one phase): the input is split into `from` streams in which neighbouring outputs use neighbouring inputs.
    /// This allows computing a block of outputs at once, each summing its taps in order.
    fn decimate(&self, samples: &[f32], row: &[f32], streams: &mut Vec<f32>, length: usize) -> Vec<f32> {
        let lead = self.first(0).unsigned_abs();
        let stream = length.next_multiple_of(BLOCK) + row.len() / self.from + 1;
        streams.clear();
        streams.resize(stream * self.from, 0.0);
        distribute(samples, lead, self.from, streams, stream);
        let mut out = vec![0.0; length.next_multiple_of(BLOCK)];
        for (index, block) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let mut sums = [0.0; BLOCK];
            for (tap, &weight) in row.iter().enumerate() {
                let start = tap % self.from * stream + tap / self.from + index * BLOCK;
                let Some(inputs) = streams[start..].first_chunk::<BLOCK>() else { continue };
                for (sum, input) in sums.iter_mut().zip(inputs) {
                    *sum += weight * input;
                }
            }
            *block = sums;
        }
        out.truncate(length);
        out
    }
}

/// Distributes samples, after `lead` zeros, over `count` streams of length `stream`.
fn distribute(samples: &[f32], lead: usize, count: usize, streams: &mut [f32], stream: usize) {
    for (number, out) in streams.chunks_exact_mut(stream).enumerate() {
        // Position `k * count + number` of the padded input becomes position `k` of this stream.
        let zeros = lead.saturating_sub(number).div_ceil(count);
        let from = zeros * count + number - lead;
        let inputs = samples.get(from..).unwrap_or_default();
        let out = &mut out[zeros..];
        if count == 2 {
            let (pairs, rest) = inputs.as_chunks::<2>();
            for (value, pair) in out.iter_mut().zip(pairs) {
                *value = pair[0];
            }
            if let (Some(value), [last]) = (out.get_mut(pairs.len()), rest) {
                *value = *last;
            }
        } else {
            for (value, input) in out.iter_mut().zip(inputs.iter().step_by(count)) {
                *value = *input;
            }
        }
    }
}

/// Zero crossings of the sinc per input sample.
fn per_input(from: usize, to: usize) -> f64 {
    from.min(to) as f64 * ROLLOFF / from as f64
}

/// Weight of input sample `input` in output `phase`, both counted from the start of the group.
fn exact_tap(input: isize, phase: usize, from: usize, to: usize) -> f32 {
    let scale = per_input(from, to);
    // In zero crossings of the sinc.
    let t = (input as f64 - phase as f64 * from as f64 / to as f64) * scale;
    let t = t.clamp(-WIDTH, WIDTH);
    let window = (t * PI / WIDTH / 2.0).cos().powi(2);
    let sinc = if t == 0.0 { 1.0 } else { (t * PI).sin() / (t * PI) };
    (sinc * window * scale) as f32
}

/// Like [`exact_tap`], rounded to `f32` after every operation in the reference's order: the reference's taps are off by
/// 1e-5, which is visible in a spectrum near silence.
fn rounded_tap(input: isize, phase: usize, from: usize, to: usize) -> f32 {
    const PI: f32 = std::f32::consts::PI;
    const WIDTH: f32 = self::WIDTH as f32;
    let crossings = (from.min(to) as f64 * ROLLOFF) as f32;
    let t = -(phase as f32) / to as f32 + input as f32 / from as f32;
    let t = (t * crossings).clamp(-WIDTH, WIDTH);
    let window = (t * PI / WIDTH / 2.0).cos();
    let angle = t * PI;
    let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
    sinc * (window * window * per_input(from, to) as f32)
}

fn dot(row: &[f32], inputs: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    for (weights, inputs) in row.as_chunks::<LANES>().0.iter().zip(inputs.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += weights[lane] * inputs[lane];
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAIRS: [(u32, u32); 9] = [
        (44_100, 22_050),
        (48_000, 16_000),
        (22_050, 16_000),
        (48_000, 22_050),
        (16_000, 22_050),
        (22_050, 24_000),
        (8_000, 16_000),
        (96_000, 24_000),
        (44_101, 22_050),
    ];

    fn sine(rate: u32, hertz: f64, samples: usize) -> Vec<f32> {
        let step = 2.0 * PI * hertz / f64::from(rate);
        (0..samples).map(|n| (0.5 * (n as f64 * step).sin()) as f32).collect()
    }

    /// The definition in f64 without tables or shortcuts; the taps of the reference are off by 1e-5.
    fn reference(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
        let divisor = greatest_common_divisor(from, to);
        let (from, to) = (f64::from(from / divisor), f64::from(to / divisor));
        let base = from.min(to) * ROLLOFF;
        let length = (samples.len() as f64 * to / from).ceil() as usize;
        let output = |o: usize| {
            let sum = samples.iter().enumerate().map(|(n, &sample)| {
                let t = (n as f64 / from - o as f64 / to) * base;
                if t.abs() >= WIDTH {
                    return 0.0;
                }
                let window = (t * PI / WIDTH / 2.0).cos().powi(2);
                let sinc = if t == 0.0 { 1.0 } else { (t * PI).sin() / (t * PI) };
                f64::from(sample) * sinc * window * base / from
            });
            sum.sum::<f64>() as f32
        };
        (0..length).map(output).collect()
    }

    #[test]
    fn every_code_path_matches_the_definition() {
        for (from, to) in PAIRS {
            for samples in [1usize, 2, 7, 64, 333, 700] {
                let input: Vec<f32> = (0..samples).map(|n| ((n * 37 % 101) as f32 / 50.0) - 1.0).collect();
                let mut resampler = Resampler::new(from, to);
                let (ours, wanted) = (resampler.resample(&input), reference(&input, from, to));
                assert_eq!(ours.len(), wanted.len(), "{from} -> {to}, {samples} samples");
                for (at, (a, b)) in ours.iter().zip(&wanted).enumerate() {
                    assert!((a - b).abs() < 5e-5, "{from} -> {to}, {samples} samples, at {at}: {a} for {b}");
                }
                assert_eq!(resampler.resample(&input), ours, "second call, with reused buffers");
            }
        }
    }

    #[test]
    fn constants_and_sines_are_preserved() {
        for (from, to) in PAIRS {
            let seconds = from as usize / 5;
            let mut resampler = Resampler::new(from, to);
            let middle = |signal: &[f32]| signal[to as usize / 50..signal.len() - to as usize / 50].to_vec();
            for value in middle(&resampler.resample(&vec![0.5; seconds])) {
                assert!((value - 0.5).abs() < 2e-3, "{from} -> {to}: a constant of 0.5 became {value}");
            }
            let out = resampler.resample(&sine(from, 440.0, seconds));
            let wanted = sine(to, 440.0, out.len());
            for (a, b) in middle(&out).iter().zip(middle(&wanted)) {
                assert!((a - b).abs() < 3e-3, "{from} -> {to}: {a} for {b}");
            }
        }
    }

    #[test]
    fn frequencies_above_nyquist_are_removed() {
        let mut resampler = Resampler::new(44_100, 22_050);
        let out = resampler.resample(&sine(44_100, 15_000.0, 8_000));
        assert!(out[200..out.len() - 200].iter().all(|value| value.abs() < 0.01));
    }

    #[test]
    fn coprime_rates_do_not_build_a_huge_table() {
        let resampler = Resampler::new(767_999, 768_000);
        assert!(matches!(&resampler.rows, Rows::OnTheFly(row) if row.len() < 100));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_rates_give_the_documented_length(
            from in 1_000u32..100_000, to in 1_000u32..100_000, samples in 0usize..400,
        ) {
            let mut resampler = Resampler::new(from, to);
            let out = resampler.resample(&vec![0.25; samples]);
            prop_assert_eq!(out.len() as u64, (samples as u64 * u64::from(to)).div_ceil(u64::from(from)));
            prop_assert!(out.iter().all(|value| value.abs() < 0.5));
        }
    }
}
