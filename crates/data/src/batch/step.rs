//! One batch as planned.

use myxtts_run::seed::Seed;

use crate::batch::plan::Plan;
use crate::batch::settings::Tail;
use crate::order::Bijection;

/// One batch as planned: its shape, and the record of each row.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub(super) plan: &'a Plan,
    /// Its number.
    pub step: u64,
    /// Its epoch; `None` for the worst batches, which come before all epochs.
    pub epoch: Option<u64>,
    /// Its position in the epoch (among the worst batches).
    pub position: u64,
    /// Its bucket.
    pub bucket: usize,
    /// The records it is drawn from: its bucket's, or the longest of them.
    pub(super) pool: &'a [u32],
    /// Where its rows begin in the order of the pool.
    pub(super) first_slot: u64,
    /// That order; `None` takes the pool as it stands.
    pub(super) order: Option<Bijection>,
    /// All draws of this epoch come from it.
    pub(super) seed: Seed,
}

impl Step<'_> {
    /// Rows over all ranks.
    pub fn rows(&self) -> u32 {
        self.plan.buckets[self.bucket].rows
    }

    /// The record in a row; `None` in the rows that a short batch lacks.
    pub fn record(&self, row: u32) -> Option<u32> {
        self.row(row).map(|(record, _)| record)
    }

    /// The record in a row, and which of its times in the epoch this is, counted from 0.
    pub fn row(&self, row: u32) -> Option<(u32, u32)> {
        let (slot, count) = (self.first_slot + u64::from(row), self.pool.len() as u64);
        if slot >= count && self.plan.settings.tail == Tail::Short {
            return None;
        }
        let slot = slot % count;
        let place = self.order.as_ref().map_or(slot, |order| order.at(slot)) as usize;
        let record = self.pool[place];
        // Repeated records stand side by side, a handful of times at most.
        let time = self.pool[..place].iter().rev().take_while(|&&before| before == record).count();
        Some((record, time as u32))
    }

    /// The records of all rows.
    pub fn records(&self) -> impl Iterator<Item = Option<u32>> + '_ {
        (0..self.rows()).map(|row| self.record(row))
    }

    /// What is drawn for a record in this epoch. A record that comes again is given other draws, or it would only be
    /// the same row again.
    fn draws(seed: Seed, record: u32, time: u32) -> Seed {
        let seed = seed.with(record.into());
        if time == 0 { seed } else { seed.derive("again").with(time.into()) }
    }

    /// The companion of a record the `time`-th time it comes in this epoch; with `attempt`, the one to try after so many
    /// bad ones.
    pub fn companion(&self, record: u32, time: u32, speaker: u32, attempt: u32) -> u32 {
        match &self.plan.speakers {
            Some(speakers) => {
                let seed = Self::draws(self.seed.derive("companion"), record, time).with(attempt.into());
                speakers.companion(record, speaker, seed)
            }
            None => record,
        }
    }

    /// A record of the same bucket to stand in for a bad one.
    pub(crate) fn substitute(&self, record: u32, attempt: u32) -> u32 {
        let seed = self.seed.derive("substitute").with(record.into()).with(attempt.into());
        let members = self.plan.members_of(self.bucket);
        members[seed.below(0, members.len() as u64) as usize]
    }

    /// Where a window of `window` rows begins in an array of `rows`.
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
                let seed = Self::draws(self.seed.derive("window").with(part as u64), record, time);
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

    /// Records of every length up to 500 frames, and nothing to read.
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
