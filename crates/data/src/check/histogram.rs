//! Histogram of durations with bins of a round width, and its bars in a terminal.

use serde::{Deserialize, Serialize};

/// Possible bin widths in seconds.
const WIDTHS: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0];
/// Maximum number of bins.
const MAX_BINS: usize = 16;
/// Length of the longest bar in characters.
const BAR: usize = 40;

/// Number of values between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Lower bound in seconds, inclusive.
    pub from: f64,
    /// Upper bound in seconds, exclusive.
    pub to: f64,
    /// Number of values in the bin.
    pub count: usize,
}

/// Durations in bins of equal width starting at zero; empty without values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// In ascending order, without gaps.
    pub bins: Vec<Bin>,
}

impl Histogram {
    /// Sorts durations in seconds into bins. The last bin also counts all longer values.
    pub(crate) fn from_seconds(seconds: impl Iterator<Item = f64> + Clone) -> Self {
        let longest = seconds.clone().fold(0.0, f64::max);
        let fits = |width: &&f64| longest / **width < MAX_BINS as f64;
        let width = WIDTHS.iter().find(fits).copied().unwrap_or(WIDTHS[WIDTHS.len() - 1]);
        let mut bins: Vec<Bin> = Vec::new();
        for value in seconds {
            let at = ((value / width).floor().max(0.0) as usize).min(MAX_BINS - 1);
            while bins.len() <= at {
                let from = bins.len() as f64 * width;
                bins.push(Bin { from, to: from + width, count: 0 });
            }
            bins[at].count += 1;
        }
        Histogram { bins }
    }

    /// One line per bin: bounds, bar, count.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let most = self.bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
        let skipped = self.bins.iter().take_while(|bin| bin.count == 0).count();
        self.bins.iter().skip(skipped).map(move |bin| {
            // Rounded up: a non-empty bin shows at least one block.
            let bar = "█".repeat((bin.count * BAR).div_ceil(most));
            format!("{:>7} - {:>5} s  {bar:<BAR$}  {}", bin.from, bin.to, bin.count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_bin() {
        for longest in [0.4, 7.9, 8.0, 11.5, 100.0, 5000.0, 1e9] {
            let values: Vec<f64> = (0..=100).map(|i| longest * f64::from(i) / 100.0).collect();
            let histogram = Histogram::from_seconds(values.iter().copied());
            assert!(histogram.bins.len() <= MAX_BINS);
            assert_eq!(histogram.bins.iter().map(|bin| bin.count).sum::<usize>(), values.len());
            for bin in &histogram.bins[..histogram.bins.len() - 1] {
                let inside = values.iter().filter(|&&v| bin.from <= v && v < bin.to).count();
                assert_eq!(bin.count, inside, "{bin:?} of {longest}");
            }
        }
    }

    #[test]
    fn bars_show_even_a_single_value() {
        let histogram = Histogram::from_seconds([1.2, 1.3, 3.0].into_iter());
        let lines: Vec<String> = histogram.lines().collect();
        assert_eq!(lines.len(), 5, "the empty bins below the first value are left out: {lines:#?}");
        assert!(lines[0].contains(&"█".repeat(BAR)) && lines[0].ends_with("  2"));
        assert!(lines[4].contains('█'));
        assert_eq!(Histogram::from_seconds(std::iter::empty()).lines().count(), 0);
    }
}
