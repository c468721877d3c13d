//! Which record stands in which row of which batch, for every step there will ever be. Computed from
//! the seed in constant time; stored are only each bucket's record numbers.
//!
//! **Step numbers.** With `worst_first` and W shapes in use, steps `0..W` are the worst batches and
//! belong to no epoch. After them (or from 0 on) step `W + e * B + p` is the batch at position `p` of
//! epoch `e`, B being the batches of an epoch.
//!
//! **Ranks.** A batch is planned for all ranks together; rank `r` of `R` takes the `r`-th of `R` equal
//! slices of its rows. So the number of ranks changes neither the batches nor their count.

use std::sync::Arc;

use crate::batch::balance;
use crate::batch::buckets::{Bucket, Excluded, Sorted};
use crate::batch::ladder::Ladder;
use crate::batch::layout::Layout;
use crate::batch::settings::{Of, Order, Part, Settings, Tail, Take};
use crate::batch::state::{State, StateError};
use crate::batch::step::Step;
use crate::order::{Bijection, Speakers};
use crate::record::{Column, RecordSource, TOKENS};

/// Why no plan can be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// The source does not hold a column that was asked for.
    #[error("the records have no column `{wanted}` (they have: {have}); prepare them again with it")]
    NoColumn {
        /// What was asked for.
        wanted: &'static str,
        /// What there is.
        have: String,
    },
    /// A number that makes no sense.
    #[error("{0}")]
    Impossible(String),
    /// Nothing is left to train on.
    #[error(
        "no record is usable: {given} given, {excluded} left out ({example}); raise the limits or check the corpus"
    )]
    NoRecords {
        /// Records given.
        given: usize,
        /// Records left out.
        excluded: usize,
        /// One of the reasons.
        example: String,
    },
    /// Every bucket is smaller than its batch, and incomplete batches are dropped.
    #[error(
        "no bucket fills a batch: {records} records, batches of {rows} rows or more; lower the batch size or fill up the tail"
    )]
    NoBatches {
        /// Usable records.
        records: usize,
        /// Rows of the smallest batch.
        rows: u32,
    },
    /// The rows cannot be dealt out evenly.
    #[error(
        "a batch of {rows} rows cannot be dealt to {ranks} ranks evenly; choose a batch size that {ranks} divides"
    )]
    UnevenRanks {
        /// Rows of a batch.
        rows: u32,
        /// Ranks.
        ranks: u32,
    },
    /// The source is not the one the plan was made for.
    #[error("these are not the records the plan was made for; make a new plan")]
    OtherSource,
}

/// The batches of all epochs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) settings: Settings,
    dataset: [u8; 32],
    members_hash: [u8; 32],
    ladder: Ladder,
    pub(super) buckets: Vec<Bucket>,
    /// Record numbers by bucket, ascending in each, and as often as they come in an epoch.
    members: Vec<u32>,
    /// How many different ones there are.
    records: usize,
    pub(super) speakers: Option<Speakers>,
    excluded: Vec<Excluded>,
    /// Position of each part's column in the source.
    columns: Vec<usize>,
    per_epoch: u64,
    /// Buckets whose worst batch comes first, in that order.
    worst_order: Vec<usize>,
}

