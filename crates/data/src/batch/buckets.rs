//! Sorts records into buckets by shape and excludes those that fit none.

use crate::batch::ladder::{Fit, Ladder, Lengths, Rung};
use crate::batch::plan::PlanError;
use crate::batch::settings::Settings;
use crate::record::{RecordSource, TOKENS};

/// Maximum length of a record in frames (6.7 hours of mel): a corrupt length must not size a table.
const MAX_FRAMES: u32 = 1 << 21;

/// Why a record is in no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The audio is empty.
    #[error("it has no frames")]
    NoFrames,
    /// The text is empty.
    #[error("it has no tokens")]
    NoTokens,
    /// More frames than the limit.
    #[error("{frames} frames are over the limit of {limit}")]
    TooManyFrames {
        /// Frames of the record.
        frames: u32,
        /// Limit in effect.
        limit: u32,
    },
    /// More tokens than the limit.
    #[error("{tokens} tokens are over the limit of {limit}")]
    TooManyTokens {
        /// Tokens of the record.
        tokens: u32,
        /// Limit in effect.
        limit: u32,
    },
    /// No shape of a given ladder has room for the record.
    #[error("{frames} frames with {tokens} tokens fit none of the given shapes")]
    NoShape {
        /// Frames of the record.
        frames: u32,
        /// Tokens of the record.
        tokens: u32,
    },
}

/// A record that is in no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// Record number.
    pub record: u32,
    /// Why it is excluded.
    pub reason: Reason,
}

/// The records of one shape.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Capacity of its rows.
    pub rung: Rung,
    /// Rows of its batches, over all ranks.
    pub rows: u32,
    /// Number of records in it, counted as often as they occur in an epoch.
    pub records: u32,
    /// Batches per epoch.
    pub batches: u64,
    /// Total frames of its records, without padding.
    pub frames: u64,
    /// Index of its first record in the plan's list.
    pub(super) first: u32,
    /// Total batches of the buckets before it.
    pub(super) before: u64,
    /// One batch of its longest records; empty unless the worst batches come first.
    pub(super) worst: Vec<u32>,
}

impl Bucket {
    /// Returns the fraction of its frames that is padding, over all of its records.
    pub fn padding(&self) -> f64 {
        let held = u64::from(self.records) * u64::from(self.rung.frames);
        1.0 - self.frames as f64 / held.max(1) as f64
    }
}

/// Records sorted into buckets.
pub(super) struct SortedRecords {
    pub(super) ladder: Ladder,
    pub(super) buckets: Vec<Bucket>,
    pub(super) members: Vec<u32>,
    pub(super) excluded: Vec<Excluded>,
    length: usize,
}

