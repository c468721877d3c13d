//! Dynamic time warping: the distance of two sequences with different timing.
//!
//! A path goes from the first pair of frames to the last; each step advances one frame in one sequence or in both. A step in
//! both counts twice, so that every path has the same length (the number of frames of both sequences together), and the
//! smallest mean is the smallest sum. If all steps counted once, diagonal steps would be favoured, and the divisor of the
//! sum would depend on the best path.

/// Why values are not a valid sequence of frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramesError {
    /// The last frame is incomplete, or frames have no channels.
    #[error("{values} values are not a whole number of frames of {channels} channels")]
    Ragged {
        /// Number of values.
        values: usize,
        /// Values per frame.
        channels: usize,
    },
    /// A value is NaN or Inf.
    #[error("frame {frame} has {value} in channel {channel}: the model or the file it came from is damaged")]
    NotFinite {
        /// Index of the frame.
        frame: usize,
        /// Index of the channel.
        channel: usize,
        /// The value, as text.
        value: String,
    },
}

/// A view of frames, such as log-mels: `[frames, channels]`, row-major, all finite. May be empty.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    pub(super) values: &'a [f32],
    pub(super) channels: usize,
}

impl<'a> Frames<'a> {
    /// Views values as frames.
    pub fn new(values: &'a [f32], channels: usize) -> Result<Frames<'a>, FramesError> {
        if channels == 0 || !values.len().is_multiple_of(channels) {
            return Err(FramesError::Ragged { values: values.len(), channels });
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(FramesError::NotFinite {
                frame: at / channels,
                channel: at % channels,
                value: values[at].to_string(),
            }),
            None => Ok(Frames { values, channels }),
        }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.values.len() / self.channels
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Values per frame.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// The frames in order.
    pub fn rows(&self) -> std::slice::ChunksExact<'a, f32> {
        self.values.chunks_exact(self.channels)
    }
}

/// How two sequences are compared.
///
/// The default removes constant effects of voice, microphone and loudness, and keeps what changes over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DtwOptions {
    /// Subtracts from every channel its mean over time: the timbre of voice and room.
    pub channel_mean: bool,
    /// Subtracts from every frame its mean over channels: loudness. Silence then counts as much as speech.
    pub frame_mean: bool,
    /// Raises every value this many decibels below the loudest to that level, in log-mels of power: noise masked by the
    /// voice must not outweigh it.
    ///
    /// Number of 20 demo sentences (English) for which the right one of 20 was nearest, with `channel_mean`:
    ///
    /// | floor | white noise at 10 dB | at 0 dB | voice of a man | of a child |
    /// |---|---|---|---|---|
    /// | none | 17 | 0 | 20 | 20 |
    /// | 60 | 20 | 2 | 20 | 19 |
    /// | 50 | 20 | 15 | 20 | 12 |
    /// | 40 | 20 | 20 | 18 | 2 |
    ///
    /// Quiet parts distinguish sentences across voices, so with a floor that is too high only the voice matters.
    pub floor: Option<f32>,
    /// Maximum deviation of a path from the straight one, as a share of the length: with 0.2, a frame at the middle of one
    /// sequence can match those between 0.3 and 0.7 of the other. `None` sets no limit.
    pub band: Option<f32>,
}

impl Default for DtwOptions {
    fn default() -> DtwOptions {
        DtwOptions { channel_mean: true, frame_mean: false, floor: Some(60.0), band: None }
    }
}

/// The best path between two sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    /// Mean Euclidean distance of frames along the path; infinite where either sequence is empty.
    pub distance: f32,
    /// Pairs of frame indices in order, of the first and of the second sequence; empty if either sequence is.
    pub pairs: Vec<(usize, usize)>,
}

/// The best path between two sequences of frames, and its distance; needs one byte per pair of frames.
pub fn align(a: Frames<'_>, b: Frames<'_>, options: &DtwOptions) -> Alignment {
    let (a, b) = (Prepared::new(a, options), Prepared::new(b, options));
    let mut steps = vec![Step::Both; a.frames * b.frames];
    let distance = a.walk(&b, options, |i, j, step| steps[i * b.frames + j] = step);
    let mut pairs = Vec::new();
    if a.frames > 0 && b.frames > 0 {
        let (mut i, mut j) = (a.frames - 1, b.frames - 1);
        pairs.push((i, j));
        while (i, j) != (0, 0) {
            match steps[i * b.frames + j] {
                Step::Both => (i, j) = (i - 1, j - 1),
                Step::First => i -= 1,
                Step::Second => j -= 1,
            }
            pairs.push((i, j));
        }
        pairs.reverse();
    }
    Alignment { distance, pairs }
}

/// The sequence in which a step advances.
#[derive(Clone, Copy)]
enum Step {
    Both,
    First,
    Second,
}

