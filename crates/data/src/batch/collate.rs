//! Writes a batch into memory the caller owns: arrays are copied once, to their final position, and padding is filled in.
//!
//! The bytes are a pure function of (records, plan, step, rank): no previous content of the slab remains, and a bad record
//! is replaced by one that depends only on seed, epoch and record.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::layout::{Content, Layout};
use crate::batch::plan::{Plan, PlanError};
use crate::batch::settings::{Role, Take};
use crate::batch::step::Step;
use crate::batch::worker_position::WorkerPosition;
use crate::problem::Problem;
use crate::record::{RecordError, RecordSource, take_computing};

/// Substitutes tried for one bad record. A corpus for which this is not enough is far beyond any failure budget.
const ATTEMPTS: u32 = 16;

/// Why a batch could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The slab is too small.
    #[error(
        "the batch of step {step} has {needed} bytes, the slab {given}; size slabs by `Plan::slab_bytes`"
    )]
    SlabTooSmall {
        /// Step number.
        step: u64,
        /// Size of the batch in bytes.
        needed: usize,
        /// Size of the slab in bytes.
        given: usize,
    },
    /// The storage failed.
    #[error("step {step}: {source}")]
    Read {
        /// Step number.
        step: u64,
        /// Error of the source.
        source: RecordError,
    },
    /// Neither the record nor any substitute is usable.
    #[error(
        "step {step}, row {row}: the record and all substitutes tried are bad: {}; run `myxtts verify --fix`",
        .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    NoSubstitute {
        /// Step number.
        step: u64,
        /// Row number, over all ranks.
        row: u32,
        /// Problems of the record and of every substitute tried.
        problems: Vec<Problem>,
    },
}

/// A bad record and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitution {
    /// Row number, over all ranks.
    pub row: u32,
    /// Whether the record or its companion was bad.
    pub role: Role,
    /// Number of the bad record.
    pub record: u32,
    /// Number of the record that was used instead.
    pub by: u32,
    /// What is wrong with the bad record.
    pub problem: Problem,
}

/// Description of a batch.
#[derive(Clone, Debug)]
pub struct BatchInfo {
    /// Step number.
    pub step: u64,
    /// Epoch; `None` for the worst batches, which come before all epochs.
    pub epoch: Option<u64>,
    /// Position in the epoch.
    pub position: u64,
    /// Index of its bucket.
    pub bucket: usize,
    /// Offsets of all fields in the slab.
    pub layout: Arc<Layout>,
    /// Rows of this rank that hold a record; they come first.
    pub rows_valid: u32,
    /// Bytes of the arrays that are not padding.
    pub used_bytes: u64,
    /// Records read, including companions but not substitutes.
    pub records_read: u64,
    /// Bad records. Usually empty.
    pub substitutions: Vec<Substitution>,
    /// Rows that are their own companions. Usually empty.
    pub own_companions: Vec<OwnCompanion>,
    /// Time to make the batch.
    pub took: Duration,
    /// Part of `took` spent reading records.
    pub reading: Duration,
    /// Part of `reading` spent decoding audio and computing features; zero with a cache.
    pub computing: Duration,
    /// Number of the loader thread that made it.
    pub worker: usize,
}

impl BatchInfo {
    /// Returns the fraction of the arrays that is padding.
    pub fn padding(&self) -> f64 {
        1.0 - self.used_bytes as f64 / self.layout.array_bytes().max(1) as f64
    }
}

/// A row whose companion is its own record, because its speaker has no other readable one. The window taken for conditioning
/// must not also be the target: the model has just been conditioned on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnCompanion {
    /// Row number, on this rank.
    pub row: u32,
    /// Index of the part.
    pub part: usize,
    /// First row of the array that was taken.
    pub first: u32,
    /// Number of rows taken.
    pub rows: u32,
}

/// Makes the batches of one rank.
#[derive(Clone)]
pub struct Collator {
    source: Arc<dyn RecordSource>,
    plan: Arc<Plan>,
    rank: u32,
    layouts: Vec<Arc<Layout>>,
}

impl Collator {
    /// Creates a collator for rank `rank` of `ranks`; ranks count from 0.
    pub fn new(
        source: Arc<dyn RecordSource>,
        plan: Arc<Plan>,
        rank: u32,
        ranks: u32,
    ) -> Result<Self, PlanError> {
        if source.fingerprint() != *plan.dataset() {
            return Err(PlanError::OtherSource);
        }
        if rank >= ranks {
            return Err(PlanError::Impossible(format!("rank {rank} of {ranks}: ranks count from 0")));
        }
        let layouts = plan.layouts(ranks)?;
        Ok(Collator { source, plan, rank, layouts })
    }

    /// Returns the plan it follows.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the size in bytes of a slab that holds any batch.
    pub fn slab_bytes(&self) -> usize {
        self.layouts.iter().map(|layout| layout.bytes()).max().unwrap_or(0)
    }