impl Plan {
    /// Plans batches of `records` (a set: order and repetition do not matter).
    pub fn new(
        source: &dyn RecordSource,
        records: impl IntoIterator<Item = u32>,
        settings: Settings,
    ) -> Result<Plan, PlanError> {
        let columns = resolve(source, &settings)?;
        let mut records: Vec<u32> = records.into_iter().collect();
        records.sort_unstable();
        records.dedup();
        let given = records.len();
        if let Some(record) = records.last().filter(|&&record| record as usize >= source.len()) {
            let there = source.len();
            return Err(PlanError::Impossible(format!("record {record} was asked for, there are {there}")));
        }

        let mut sorted = Sorted::sort(source, &mut records, &settings)?;
        if records.is_empty() {
            let example = sorted.excluded.first();
            return Err(PlanError::NoRecords {
                given,
                excluded: sorted.excluded.len(),
                example: example.map_or("there were none".into(), |first| first.reason.to_string()),
            });
        }
        if let Some(times) = balance::times(source, &records, settings.balance, settings.seed) {
            sorted.repeat(source, &records, &times)?;
        }
        let mut before = 0;
        for bucket in &mut sorted.buckets {
            let (count, rows) = (u64::from(bucket.records), u64::from(bucket.rows));
            bucket.before = before;
            bucket.batches = if settings.tail == Tail::Drop { count / rows } else { count.div_ceil(rows) };
            before += bucket.batches;
        }
        if before == 0 {
            let rows = sorted.buckets.iter().map(|bucket| bucket.rows).min().unwrap_or(0);
            return Err(PlanError::NoBatches { records: records.len(), rows });
        }
        let worst_order: Vec<usize> = match settings.worst_first {
            true => (0..sorted.buckets.len()).rev().filter(|&i| sorted.buckets[i].batches > 0).collect(),
            false => Vec::new(),
        };
        for &i in &worst_order {
            sorted.choose_worst(source, i, &settings);
        }
        let speakers = if settings.has_companions() {
            let count = source.speakers().len();
            let group = Speakers::group(&records, count, |record| source.speaker(record as usize));
            Some(group.map_err(|record| {
                let speaker = source.speaker(record as usize);
                PlanError::Impossible(format!(
                    "record {record} names speaker {speaker}, there are {count}; prepare the records again"
                ))
            })?)
        } else {
            None
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytemuck::cast_slice(&records));
        Ok(Plan {
            dataset: source.fingerprint(),
            members_hash: *hasher.finalize().as_bytes(),
            ladder: sorted.ladder,
            buckets: sorted.buckets,
            members: sorted.members,
            records: records.len(),
            speakers,
            excluded: sorted.excluded,
            columns,
            per_epoch: before,
            worst_order,
            settings,
        })
    }

    /// The same records in the same batches, with other arrays of them: to look at what a batch is made of. Text and
    /// companions belong to the plan: they are among both arrays, or among neither.
    pub fn with_parts(&self, source: &dyn RecordSource, parts: Vec<Part>) -> Result<Plan, PlanError> {
        let settings = Settings { parts, ..self.settings.clone() };
        let same = settings.has_tokens() == self.settings.has_tokens()
            && settings.has_companions() == self.settings.has_companions();
        if !same {
            return Err(PlanError::Impossible("text or companions cannot be left out of a plan".into()));
        }
        let columns = resolve(source, &settings)?;
        Ok(Plan { settings, columns, ..self.clone() })
    }

    /// What the plan was made of.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The shapes, shortest first.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The buckets, one per rung of the ladder.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Records that are in no batch, each with its reason, by number.
    pub fn excluded(&self) -> &[Excluded] {
        &self.excluded
    }

    /// Records that are in some batch.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Rows of an epoch that are there for balance: records that come again.
    pub fn repeated(&self) -> usize {
        self.members.len() - self.records
    }

    /// Batches of an epoch, the same on every rank.
    pub fn batches_per_epoch(&self) -> u64 {
        self.per_epoch
    }

    /// Steps before epoch 0: the worst batches, where they were asked for.
    pub fn worst_steps(&self) -> u64 {
        self.worst_order.len() as u64
    }

    /// The first step of an epoch.
    pub fn epoch_start(&self, epoch: u64) -> u64 {
        self.worst_steps() + epoch * self.per_epoch
    }