/// A sequence with its means subtracted: computed once, however many others it is compared with.
pub(super) struct Prepared {
    frames: usize,
    /// Channels rounded up to whole lanes; the rest are zeros.
    width: usize,
    values: Vec<f32>,
}

/// Number of separate partial sums, so that the compiler can vectorise them.
const LANES: usize = 8;

impl Prepared {
    pub(super) fn new(frames: Frames<'_>, options: &DtwOptions) -> Prepared {
        let (count, channels) = (frames.len(), frames.channels);
        let width = channels.next_multiple_of(LANES);
        let mut values = vec![0.0; count * width];
        let least = options.floor.map_or(f32::NEG_INFINITY, |decibels| {
            let loudest = frames.values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            loudest - decibels * std::f32::consts::LN_10 / 10.0
        });
        for (to, from) in values.chunks_exact_mut(width).zip(frames.rows()) {
            to[..channels].iter_mut().zip(from).for_each(|(to, &value)| *to = value.max(least));
            if options.frame_mean {
                let mean = to.iter().sum::<f32>() / channels as f32;
                to[..channels].iter_mut().for_each(|value| *value -= mean);
            }
        }
        if options.channel_mean {
            let mut means = vec![0f64; width];
            for frame in values.chunks_exact(width) {
                means.iter_mut().zip(frame).for_each(|(sum, &value)| *sum += f64::from(value));
            }
            for frame in values.chunks_exact_mut(width) {
                let means = means.iter().map(|sum| (sum / count as f64) as f32);
                frame.iter_mut().zip(means).for_each(|(value, mean)| *value -= mean);
            }
        }
        Prepared { frames: count, width, values }
    }

    /// The distance alone, as [`align`] returns it. Needs memory for two rows of sums, not for the whole table.
    pub(super) fn distance(&self, other: &Prepared, options: &DtwOptions) -> f32 {
        self.walk(other, options, |_, _, _| ())
    }

    fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.width..][..self.width]
    }

    /// Fills the table row by row, and calls `step` with the best step to each cell.
    fn walk(&self, other: &Prepared, options: &DtwOptions, mut step: impl FnMut(usize, usize, Step)) -> f32 {
        assert_eq!(self.width, other.width, "both sequences need the same number of channels");
        let (n, m) = (self.frames, other.frames);
        if n == 0 || m == 0 {
            return f32::INFINITY;
        }
        // One extra cell on the left, which no path can use.
        let (mut before, mut row) = (vec![f64::INFINITY; m + 1], vec![f64::INFINITY; m + 1]);
        for i in 0..n {
            row.fill(f64::INFINITY);
            let frame = self.row(i);
            for j in within(options.band, i, n, m) {
                let local = f64::from(euclidean(frame, other.row(j)));
                if (i, j) == (0, 0) {
                    row[1] = 2.0 * local;
                    continue;
                }
                let both = (before[j] + 2.0 * local, Step::Both);
                let first = (before[j + 1] + local, Step::First);
                let second = (row[j] + local, Step::Second);
                let smaller = |a: (f64, Step), b: (f64, Step)| if b.0 < a.0 { b } else { a };
                let (sum, how) = smaller(smaller(both, first), second);
                row[j + 1] = sum;
                step(i, j, how);
            }
            std::mem::swap(&mut before, &mut row);
        }
        (before[m] / (n + m) as f64) as f32
    }
}

/// The frames of `m` that frame `i` of `n` may match. However narrow the band, it contains the corners, and rows overlap.
fn within(band: Option<f32>, i: usize, n: usize, m: usize) -> std::ops::Range<usize> {
    let Some(band) = band else { return 0..m };
    let slope = m as f64 / n as f64;
    let middle = (i as f64 + 0.5) * slope;
    let half = (f64::from(band) * m as f64).max(slope.max(1.0));
    (middle - half).floor().max(0.0) as usize..((middle + half).ceil() as usize).min(m)
}