impl SortedRecords {
    /// Sorts `records` by bucket and removes those that fit none.
    pub(super) fn sort(
        source: &dyn RecordSource,
        records: &mut Vec<u32>,
        settings: &Settings,
    ) -> Result<SortedRecords, PlanError> {
        let position = |wanted| source.columns().iter().position(|&column| column == wanted);
        let length = position(settings.length)
            .ok_or(PlanError::NoColumn { wanted: settings.length.name, have: String::new() })?;
        let tokens = position(TOKENS).filter(|_| settings.has_tokens());
        let max_frames = settings.max_frames.unwrap_or(MAX_FRAMES).min(MAX_FRAMES);
        let max_tokens = settings.max_tokens.unwrap_or(u32::MAX);

        let mut lengths = Lengths::default();
        let mut longest = 0;
        let mut excluded = Vec::new();
        // Lengths of the remaining records, kept because a second pass over an index costs more.
        let mut sizes: Vec<(u32, u32)> = Vec::with_capacity(records.len());
        records.retain(|&record| {
            let frames = source.rows(record as usize, length);
            let tokens = tokens.map(|column| source.rows(record as usize, column));
            let reason = match (frames, tokens) {
                (0, _) => Some(Reason::NoFrames),
                (_, Some(0)) => Some(Reason::NoTokens),
                (frames, _) if frames > max_frames => {
                    Some(Reason::TooManyFrames { frames, limit: max_frames })
                }
                (_, Some(tokens)) if tokens > max_tokens => {
                    Some(Reason::TooManyTokens { tokens, limit: max_tokens })
                }
                _ => None,
            };
            match reason {
                Some(reason) => excluded.push(Excluded { record, reason }),
                None => {
                    let tokens = tokens.unwrap_or(0);
                    lengths.add(frames, tokens);
                    longest = longest.max(frames);
                    sizes.push((frames, tokens));
                }
            }
            reason.is_none()
        });
        let ladder = settings.ladder.clone().unwrap_or_else(|| {
            let fit = Fit {
                buckets: settings.buckets as usize,
                frame_unit: settings.frame_unit,
                max_frames,
                token_unit: settings.token_unit,
            };
            Ladder::fit(&lengths, &fit, |frames| settings.rows.at(frames).into())
        });
        let table = ladder.table(longest);

        // Counting sort by bucket; stable, so members stay ascending.
        let mut buckets: Vec<Bucket> = (ladder.rungs().iter())
            .map(|&rung| Bucket {
                rung,
                rows: settings.rows.at(rung.frames),
                records: 0,
                batches: 0,
                frames: 0,
                first: 0,
                before: 0,
                worst: Vec::new(),
            })
            .collect();
        let mut size = sizes.iter();
        let mut bucket_of: Vec<u32> = Vec::with_capacity(records.len());
        records.retain(|&record| {
            let &(frames, tokens) = size.next().expect("one size was stored for each record");
            match ladder.rung_by(&table, frames, tokens) {
                Some(i) => {
                    buckets[i].records += 1;
                    buckets[i].frames += u64::from(frames);
                    bucket_of.push(i as u32);
                    true
                }
                None => {
                    excluded.push(Excluded { record, reason: Reason::NoShape { frames, tokens } });
                    false
                }
            }
        });
        let mut first = 0;
        for bucket in &mut buckets {
            bucket.first = first;
            first += bucket.records;
        }
        let mut next: Vec<u32> = buckets.iter().map(|bucket| bucket.first).collect();
        let mut members = vec![0; records.len()];
        for (&record, &bucket) in records.iter().zip(&bucket_of) {
            let slot = &mut next[bucket as usize];
            members[*slot as usize] = record;
            *slot += 1;
        }
        excluded.sort_unstable_by_key(|excluded| excluded.record);
        Ok(SortedRecords { ladder, buckets, members, excluded, length })
    }

    /// Repeats each of `records`, which are those of all buckets, as often as `times` says.
    pub(super) fn repeat(
        &mut self,
        source: &dyn RecordSource,
        records: &[u32],
        times: &[u32],
    ) -> Result<(), PlanError> {
        let total: u64 = times.iter().map(|&times| u64::from(times)).sum();
        if u32::try_from(total).is_err() {
            return Err(PlanError::Impossible(format!(
                "a balanced epoch would have {total} rows; set data.balance_temperature to 1, or split the corpus"
            )));
        }
        let mut members = Vec::with_capacity(total as usize);
        for bucket in &mut self.buckets {
            let once = &self.members[bucket.first as usize..][..bucket.records as usize];
            bucket.first = members.len() as u32;
            bucket.frames = 0;
            for &record in once {
                let times = records.binary_search(&record).map_or(1, |position| times[position]);
                // Copies are adjacent, so a row can count how often its record occurs before it.
                members.extend(std::iter::repeat_n(record, times as usize));
                bucket.frames += u64::from(times) * u64::from(source.rows(record as usize, self.length));
            }
            bucket.records = members.len() as u32 - bucket.first;
        }
        self.members = members;
        Ok(())
    }

    /// Stores a bucket's longest records, longest first and ties by number.
    pub(super) fn choose_worst(&mut self, source: &dyn RecordSource, bucket: usize, settings: &Settings) {
        let Bucket { first, records, rows, .. } = self.buckets[bucket];
        let tokens = source.columns().iter().position(|&column| column == TOKENS);
        let tokens = tokens.filter(|_| settings.has_tokens());
        let mut members = self.members[first as usize..][..records as usize].to_vec();
        members.dedup();
        let mut longest: Vec<(u32, u32, u32)> = members
            .into_iter()
            .map(|record| {
                let frames = source.rows(record as usize, self.length);
                let tokens = tokens.map_or(0, |column| source.rows(record as usize, column));
                (u32::MAX - frames, u32::MAX - tokens, record)
            })
            .collect();
        let keep = (rows as usize).min(longest.len());
        if keep < longest.len() {
            longest.select_nth_unstable(keep);
            longest.truncate(keep);
        }
        longest.sort_unstable();
        self.buckets[bucket].worst = longest.into_iter().map(|(_, _, record)| record).collect();
    }
}
