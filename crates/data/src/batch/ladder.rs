//! The few shapes that batches have. Every shape costs a captured graph and a slab; too few shapes cost padding. So the
//! boundaries are not guessed: an exact search finds those with the least padding.

use serde::{Deserialize, Serialize};

/// Capacity of one row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rung {
    /// Maximum rows of the length column.
    pub frames: u32,
    /// Maximum text tokens; 0 if batches have no text.
    pub tokens: u32,
}

/// The row capacities in use, shortest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    rungs: Vec<Rung>,
}

/// Histogram of record lengths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    /// Indexed by number of frames: a division for each of a million records would cost more than the table.
    levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    records: u64,
    /// Largest token count among them.
    tokens: u32,
}

impl Lengths {
    /// Counts a record; the caller bounds `frames`, which sizes the table.
    pub(crate) fn add(&mut self, frames: u32, tokens: u32) {
        let frames = frames as usize;
        if self.levels.len() <= frames {
            self.levels.resize(frames + 1, Level::default());
        }
        let level = &mut self.levels[frames];
        level.records += 1;
        level.tokens = level.tokens.max(tokens);
    }

    /// Returns the lengths that occur, rounded up to `unit` but at most `limit`, and the records of each.
    fn rounded(&self, unit: u32, limit: u32) -> (Vec<u32>, Vec<Level>) {
        let (mut tops, mut levels): (Vec<u32>, Vec<Level>) = Default::default();
        let unit = unit.max(1);
        for (frames, level) in self.levels.iter().enumerate().filter(|(_, level)| level.records > 0) {
            let top = (frames as u32).div_ceil(unit).saturating_mul(unit).min(limit);
            match levels.last_mut() {
                Some(last) if tops.last() == Some(&top) => {
                    last.records += level.records;
                    last.tokens = last.tokens.max(level.tokens);
                }
                _ => {
                    tops.push(top);
                    levels.push(*level);
                }
            }
        }
        (tops, levels)
    }
}

/// Constraints for choosing rungs.
pub(crate) struct Fit {
    /// Maximum number of rungs.
    pub(crate) buckets: usize,
    /// Rungs are multiples of this many frames.
    pub(crate) frame_unit: u32,
    /// Maximum frames of a rung, even if it is not a multiple of `frame_unit`.
    pub(crate) max_frames: u32,
    /// Token capacities are multiples of this.
    pub(crate) token_unit: u32,
}

impl Ladder {
    /// Creates a ladder of the given rungs; `None` unless their frames are positive and strictly increasing.
    pub fn new(rungs: Vec<Rung>) -> Option<Self> {
        let grows = rungs.is_sorted_by(|a, b| a.frames < b.frames);
        (grows && rungs.first().is_some_and(|rung| rung.frames > 0)).then_some(Ladder { rungs })
    }

    /// Returns the ladder with the least padding. Every rung of `n` frames holds at least `enough(n)` records (one batch),
    /// unless there are fewer records in total.
    pub(crate) fn fit(lengths: &Lengths, fit: &Fit, enough: impl Fn(u32) -> u64) -> Self {
        let (tops, levels) = lengths.rounded(fit.frame_unit, fit.max_frames);
        let mut start = 0;
        let rungs = boundaries(&tops, &levels, fit.buckets, enough)
            .into_iter()
            .map(|end| {
                let tokens = levels[start..end].iter().map(|level| level.tokens).max().unwrap_or(0);
                start = end;
                Rung { frames: tops[end - 1], tokens: tokens.next_multiple_of(fit.token_unit.max(1)) }
            })
            .collect();
        Ladder { rungs }
    }

    /// Returns the rungs, shortest first.
    pub fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// Returns the shortest rung with room for that many frames and tokens. `table` is that of [`Self::table`].
    pub(crate) fn rung_by(&self, table: &[u32], frames: u32, tokens: u32) -> Option<usize> {
        self.first_fitting(*table.get(frames as usize)? as usize, tokens)
    }

    /// Returns, indexed by number of frames, the first rung that is long enough.
    pub(crate) fn table(&self, max_frames: u32) -> Vec<u32> {
        let mut rung = 0;
        (0..=max_frames)
            .map(|frames| {
                while self.rungs.get(rung as usize).is_some_and(|rung| rung.frames < frames) {
                    rung += 1;
                }
                rung
            })
            .collect()
    }