fn euclidean(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    let (a, b) = (a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += (a - b) * (a - b);
        }
    }
    sums.iter().sum::<f32>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: DtwOptions = DtwOptions { channel_mean: false, frame_mean: false, floor: None, band: None };

    fn frames(values: &[f32], channels: usize) -> Frames<'_> {
        Frames::new(values, channels).unwrap()
    }

    fn distance(a: Frames<'_>, b: Frames<'_>, options: &DtwOptions) -> f32 {
        Prepared::new(a, options).distance(&Prepared::new(b, options), options)
    }

    /// The definition: the minimum over all paths, by recursion.
    fn slow(a: &[f32], b: &[f32]) -> f64 {
        fn to(a: &[f32], b: &[f32], i: usize, j: usize) -> f64 {
            let local = f64::from((a[i] - b[j]).abs());
            if (i, j) == (0, 0) {
                return 2.0 * local;
            }
            let mut best = f64::INFINITY;
            if i > 0 && j > 0 {
                best = best.min(to(a, b, i - 1, j - 1) + 2.0 * local);
            }
            if i > 0 {
                best = best.min(to(a, b, i - 1, j) + local);
            }
            if j > 0 {
                best = best.min(to(a, b, i, j - 1) + local);
            }
            best
        }
        to(a, b, a.len() - 1, b.len() - 1) / (a.len() + b.len()) as f64
    }

    proptest! {
        #[test]
        fn the_best_of_all_paths_is_found(
            a in prop::collection::vec(-9f32..9.0, 1..6),
            b in prop::collection::vec(-9f32..9.0, 1..6),
        ) {
            let found = distance(frames(&a, 1), frames(&b, 1), &PLAIN);
            prop_assert!((f64::from(found) - slow(&a, &b)).abs() < 1e-4, "{found} for {}", slow(&a, &b));
        }

        #[test]
        fn a_path_has_no_gaps_and_its_mean_cost_is_the_distance(
            a in prop::collection::vec(-9f32..9.0, 3 * 4),
            b in prop::collection::vec(-9f32..9.0, 3..27),
            band in prop::option::of(0f32..1.0),
        ) {
            let b = &b[..b.len() / 3 * 3];
            let options = DtwOptions { band, ..PLAIN };
            let (a, b) = (frames(&a, 3), frames(b, 3));
            let found = align(a, b, &options);
            prop_assert_eq!(found.distance, distance(a, b, &options));
            prop_assert_eq!(found.pairs.first(), Some(&(0, 0)));
            prop_assert_eq!(found.pairs.last(), Some(&(a.len() - 1, b.len() - 1)));
            let local = |(i, j): (usize, usize)| {
                let (a, b) = (a.rows().nth(i).unwrap(), b.rows().nth(j).unwrap());
                f64::from(a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt())
            };
            let mut sum = 2.0 * local((0, 0));
            for pair in found.pairs.windows(2) {
                let step = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
                prop_assert!([(1, 0), (0, 1), (1, 1)].contains(&step), "{:?}", step);
                sum += (step.0 + step.1) as f64 * local(pair[1]);
            }
            prop_assert!((sum / (a.len() + b.len()) as f64 - f64::from(found.distance)).abs() < 1e-4);
        }

        #[test]
        fn a_band_never_lowers_the_distance_and_the_distance_is_symmetric(
            a in prop::collection::vec(-9f32..9.0, 1..40),
            b in prop::collection::vec(-9f32..9.0, 1..40),
            band in 0f32..1.0,
        ) {
            let (a, b) = (frames(&a, 1), frames(&b, 1));
            let free = distance(a, b, &PLAIN);
            let narrow = distance(a, b, &DtwOptions { band: Some(band), ..PLAIN });
            prop_assert!(narrow.is_finite() && narrow >= free - 1e-5, "{narrow} in a band, {free} without");
            prop_assert!((distance(b, a, &PLAIN) - free).abs() < 1e-4);
            prop_assert_eq!(distance(a, a, &PLAIN), 0.0);
        }

        #[test]
        fn constant_offsets_do_not_change_the_distance(
            a in prop::collection::vec(-9f32..9.0, 3 * 7),
            colour in prop::array::uniform3(-5f32..5.0),
        ) {
            let other: Vec<f32> = a.iter().enumerate().map(|(i, x)| x + colour[i % 3]).collect();
            let (a, other) = (frames(&a, 3), frames(&other, 3));
            let still = |a, b, options: DtwOptions| distance(a, b, &options);
            let coloured = still(a, other, DtwOptions { channel_mean: true, ..PLAIN });
            let louder = |(i, row): (usize, &[f32])| row.iter().map(|x| x + colour[i % 3]).collect::<Vec<_>>();
            let loud: Vec<f32> = a.rows().enumerate().flat_map(louder).collect();
            let loud = still(a, frames(&loud, 3), DtwOptions { frame_mean: true, ..PLAIN });
            prop_assert!(coloured < 1e-4 && loud < 1e-4, "{coloured} and {loud}");
        }
    }

    #[test]
    fn empty_sequences_are_infinitely_far_and_nan_is_an_error() {
        let (none, one) = (frames(&[], 2), [0.0, 0.0]);
        assert!(none.is_empty());
        assert_eq!(distance(none, frames(&one, 2), &DtwOptions::default()), f32::INFINITY);
        let found = align(frames(&one, 2), none, &DtwOptions::default());
        assert_eq!(found, Alignment { distance: f32::INFINITY, pairs: Vec::new() });
        let ragged = Frames::new(&one, 3).unwrap_err();
        assert_eq!(ragged.to_string(), "2 values are not a whole number of frames of 3 channels");
        let damaged = Frames::new(&[0.0, 1.0, 2.0, f32::NAN], 2).unwrap_err();
        assert!(damaged.to_string().starts_with("frame 1 has NaN in channel 1"), "{damaged}");
    }
}