    /// Source of the records.
    pub(crate) fn source(&self) -> &Arc<dyn RecordSource> {
        &self.source
    }

    /// Writes the batch of `step` to the start of `slab`. All bytes of the layout are written.
    pub fn collate(&self, step: u64, slab: &mut [u8]) -> Result<BatchInfo, BatchError> {
        self.collate_reporting(step, slab, &WorkerPosition::default())
    }

    /// [`Self::collate`], publishing the current record through `position`.
    pub(crate) fn collate_reporting(
        &self,
        step: u64,
        slab: &mut [u8],
        position: &WorkerPosition,
    ) -> Result<BatchInfo, BatchError> {
        let began = Instant::now();
        position.begin();
        // Discard the time that other work left on this thread.
        take_computing();
        let planned = self.plan.step(step);
        let layout = &self.layouts[planned.bucket];
        let given = slab.len();
        let slab = slab.get_mut(..layout.bytes()).ok_or(BatchError::SlabTooSmall {
            step,
            needed: layout.bytes(),
            given,
        })?;
        let info = BatchInfo {
            step,
            epoch: planned.epoch,
            position: planned.position,
            bucket: planned.bucket,
            layout: layout.clone(),
            rows_valid: 0,
            used_bytes: 0,
            records_read: 0,
            substitutions: Vec::new(),
            own_companions: Vec::new(),
            took: Duration::ZERO,
            reading: Duration::ZERO,
            computing: Duration::ZERO,
            worker: 0,
        };
        let mut writer = Writer { collator: self, planned: &planned, layout, slab, info, time: 0, position };
        writer.clear_gaps();
        let first = self.rank * layout.rows();
        for row in 0..layout.rows() {
            match planned.row(first + row) {
                Some((record, time)) => {
                    writer.time = time;
                    writer.row(row, first + row, record)?;
                }
                None => writer.empty_row(row),
            }
        }
        let mut info = writer.info;
        info.took = began.elapsed();
        info.computing = take_computing();
        Ok(info)
    }
}

/// The per-row integer fields.
struct RowFields {
    record: i32,
    companion: i32,
    speaker: i32,
    language: i32,
}

struct Writer<'a> {
    collator: &'a Collator,
    planned: &'a Step<'a>,
    layout: &'a Arc<Layout>,
    slab: &'a mut [u8],
    info: BatchInfo,
    /// Repetition in the epoch of the current row's record.
    time: u32,
    position: &'a WorkerPosition,
}

