//! One planned batch.

use myxtts_run::seed::Seed;

use crate::batch::plan::Plan;
use crate::batch::settings::Tail;
use crate::order::Bijection;

/// One planned batch: its shape, and the record of each row.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub(super) plan: &'a Plan,
    /// Step number.
    pub step: u64,
    /// Epoch; `None` for the worst batches, which come before all epochs.
    pub epoch: Option<u64>,
    /// Position in the epoch, or among the worst batches.
    pub position: u64,
    /// Index of its bucket.
    pub bucket: usize,
    /// Records it is taken from: those of its bucket, or the longest of them.
    pub(super) pool: &'a [u32],
    /// Position of its first row in the order of the pool.
    pub(super) first_slot: u64,
    /// Order of the pool; `None` takes the pool as it is.
    pub(super) order: Option<Bijection>,
    /// Seed of all sampling in this epoch.
    pub(super) seed: Seed,
}

impl Step<'_> {
    /// Returns the number of rows over all ranks.
    pub fn rows(&self) -> u32 {
        self.plan.buckets[self.bucket].rows
    }

    /// Returns the record of a row; `None` for rows missing from a short batch.
    pub fn record(&self, row: u32) -> Option<u32> {
        self.row(row).map(|(record, _)| record)
    }

    /// Returns the record of a row and its zero-based repetition in the epoch.
    pub fn row(&self, row: u32) -> Option<(u32, u32)> {
        let (slot, count) = (self.first_slot + u64::from(row), self.pool.len() as u64);
        if slot >= count && self.plan.settings.tail == Tail::Short {
            return None;
        }
        let slot = slot % count;
        let position = self.order.as_ref().map_or(slot, |order| order.at(slot)) as usize;
        let record = self.pool[position];
        // Repetitions of a record are adjacent, and there are only a few.
        let time = self.pool[..position].iter().rev().take_while(|&&before| before == record).count();
        Some((record, time as u32))
    }

    /// Returns the records of all rows.
    pub fn records(&self) -> impl Iterator<Item = Option<u32>> + '_ {
        (0..self.rows()).map(|row| self.record(row))
    }

    /// Returns the seed of a record in this epoch. A repetition samples differently; otherwise it would be an identical row.
    fn record_seed(seed: Seed, record: u32, time: u32) -> Seed {
        let seed = seed.with(record.into());
        if time == 0 { seed } else { seed.derive("again").with(time.into()) }
    }

    /// Returns the companion of a record for its repetition `time` in this epoch; `attempt` counts the bad companions tried
    /// before.
    pub fn companion(&self, record: u32, time: u32, speaker: u32, attempt: u32) -> u32 {
        match &self.plan.speakers {
            Some(speakers) => {
                let seed =
                    Self::record_seed(self.seed.derive("companion"), record, time).with(attempt.into());
                speakers.companion(record, speaker, seed)
            }
            None => record,
        }
    }

    /// Returns a record of the same bucket that replaces a bad one.
    pub(crate) fn substitute(&self, record: u32, attempt: u32) -> u32 {
        let seed = self.seed.derive("substitute").with(record.into()).with(attempt.into());
        let members = self.plan.members_of(self.bucket);
        members[seed.below(0, members.len() as u64) as usize]
    }

    /// Returns where a window of `window` rows begins in an array of `rows`.
    pub(crate) fn window_start(
        &self,
        part: usize,
        (record, time): (u32, u32),
        rows: u32,
        window: u32,
    ) -> u32 {
        match rows.checked_sub(window) {
            None | Some(0) => 0,
            Some(room) => {
                let seed = Self::record_seed(self.seed.derive("window").with(part as u64), record, time);
                // At most `room`, which is a u32.
                seed.below(0, u64::from(room) + 1) as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::batch::{Part, Plan, Rows, Settings};
    use crate::order::bijection::tests::EVALUATIONS;
    use crate::record::{Column, DVAE_MEL, RecordError, RecordSource};

    /// Records of every length up to 500 frames, without data.
    struct Lengths;

    impl RecordSource for Lengths {
        fn columns(&self) -> &[Column] {
            &[DVAE_MEL]
        }
        fn len(&self) -> usize {
            5000
        }
        fn rows(&self, record: usize, _: usize) -> u32 {
            1 + record as u32 % 500
        }
        fn speaker(&self, _: usize) -> u32 {
            0
        }
        fn language(&self, _: usize) -> u32 {
            0
        }
        fn speakers(&self) -> &[String] {
            &[]
        }
        fn languages(&self) -> &[String] {
            &[]
        }
        fn id(&self, _: usize) -> String {
            String::new()
        }
        fn read(&self, _: usize, _: usize, _: u32, _: &mut [u8]) -> Result<u32, RecordError> {
            Ok(0)
        }
        fn fingerprint(&self) -> [u8; 32] {
            [0; 32]
        }
    }

    #[test]
    fn any_step_costs_one_evaluation_for_the_batch_and_one_for_each_row() {
        let settings =
            Settings { rows: Rows::Fixed(16), parts: vec![Part::whole(DVAE_MEL)], ..Settings::default() };
        let plan = Plan::new(&Lengths, 0..5000, settings).unwrap();
        for step in [0, 1, 1_000_000, 1 << 60] {
            EVALUATIONS.set(0);
            assert_eq!(plan.step(step).records().flatten().count(), 16);
            assert_eq!(EVALUATIONS.get(), 17, "step {step}");
        }
    }
}
