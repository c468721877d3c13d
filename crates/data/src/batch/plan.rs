//! Assigns a record to every row of every batch, for all steps. Computed from the seed in constant time; only each bucket's
//! record numbers are stored.
//!
//! **Step numbers.** With `worst_first` and W shapes in use, steps `0..W` are the worst batches and belong to no epoch.
//! After them (or from 0) step `W + e * B + p` is the batch at position `p` of epoch `e`, where B is the number of batches
//! per epoch.
//!
//! **Ranks.** A batch is planned for all ranks together; rank `r` of `R` takes the `r`-th of `R` equal slices of its rows.
//! So the number of ranks changes neither the batches nor their count.

use std::sync::Arc;

use crate::batch::balance;
use crate::batch::buckets::{Bucket, Excluded, SortedRecords};
use crate::batch::ladder::Ladder;
use crate::batch::layout::Layout;
use crate::batch::settings::{Order, Part, Role, Settings, Tail, Take};
use crate::batch::state::{State, StateError};
use crate::batch::step::Step;
use crate::order::{Bijection, Speakers};
use crate::record::{Column, RecordSource, TOKENS};

/// Why a plan cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// The source lacks a requested column.
    #[error("the records have no column `{wanted}` (they have: {have}); prepare them again with it")]
    NoColumn {
        /// Requested column.
        wanted: &'static str,
        /// Columns of the source.
        have: String,
    },
    /// A setting out of range.
    #[error("{0}")]
    Impossible(String),
    /// Every record is excluded.
    #[error(
        "no record is usable: {given} given, {excluded} excluded ({example}); raise the limits or check the corpus"
    )]
    NoRecords {
        /// Number of records given.
        given: usize,
        /// Number of records excluded.
        excluded: usize,
        /// Reason of the first excluded record.
        example: String,
    },
    /// Every bucket is smaller than its batch, and incomplete batches are dropped.
    #[error(
        "no bucket fills a batch: {records} records, batches of {rows} rows or more; lower the batch size or use `Tail::Fill`"
    )]
    NoBatches {
        /// Number of usable records.
        records: usize,
        /// Rows of the smallest batch.
        rows: u32,
    },
    /// The rows cannot be divided evenly among the ranks.
    #[error(
        "a batch of {rows} rows cannot be divided evenly among {ranks} ranks; choose a batch size that is a multiple of {ranks}"
    )]
    UnevenRanks {
        /// Rows of a batch.
        rows: u32,
        /// Number of ranks.
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
    /// Record numbers by bucket, ascending in each, repeated as often as they occur in an epoch.
    members: Vec<u32>,
    /// Number of distinct records.
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
            return Err(PlanError::Impossible(format!("record {record} was requested, there are {there}")));
        }

        let mut sorted = SortedRecords::sort(source, &mut records, &settings)?;
        if records.is_empty() {
            let example = sorted.excluded.first();
            return Err(PlanError::NoRecords {
                given,
                excluded: sorted.excluded.len(),
                example: example.map_or("none were given".into(), |first| first.reason.to_string()),
            });
        }
        if let Some(times) = balance::repeats(source, &records, settings.balance, settings.seed) {
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

    /// Returns a plan of the same batches with other arrays, for inspection. Text and companions are part of the plan: both
    /// sets of arrays include them, or neither does.
    pub fn with_parts(&self, source: &dyn RecordSource, parts: Vec<Part>) -> Result<Plan, PlanError> {
        let settings = Settings { parts, ..self.settings.clone() };
        let same = settings.has_tokens() == self.settings.has_tokens()
            && settings.has_companions() == self.settings.has_companions();
        if !same {
            return Err(PlanError::Impossible(
                "text and companions cannot be added to or removed from a plan".into(),
            ));
        }
        let columns = resolve(source, &settings)?;
        Ok(Plan { settings, columns, ..self.clone() })
    }

    /// Returns the settings of the plan.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the shapes, shortest first.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Returns the buckets, one per rung of the ladder.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Returns the records that are in no batch, each with its reason, by number.
    pub fn excluded(&self) -> &[Excluded] {
        &self.excluded
    }

    /// Returns the number of records that are in some batch.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Returns the number of rows per epoch that repeat a record for balance.
    pub fn repeated(&self) -> usize {
        self.members.len() - self.records
    }

    /// Returns the number of batches per epoch, the same on every rank.
    pub fn batches_per_epoch(&self) -> u64 {
        self.per_epoch
    }

    /// Returns the number of steps before epoch 0: the worst batches, if enabled.
    pub fn worst_steps(&self) -> u64 {
        self.worst_order.len() as u64
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

    /// Returns the layouts of one rank's batches, one per bucket.
    pub fn layouts(&self, ranks: u32) -> Result<Vec<Arc<Layout>>, PlanError> {
        if ranks == 0 {
            return Err(PlanError::Impossible("the number of ranks is 0; give at least 1".into()));
        }
        self.buckets
            .iter()
            .map(|bucket| {
                if !bucket.rows.is_multiple_of(ranks) {
                    return Err(PlanError::UnevenRanks { rows: bucket.rows, ranks });
                }
                Layout::new(bucket.rows / ranks, bucket.rung, &self.settings.parts).map(Arc::new).ok_or_else(
                    || {
                        PlanError::Impossible(
                            "a batch would be larger than memory; lower the batch size".into(),
                        )
                    },
                )
            })
            .collect()
    }

    /// Returns the size in bytes of a slab that holds any batch of one rank.
    pub fn slab_bytes(&self, ranks: u32) -> Result<usize, PlanError> {
        Ok(self.layouts(ranks)?.iter().map(|layout| layout.bytes()).max().unwrap_or(0))
    }

    /// Returns the state to save for resuming at `step`.
    pub fn state(&self, step: u64) -> State {
        State::from_plan(self, step)
    }

    /// Returns the step of a saved state if it belongs to this plan.
    pub fn resume(&self, state: &State) -> Result<u64, StateError> {
        state.check(self)
    }

    /// The records of a bucket, ascending, with repetitions.
    pub(super) fn members_of(&self, bucket: usize) -> &[u32] {
        let Bucket { first, records, .. } = self.buckets[bucket];
        &self.members[first as usize..][..records as usize]
    }

    /// Returns the batch of a step. The cost is the same for every step.
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
        // The last bucket that begins at or before the batch: empty buckets before it begin there too.
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

/// Finds the columns of the parts and rejects invalid settings.
fn resolve(source: &dyn RecordSource, settings: &Settings) -> Result<Vec<usize>, PlanError> {
    let impossible = |what: &str| Err(PlanError::Impossible(what.to_owned()));
    if settings.buckets == 0 {
        return impossible("the number of buckets is 0; give at least 1");
    }
    if settings.balance.is_nan() || settings.balance < 1.0 {
        return impossible("the balance temperature must be at least 1, which disables balancing");
    }
    if settings.rows.at(1) == 0 {
        return impossible("the batch size is 0 rows; give at least 1");
    }
    // Record numbers are i32 in a batch, -1 for none.
    if i32::try_from(source.len()).is_err() {
        return impossible("more than 2,147,483,647 records; split the corpus");
    }
    if settings.parts.is_empty() {
        return impossible("a batch has no arrays; give at least 1");
    }
    for part in &settings.parts {
        let fits = part.column == settings.length || part.column == TOKENS;
        match (part.take, part.role) {
            (Take::Window(0), _) => return impossible("a window has 0 rows; give at least 1"),
            (Take::Whole, Role::Own) if !fits => {
                return Err(PlanError::Impossible(format!(
                    "`{}` cannot be taken whole: shapes only have room for `{}` and `{}`; take a window",
                    part.column.name, settings.length.name, TOKENS.name
                )));
            }
            (Take::Whole, Role::Companion) => {
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
