//! Durations in bins of a round width, and the bars they make in a terminal.

use serde::{Deserialize, Serialize};

/// Widths a bin may have, in seconds.
const WIDTHS: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0];
/// As many bins as are read at a glance.
const MOST_BINS: usize = 16;
/// Length of the longest bar.
const BAR: usize = 40;

/// How many values fall between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Lower bound, included.
    pub from: f64,
    /// Upper bound, not included.
    pub to: f64,
    /// Values between them.
    pub count: usize,
}

/// Durations in bins of equal width from zero on; empty where there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// In ascending order, without gaps.
    pub bins: Vec<Bin>,
}

impl Histogram {
    /// Sorts seconds into bins. The last one takes whatever is longer than all widths can show.
    pub(crate) fn of_seconds(seconds: impl Iterator<Item = f64> + Clone) -> Self {
        let longest = seconds.clone().fold(0.0, f64::max);
        let fits = |width: &&f64| longest / **width < MOST_BINS as f64;
        let width = WIDTHS.iter().find(fits).copied().unwrap_or(WIDTHS[WIDTHS.len() - 1]);
        let mut bins: Vec<Bin> = Vec::new();
        for value in seconds {
            let at = ((value / width).floor().max(0.0) as usize).min(MOST_BINS - 1);
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
            // Rounded up: a bin that holds anything shows at least one block.
            let bar = "█".repeat((bin.count * BAR).div_ceil(most));
            format!("{:>7} - {:>5} s  {bar:<BAR$}  {}", bin.from, bin.to, bin.count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bin_that_spans_it() {
        for longest in [0.4, 7.9, 8.0, 11.5, 100.0, 5000.0, 1e9] {
            let values: Vec<f64> = (0..=100).map(|i| longest * f64::from(i) / 100.0).collect();
            let histogram = Histogram::of_seconds(values.iter().copied());
            assert!(histogram.bins.len() <= MOST_BINS);
            assert_eq!(histogram.bins.iter().map(|bin| bin.count).sum::<usize>(), values.len());
            for bin in &histogram.bins[..histogram.bins.len() - 1] {
                let inside = values.iter().filter(|&&v| bin.from <= v && v < bin.to).count();
                assert_eq!(bin.count, inside, "{bin:?} of {longest}");
            }
        }
    }

    #[test]
    fn bars_show_even_a_single_value() {
        let histogram = Histogram::of_seconds([1.2, 1.3, 3.0].into_iter());
        let lines: Vec<String> = histogram.lines().collect();
        assert_eq!(lines.len(), 5, "the empty bins below the first value are left out: {lines:#?}");
        assert!(lines[0].contains(&"█".repeat(BAR)) && lines[0].ends_with("  2"));
        assert!(lines[4].contains('█'));
        assert_eq!(Histogram::of_seconds(std::iter::empty()).lines().count(), 0);
    }
}
