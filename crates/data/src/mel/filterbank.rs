//! Triangular mel filters, stored sparsely: each covers a few neighbouring bins, and multiplying by the zeros of a dense
//! matrix is twenty times slower.

/// Bins are processed in groups of this size, so this many zeros must follow the last bin.
pub(super) const LANES: usize = 8;

/// The filters of one front-end.
pub(super) struct Filterbank {
    filters: Vec<Filter>,
    weights: Vec<f32>,
}

/// First bin of a filter and the range of its weights.
struct Filter {
    bin: usize,
    weights: std::ops::Range<usize>,
}

impl Filterbank {
    /// Creates `channels` filters from 0 Hz to `highest`, evenly spaced on the HTK mel scale, for the power spectrum of
    /// `n_fft` samples. With `area` each has area 1 (Slaney's norm), otherwise height 1.
    pub(super) fn new(
        sample_rate: u32,
        n_fft: usize,
        channels: usize,
        highest: f64,
        area: bool,
    ) -> Filterbank {
        let to_mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
        let to_hertz = |mel: f64| 700.0 * (10f64.powf(mel / 2595.0) - 1.0);
        let corner = |number: usize| to_hertz(to_mel(highest) * number as f64 / (channels + 1) as f64);
        let hertz_per_bin = f64::from(sample_rate) / n_fft as f64;
        let mut bank = Filterbank { filters: Vec::new(), weights: Vec::new() };
        for channel in 0..channels {
            let [low, centre, high] = [0, 1, 2].map(|offset| corner(channel + offset));
            let norm = if area { 2.0 / (high - low) } else { 1.0 };
            let weight = |bin: usize| {
                let hertz = bin as f64 * hertz_per_bin;
                let slope = ((hertz - low) / (centre - low)).min((high - hertz) / (high - centre));
                (slope.max(0.0) * norm) as f32
            };
            let from = (low / hertz_per_bin).floor() as usize;
            let to = ((high / hertz_per_bin).ceil() as usize).min(n_fft / 2);
            let mut used = (from..=to).filter(|&bin| weight(bin) > 0.0);
            let (first, last) = (used.clone().next().unwrap_or(from), used.next_back().unwrap_or(from));
            let start = bank.weights.len();
            bank.weights.extend((first..=last).map(weight));
            bank.weights.resize(start + (last - first + 1).next_multiple_of(LANES), 0.0);
            bank.filters.push(Filter { bin: first, weights: start..bank.weights.len() });
        }
        bank
    }

    /// Computes the power in each filter from the power in each bin, which must be followed by [`LANES`] zeros.
    pub(super) fn apply(&self, power: &[f32], out: &mut [f32]) {
        for (value, filter) in out.iter_mut().zip(&self.filters) {
            let weights = self.weights[filter.weights.clone()].as_chunks::<LANES>().0;
            let bins = power[filter.bin..].as_chunks::<LANES>().0;
            let mut sums = [0.0; LANES];
            for (weights, bins) in weights.iter().zip(bins) {
                for lane in 0..LANES {
                    sums[lane] += weights[lane] * bins[lane];
                }
            }
            let [a, b, c, d, e, f, g, h] = sums;
            *value = ((a + e) + (c + g)) + ((b + f) + (d + h));
        }
    }

    /// The transpose of [`Self::apply`]: adds to each bin the filter values times their weights. `out` has [`LANES`] extra
    /// elements.
    pub(super) fn spread(&self, values: &[f32], out: &mut [f32]) {
        out.fill(0.0);
        for (value, filter) in values.iter().zip(&self.filters) {
            let weights = &self.weights[filter.weights.clone()];
            out[filter.bin..].iter_mut().zip(weights).for_each(|(bin, weight)| *bin += weight * value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(bank: &Filterbank, n_fft: usize, channels: usize) -> Vec<Vec<f32>> {
        (0..=n_fft / 2)
            .map(|bin| {
                let mut power = vec![0.0; n_fft / 2 + 1 + LANES];
                power[bin] = 1.0;
                let mut out = vec![0.0; channels];
                bank.apply(&power, &mut out);
                out
            })
            .collect()
    }

    #[test]
    fn triangles_of_height_one_sum_to_one_in_every_bin() {
        let bank = Filterbank::new(16_000, 512, 64, 8_000.0, false);
        let rows = dense(&bank, 512, 64);
        // Between the first and the last centre the falling and the rising edge add up to one.
        for (bin, row) in rows.iter().enumerate().take(240).skip(4) {
            let sum: f32 = row.iter().sum();
            assert!((sum - 1.0).abs() < 1e-5, "bin {bin}: {sum}");
            assert!(row.iter().filter(|&&weight| weight > 0.0).count() <= 2, "bin {bin}");
        }
    }

    #[test]
    fn slaney_filters_have_equal_area() {
        let bank = Filterbank::new(22_050, 2048, 80, 8_000.0, true);
        let rows = dense(&bank, 2048, 80);
        let hertz_per_bin = 22_050.0 / 2048.0;
        for channel in 40..80 {
            let area: f32 = rows.iter().map(|row| row[channel]).sum::<f32>() * hertz_per_bin;
            assert!((area - 1.0).abs() < 0.02, "channel {channel}: {area}");
        }
    }

    #[test]
    fn the_last_filter_does_not_read_past_the_buffer() {
        for (rate, n_fft, channels) in [(22_050, 1024, 80), (22_050, 2048, 80), (16_000, 512, 64)] {
            let bank = Filterbank::new(rate, n_fft, channels, 8_000.0, true);
            let mut out = vec![0.0; channels];
            let mut power = vec![1.0; n_fft / 2 + 1];
            power.resize(power.len() + LANES, 0.0);
            bank.apply(&power, &mut out);
            assert!(out[channels - 1] > 0.0);
        }
    }
}