impl Writer<'_> {
    /// Bytes between fields are unused; they are zeroed so that equal batches have equal bytes.
    fn clear_gaps(&mut self) {
        let mut end = 0;
        for field in self.layout.fields() {
            self.slab[end..field.offset].fill(0);
            end = field.offset + field.bytes;
        }
        self.slab[end..].fill(0);
    }

    /// Writes a row, replacing a bad record. `row` counts on this rank, `global_row` over all.
    fn row(&mut self, row: u32, global_row: u32, wanted: u32) -> Result<(), BatchError> {
        let step = self.info.step;
        self.info.records_read += if self.collator.plan.settings().has_companions() { 2 } else { 1 };
        let mut bad: Vec<(u32, Problem)> = Vec::new();
        for attempt in 0..=ATTEMPTS {
            let record = if attempt == 0 { wanted } else { self.planned.substitute(wanted, attempt) };
            // Discard what an earlier attempt noted for this row.
            self.info.own_companions.retain(|own| own.row != row);
            if bad.iter().any(|(tried, _)| *tried == record) {
                continue;
            }
            match self.try_row(row, global_row, record) {
                Ok(()) => {
                    self.info.rows_valid += 1;
                    self.note_bad(global_row, Role::Own, record, bad);
                    return Ok(());
                }
                Err(RecordError::Bad(problem)) => bad.push((record, problem)),
                Err(source) => return Err(BatchError::Read { step, source }),
            }
        }
        let problems = bad.into_iter().map(|(_, problem)| problem).collect();
        Err(BatchError::NoSubstitute { step, row: global_row, problems })
    }

    fn try_row(&mut self, row: u32, global_row: u32, record: u32) -> Result<(), RecordError> {
        let collator = self.collator;
        let source = &collator.source;
        let mut used = self.arrays(row, Role::Own, record, false)?;
        let speaker = source.speaker(record as usize);
        let mut companion = -1;
        if collator.plan.settings().has_companions() {
            let (found, bytes) = self.companion(row, global_row, record, speaker)?;
            companion = found as i32;
            used += bytes;
        }
        self.info.used_bytes += used;
        // The plan rejects sources whose numbers do not fit an i32.
        let language = source.language(record as usize) as i32;
        self.put_fields(
            row,
            &RowFields { record: record as i32, companion, speaker: speaker as i32, language },
        );
        Ok(())
    }

    /// Writes the companion's arrays, skipping bad companions. If none is readable, the record counts as bad too: a row
    /// without conditioning is unusable.
    fn companion(
        &mut self,
        row: u32,
        global_row: u32,
        record: u32,
        speaker: u32,
    ) -> Result<(u32, u64), RecordError> {
        let mut bad: Vec<(u32, Problem)> = Vec::new();
        for attempt in 0..=ATTEMPTS {
            // The last attempt is the record itself, whose own arrays were good.
            let companion = match attempt {
                ATTEMPTS => record,
                _ => self.planned.companion(record, self.time, speaker, attempt),
            };
            if bad.iter().any(|(tried, _)| *tried == companion) {
                continue;
            }
            match self.arrays(row, Role::Companion, companion, companion == record) {
                Ok(used) => {
                    self.note_bad(global_row, Role::Companion, companion, bad);
                    return Ok((companion, used));
                }
                Err(RecordError::Bad(problem)) => bad.push((companion, problem)),
                Err(error) => return Err(error),
            }
        }
        let (_, last) =
            bad.pop().expect("the first attempt is always made, and only bad companions get here");
        Err(RecordError::Bad(last))
    }

    fn note_bad(&mut self, row: u32, role: Role, by: u32, bad: Vec<(u32, Problem)>) {
        let noted = bad.into_iter().map(|(record, problem)| Substitution { row, role, record, by, problem });
        self.info.substitutions.extend(noted);
    }

    /// Copies the arrays of one record into a row; returns the bytes that are not padding.
    ///
    /// At most half of a record that is its own companion (`alone`) is taken, as Coqui does with short clips: the other half
    /// remains as the target.
    fn arrays(&mut self, row: u32, role: Role, record: u32, alone: bool) -> Result<u64, RecordError> {
        let source = &*self.collator.source;
        self.position.at(record);
        let mut used = 0;
        let plan = &self.collator.plan;
        for (i, part) in plan.settings().parts.iter().enumerate().filter(|(_, part)| part.role == role) {
            let column = plan.columns()[i];
            let whole = &mut self.slab[self.layout.row_range(i, row)];
            let row_bytes = part.column.row_bytes();
            let (mut start, mut taken) = (0, whole.len() / row_bytes);
            if let Take::Window(window) = part.take {
                let rows = source.rows(record as usize, column).saturating_sub(part.overlap);
                let window = if alone { window.min((rows / 2).max(1)) } else { window };
                taken = taken.min((window + part.overlap) as usize);
                start = self.planned.window_start(i, (record, self.time), rows, window);
            }
            let out = &mut whole[..taken * row_bytes];
            let began = Instant::now();
            let mut rows = source.read(record as usize, column, start, out)? as usize;
            if start > 0 && rows < taken {
                // Lengths may be upper bounds: the sampled position was too far back.
                start = 0;
                rows = source.read(record as usize, column, 0, out)? as usize;
            }
            self.info.reading += began.elapsed();
            let rows = rows.min(taken);
            pad(&mut whole[rows * row_bytes..], part.pad_bytes(), part.column.dtype.size());
            used += (rows * row_bytes) as u64;
            let rows = rows.saturating_sub(part.overlap as usize);
            self.put(Content::Rows(i), row, rows as i32);
            if alone {
                let own = OwnCompanion { row, part: i, first: start, rows: rows as u32 };
                self.info.own_companions.push(own);
            }
        }
        Ok(used)
    }

    fn empty_row(&mut self, row: u32) {
        for (i, part) in self.collator.plan.settings().parts.iter().enumerate() {
            let out = &mut self.slab[self.layout.row_range(i, row)];
            pad(out, part.pad_bytes(), part.column.dtype.size());
            self.put(Content::Rows(i), row, 0);
        }
        self.put_fields(row, &RowFields { record: -1, companion: -1, speaker: 0, language: 0 });
    }

    fn put_fields(&mut self, row: u32, fields: &RowFields) {
        self.put(Content::Record, row, fields.record);
        self.put(Content::Companion, row, fields.companion);
        self.put(Content::Speaker, row, fields.speaker);
        self.put(Content::Language, row, fields.language);
    }

    fn put(&mut self, content: Content, row: u32, value: i32) {
        let field = self.layout.fields().iter().find(|field| field.content == content);
        let offset = field.expect("every layout has all of these fields").offset + 4 * row as usize;
        self.slab[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// Fills `out` with an element of `size` bytes. Works on bytes because a slab need not be aligned for floats.
fn pad(out: &mut [u8], element: [u8; 4], size: usize) {
    match size {
        2 => out.as_chunks_mut::<2>().0.fill([element[0], element[1]]),
        _ => out.as_chunks_mut::<4>().0.fill(element),
    }
}