    fn first_fitting(&self, first: usize, tokens: u32) -> Option<usize> {
        (first..self.rungs.len()).find(|&i| self.rungs[i].tokens >= tokens)
    }
}

/// Returns where rungs end (exclusive, in levels), by dynamic programming over levels and number of rungs.
fn boundaries(tops: &[u32], levels: &[Level], buckets: usize, enough: impl Fn(u32) -> u64) -> Vec<usize> {
    let count = levels.len();
    if count == 0 {
        return Vec::new();
    }
    let mut below = vec![0u64; count + 1];
    for (i, level) in levels.iter().enumerate() {
        below[i + 1] = below[i] + level.records;
    }
    let search = Search { tops, below, needed: tops.iter().map(|&top| enough(top)).collect() };

    let mut rows: Vec<Row> = Vec::new();
    let mut best: Option<(u64, usize)> = None;
    for rungs in 0..buckets.clamp(1, count) {
        let mut row = Row { cost: vec![None; count + 1], cut: vec![0; count + 1] };
        match rows.last() {
            None => (1..=count).for_each(|end| row.cost[end] = search.cost(0, end)),
            Some(shorter) => search.fill(shorter, &mut row, 1..count + 1, 0..count),
        }
        // Prefer the fewest rungs with the least padding: an extra shape must reduce it.
        if let Some(cost) = row.cost[count]
            && best.is_none_or(|(least, _)| cost < least)
        {
            best = Some((cost, rungs));
        }
        rows.push(row);
    }
    // Fewer records than one batch: one rung for all.
    let Some((_, rungs)) = best else { return vec![count] };
    let mut ends = vec![count];
    for row in rows[1..=rungs].iter().rev() {
        ends.push(row.cut[ends[ends.len() - 1]]);
    }
    ends.reverse();
    ends
}

struct Search<'a> {
    tops: &'a [u32],
    /// Number of records in the levels before each level.
    below: Vec<u64>,
    /// Minimum number of records of a rung that ends at each level.
    needed: Vec<u64>,
}

/// Cheapest cover of the first levels with a given number of rungs.
struct Row {
    /// Padded frames, by number of levels covered; `None` if a rung would hold too few records.
    cost: Vec<Option<u64>>,
    /// Level at which the last of these rungs begins.
    cut: Vec<usize>,
}