    /// Position of each part's column in the source.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    pub(crate) fn dataset(&self) -> &[u8; 32] {
        &self.dataset
    }

    pub(crate) fn members_hash(&self) -> &[u8; 32] {
        &self.members_hash
    }

    /// The layouts of one rank's batches, one per bucket.
    pub fn layouts(&self, ranks: u32) -> Result<Vec<Arc<Layout>>, PlanError> {
        if ranks == 0 {
            return Err(PlanError::Impossible("0 ranks train nothing".into()));
        }
        self.buckets
            .iter()
            .map(|bucket| {
                if !bucket.rows.is_multiple_of(ranks) {
                    return Err(PlanError::UnevenRanks { rows: bucket.rows, ranks });
                }
                Layout::of(bucket.rows / ranks, bucket.rung, &self.settings.parts).map(Arc::new).ok_or_else(
                    || {
                        PlanError::Impossible(
                            "a batch would be larger than memory; lower the batch size".into(),
                        )
                    },
                )
            })
            .collect()
    }

    /// Bytes that hold any batch of one rank.
    pub fn slab_bytes(&self, ranks: u32) -> Result<usize, PlanError> {
        Ok(self.layouts(ranks)?.iter().map(|layout| layout.bytes()).max().unwrap_or(0))
    }

    /// What a run saves to come back to `step`.
    pub fn state(&self, step: u64) -> State {
        State::of(self, step)
    }

    /// The step a saved state stands at, if it belongs to this plan.
    pub fn resume(&self, state: &State) -> Result<u64, StateError> {
        state.check(self)
    }

    /// The records of a bucket, ascending, as often as they come.
    pub(super) fn members_of(&self, bucket: usize) -> &[u32] {
        let Bucket { first, records, .. } = self.buckets[bucket];
        &self.members[first as usize..][..records as usize]
    }

    /// The batch of a step. Costs the same for every step.
    pub fn step(&self, step: u64) -> Step<'_> {
        let seed = self.settings.seed;
        if let Some(&bucket) = usize::try_from(step).ok().and_then(|step| self.worst_order.get(step)) {
            return Step {
                plan: self,
                step,
                epoch: None,
                position: step,
                bucket,
                pool: &self.buckets[bucket].worst,
                first_slot: 0,
                order: None,
                seed: seed.derive("worst"),
            };
        }
        let since = step - self.worst_steps();
        let (epoch, position) = (since / self.per_epoch, since % self.per_epoch);
        let (seed, batch) = match self.settings.order {
            Order::Fixed => (seed.derive("fixed"), position),
            Order::Shuffled => {
                let seed = seed.derive("epoch").with(epoch);
                (seed, Bijection::new(self.per_epoch, seed.derive("batches")).at(position))
            }
        };
        // The last bucket that begins at or before it: empty ones before it begin there too.
        let bucket = self.buckets.partition_point(|bucket| bucket.before <= batch) - 1;
        let Bucket { rows, records, before, .. } = self.buckets[bucket];
        let order = (self.settings.order == Order::Shuffled)
            .then(|| Bijection::new(records.into(), seed.derive("bucket").with(bucket as u64)));
        Step {
            plan: self,
            step,
            epoch: Some(epoch),
            position,
            bucket,
            pool: self.members_of(bucket),
            first_slot: (batch - before) * u64::from(rows),
            order,
            seed,
        }
    }
}

/// Finds the columns of the parts and refuses what cannot be.
fn resolve(source: &dyn RecordSource, settings: &Settings) -> Result<Vec<usize>, PlanError> {
    let impossible = |what: &str| Err(PlanError::Impossible(what.to_owned()));
    if settings.buckets == 0 {
        return impossible("0 buckets hold nothing; give at least 1");
    }
    if settings.balance.is_nan() || settings.balance < 1.0 {
        return impossible("the temperature of balance must be at least 1, which leaves the corpus as it is");
    }
    if settings.rows.at(1) == 0 {
        return impossible("a batch of 0 rows was asked for; give at least 1");
    }
    // Record numbers are i32 in a batch, -1 where there is none.
    if i32::try_from(source.len()).is_err() {
        return impossible("more than 2,147,483,647 records; split the corpus");
    }
    if settings.parts.is_empty() {
        return impossible("a batch without a single array was asked for");
    }
    for part in &settings.parts {
        let fits = part.column == settings.length || part.column == TOKENS;
        match (part.take, part.of) {
            (Take::Window(0), _) => return impossible("a window of 0 rows was asked for"),
            (Take::Whole, Of::Own) if !fits => {
                return Err(PlanError::Impossible(format!(
                    "`{}` cannot be taken whole: shapes have room for `{}` and `{}`; take a window",
                    part.column.name, settings.length.name, TOKENS.name
                )));
            }
            (Take::Whole, Of::Companion) => {
                return impossible("a companion may be longer than its row: take a window of it");
            }
            _ => {}
        }
    }
    let have = source.columns();
    let position = |column: Column| {
        have.iter().position(|&other| other == column).ok_or_else(|| PlanError::NoColumn {
            wanted: column.name,
            have: have.iter().map(|column| column.name).collect::<Vec<_>>().join(", "),
        })
    };
    position(settings.length)?;
    settings.parts.iter().map(|part| position(part.column)).collect()
}