impl Search<'_> {
    /// Returns the padded frames of the levels `start..end` as one rung. The unpadded frames are the same for every ladder,
    /// so minimising this minimises padding.
    fn cost(&self, start: usize, end: usize) -> Option<u64> {
        let records = self.below[end] - self.below[start];
        (records >= self.needed[end - 1]).then(|| records * u64::from(self.tops[end - 1]))
    }

    /// Fills `row` at `ends`, given that the best cuts are in `cuts`.
    ///
    /// The cost satisfies the quadrangle inequality (moving a record from a lower top to a higher one costs more, the higher
    /// the top), so the best cut never moves left as the end moves right. Divide and conquer over the ends finds all of them
    /// in n log n, so a corpus of hour-long files needs no coarser unit.
    fn fill(&self, shorter: &Row, row: &mut Row, ends: std::ops::Range<usize>, cuts: std::ops::Range<usize>) {
        if ends.is_empty() {
            return;
        }
        let end = ends.start + ends.len() / 2;
        let best = (cuts.start..cuts.end.min(end))
            .filter_map(|cut| Some((shorter.cost[cut]? + self.cost(cut, end)?, cut)))
            .min();
        match best {
            Some((cost, cut)) => {
                (row.cost[end], row.cut[end]) = (Some(cost), cut);
                self.fill(shorter, row, ends.start..end, cuts.start..cut + 1);
                self.fill(shorter, row, end + 1..ends.end, cut..cuts.end);
            }
            // If the rungs cannot be filled here, they cannot be filled further left either.
            None => self.fill(shorter, row, end + 1..ends.end, cuts),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Ladder {
        /// [`Ladder::rung_by`] without a table.
        fn rung_of(&self, frames: u32, tokens: u32) -> Option<usize> {
            self.first_fitting(self.rungs.partition_point(|rung| rung.frames < frames), tokens)
        }
    }

    fn fit(frames: &[u32], buckets: usize, unit: u32, enough: u64) -> Ladder {
        let mut lengths = Lengths::default();
        frames.iter().for_each(|&n| lengths.add(n, n / 3));
        let fit = Fit { buckets, frame_unit: unit, max_frames: 1 << 20, token_unit: 16 };
        Ladder::fit(&lengths, &fit, |_| enough)
    }

    fn padded_frames(frames: &[u32], ladder: &Ladder) -> u64 {
        frames.iter().map(|&n| u64::from(ladder.rungs[ladder.rung_of(n, 0).unwrap()].frames)).sum()
    }

    #[test]
    fn two_clusters_get_two_rungs() {
        let ladder = fit(&[100, 101, 102, 300, 310], 8, 32, 1);
        let frames: Vec<u32> = ladder.rungs().iter().map(|rung| rung.frames).collect();
        assert_eq!(frames, [128, 320]);
        assert_eq!(ladder.rungs()[1].tokens, 112, "103 tokens, rounded up to 16");
    }

    #[test]
    fn the_top_rung_does_not_exceed_the_limit() {
        let mut lengths = Lengths::default();
        lengths.add(999, 1);
        let fit = Fit { buckets: 4, frame_unit: 32, max_frames: 1000, token_unit: 16 };
        assert_eq!(Ladder::fit(&lengths, &fit, |_| 1).rungs()[0].frames, 1000);
    }

    #[test]
    fn a_rung_holds_a_batch_unless_all_records_are_fewer() {
        let mut frames = vec![100; 50];
        frames.extend([900; 3]);
        assert_eq!(fit(&frames, 8, 32, 8).rungs().len(), 1, "three long ones alone do not fill a batch");
        assert_eq!(fit(&frames, 8, 32, 3).rungs().len(), 2);
        assert_eq!(fit(&frames, 8, 32, 100).rungs().len(), 1);
    }

    #[test]
    fn tokens_push_a_record_to_a_longer_rung() {
        let rungs = vec![Rung { frames: 64, tokens: 16 }, Rung { frames: 128, tokens: 32 }];
        let ladder = Ladder::new(rungs.clone()).unwrap();
        assert_eq!(ladder.rung_of(64, 16), Some(0));
        assert_eq!(ladder.rung_of(64, 17), Some(1));
        assert_eq!(ladder.rung_of(65, 1), Some(1));
        assert_eq!(ladder.rung_of(129, 1), None);
        assert_eq!(ladder.rung_of(1, 33), None);
        let table = ladder.table(140);
        for (frames, tokens) in (0..150).flat_map(|frames| [1, 16, 17, 32, 33].map(|tokens| (frames, tokens)))
        {
            assert_eq!(ladder.rung_by(&table, frames, tokens), ladder.rung_of(frames, tokens));
        }
        assert!(Ladder::new(rungs.into_iter().rev().collect()).is_none());
    }

    proptest! {
        #[test]
        fn the_ladder_has_the_least_padding(
            frames in proptest::collection::vec(1u32..40, 1..40),
            buckets in 1usize..6,
            enough in 1u64..6,
        ) {
            let ladder = fit(&frames, buckets, 4, enough);
            prop_assert!(ladder.rungs().len() <= buckets);
            prop_assert_eq!(Ladder::new(ladder.rungs.clone()), Some(ladder.clone()));

            // Brute force over every set of boundaries.
            let mut tops: Vec<u32> = frames.iter().map(|n| n.next_multiple_of(4)).collect();
            tops.sort_unstable();
            tops.dedup();
            let mut least = None;
            for chosen in 0u32..1 << (tops.len() - 1) {
                let rungs: Vec<Rung> = (0..tops.len())
                    .filter(|&i| i == tops.len() - 1 || chosen >> i & 1 == 1)
                    .map(|i| Rung { frames: tops[i], tokens: 16 })
                    .collect();
                let other = Ladder::new(rungs).unwrap();
                let mut full = vec![0u64; other.rungs.len()];
                frames.iter().for_each(|&n| full[other.rung_of(n, 0).unwrap()] += 1);
                if other.rungs.len() <= buckets && full.iter().all(|&n| n >= enough) {
                    let total = padded_frames(&frames, &other);
                    least = Some(least.map_or(total, |least: u64| least.min(total)));
                }
            }
            match least {
                Some(least) => prop_assert_eq!(padded_frames(&frames, &ladder), least),
                None => prop_assert_eq!(ladder.rungs.len(), 1, "fewer records than a batch"),
            }
        }
    }
}
