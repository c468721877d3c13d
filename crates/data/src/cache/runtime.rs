//! Records without a store: computed on demand, from only the audio they need.
//!
//! Every file is read once on opening, to find what `prepare` would reject and the length of the rest. So the records, their
//! numbers, their lengths and every bit read from them equal those of a store.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use myxtts_run::progress::Progress;

use super::featurizer::{self, Featurizer, Measured};
use super::fingerprint::{self, Fingerprint, Hash};
use super::memory::{MemoryCache, MemoryUse};
use super::names::SHARD_SIZE;
use super::prepare::Partition;
use super::store::copy_rows;
use super::{CacheError, source, workers};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::record::{Column, RecordError, RecordSource, note_computing};
use crate::utterance::Utterance;

/// Options of runtime mode.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Memory for arrays in bytes. If all arrays fit, each is computed once. Otherwise only arrays of audio that cannot be
    /// read in pieces are kept, since it would have to be decoded whole for every piece. 0 keeps nothing.
    pub memory_bytes: usize,
    /// Number of threads that read every utterance on opening.
    pub workers: usize,
    /// Fraction of utterances that may fail before the work is given up.
    pub failure_budget: f64,
    /// Declared entries that could not become utterances; they count as failed.
    pub rejected: u64,
    /// Set it to stop opening after the current utterances.
    pub stop: Arc<AtomicBool>,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        RuntimeOptions {
            memory_bytes: 1 << 30,
            workers,
            failure_budget: 0.05,
            rejected: 0,
            stop: Arc::default(),
        }
    }
}

/// A source that computes records on demand. Their numbers and lengths are those of a [`super::Store`] of the same
/// utterances.
pub struct Runtime {
    featurizer: Arc<dyn Featurizer>,
    records: Vec<Record>,
    speakers: Vec<String>,
    languages: Vec<String>,
    problems: Vec<Problem>,
    /// Whole arrays, by record and column.
    memory: MemoryCache<Result<Vec<u8>, Problem>>,
    /// Size of all arrays of all records in bytes.
    array_bytes: usize,
    /// Whether all arrays fit in memory.
    keeps_all: bool,
    fingerprint: Hash,
}

struct Record {
    utterance: Utterance,
    measured: Measured,
    speaker: u32,
    language: u32,
}

impl Runtime {
    /// Reads every utterance once. Unusable ones are left out, see [`Self::problems`]; more of them than the budget allows
    /// are an error.
    pub fn open(
        utterances: &[Utterance],
        featurizer: Arc<dyn Featurizer>,
        options: &RuntimeOptions,
        progress: &dyn Progress,
    ) -> Result<Runtime, CacheError> {
        let partition = Partition::by_size(utterances, SHARD_SIZE);
        let ordered: Vec<&Utterance> = partition.shards.into_iter().flatten().collect();
        let mut problems = partition.duplicates;
        let survey = Survey {
            featurizer: featurizer.as_ref(),
            options,
            total: utterances.len() as u64 + options.rejected,
            failed: AtomicU64::new(0),
            progress,
        };
        survey.count_failures(options.rejected + problems.len() as u64, &problems)?;
        let found = survey.measure_all(&ordered)?;

        let mut kept = Vec::with_capacity(ordered.len());
        for (utterance, found) in ordered.into_iter().zip(found) {
            match found {
                Ok((measured, hash)) => kept.push((utterance.clone(), measured, hash)),
                Err(problem) => problems.push(problem),
            }
        }
        let speakers = sorted_names(kept.iter().map(|(utterance, ..)| &utterance.speaker));
        let languages = sorted_names(kept.iter().map(|(utterance, ..)| &utterance.language));
        let fingerprint = fingerprint_of(featurizer.as_ref(), &kept);
        let position = |names: &[String], name: &String| names.binary_search(name).unwrap_or_default() as u32;
        let records: Vec<Record> = kept
            .into_iter()
            .map(|(utterance, measured, _)| Record {
                speaker: position(&speakers, &utterance.speaker),
                language: position(&languages, &utterance.language),
                utterance,
                measured,
            })
            .collect();
        let memory = MemoryCache::new(options.memory_bytes);
        let widths: Vec<usize> = featurizer.columns().iter().map(Column::row_bytes).collect();
        let bytes = |record: &Record| -> usize {
            record.measured.rows.iter().zip(&widths).map(|(&rows, width)| rows as usize * width).sum()
        };
        let array_bytes = records.iter().map(bytes).sum();
        let keeps_all = array_bytes <= options.memory_bytes;
        Ok(Runtime {
            featurizer,
            records,
            speakers,
            languages,
            problems,
            memory,
            array_bytes,
            keeps_all,
            fingerprint,
        })
    }

    /// Returns the size of all arrays of all records in bytes.
    pub fn array_bytes(&self) -> usize {
        self.array_bytes
    }

    /// Returns whether all arrays fit in memory, so that each is computed once.
    pub fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    /// Returns the problems of utterances that were left out.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the statistics of the memory cache.
    pub fn memory(&self) -> MemoryUse {
        self.memory.usage()
    }

    /// Number of records whose mels can be computed from only the samples they need, without decoding the whole file.
    pub fn piecewise_records(&self) -> usize {
        self.records.iter().filter(|record| record.measured.audio.is_some()).count()
    }

    /// Returns the array if its length is the one measured on opening.
    fn unchanged(&self, record: usize, column: usize, array: Vec<u8>) -> Result<Vec<u8>, Problem> {
        let Record { utterance, measured, .. } = &self.records[record];
        if array.len() == measured.rows[column] as usize * self.columns()[column].row_bytes() {
            return Ok(array);
        }
        Err(Problem {
            kind: ProblemKind::Unreadable,
            severity: Severity::Error,
            id: Some(utterance.id.clone()),
            origin: utterance.origin.clone(),
            detail: format!("{} changed after training opened it", utterance.audio.display()),
        })
    }

    fn array(&self, record: usize, column: usize) -> Arc<Result<Vec<u8>, Problem>> {
        self.memory.get(record * self.columns().len() + column, || {
            let utterance = &self.records[record].utterance;
            let bytes = source::read_bytes(&utterance.audio);
            let began = Instant::now();
            let array = match bytes {
                Ok(bytes) => featurizer::column(self.featurizer.as_ref(), utterance, &bytes, column),
                Err(why) => Err(why.problem(utterance)),
            };
            let array = array.and_then(|array| self.unchanged(record, column, array));
            note_computing(began.elapsed());
            // Failures are cached too: a second attempt would fail again.
            let bytes = array.as_ref().map_or(256, Vec::len);
            (array, bytes)
        })
    }
}

/// What is known of an utterance, and the hash of its audio.
type Surveyed = Result<(Measured, Hash), Problem>;

/// The initial pass over all utterances.
struct Survey<'a> {
    featurizer: &'a dyn Featurizer,
    options: &'a RuntimeOptions,
    total: u64,
    failed: AtomicU64,
    progress: &'a dyn Progress,
}

impl Survey<'_> {
    fn measure_all(&self, utterances: &[&Utterance]) -> Result<Vec<Surveyed>, CacheError> {
        /// Utterances per work item.
        const CHUNK: usize = 64;
        let chunks: Vec<&[&Utterance]> = utterances.chunks(CHUNK).collect();
        let results: Vec<Mutex<Vec<_>>> = chunks.iter().map(|_| Mutex::new(Vec::new())).collect();
        self.progress.start("lengths", utterances.len() as u64);
        workers::for_each(self.options.workers, chunks.len(), &AtomicBool::new(false), |chunk| {
            let found = chunks[chunk].iter().map(|utterance| self.measure_one(utterance));
            let found = found.collect::<Result<Vec<_>, _>>()?;
            *results[chunk].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = found;
            Ok(())
        })?;
        self.progress.finish();
        let results = results.into_iter().map(|a| a.into_inner().unwrap_or_else(|p| p.into_inner()));
        Ok(results.flatten().collect())
    }

    fn measure_one(&self, utterance: &Utterance) -> Result<Surveyed, CacheError> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(CacheError::Stopped);
        }
        let (bytes, digest) = source::read(&utterance.audio);
        let found = match bytes {
            Ok(bytes) => featurizer::measure(self.featurizer, utterance, &bytes),
            Err(why) => Err(why.problem(utterance)),
        };
        self.progress.advance(1);
        if let Err(problem) = &found {
            self.count_failures(1, std::slice::from_ref(problem))?;
        }
        Ok(found.map(|measured| (measured, digest.hash)))
    }

    fn count_failures(&self, more: u64, problems: &[Problem]) -> Result<(), CacheError> {
        let failed = self.failed.fetch_add(more, Ordering::Relaxed) + more;
        let (total, budget) = (self.total, self.options.failure_budget);
        // Later successes cannot undo this.
        if failed as f64 > budget * total as f64 {
            return Err(CacheError::OverBudget { failed, total, budget, problems: problems.to_vec() });
        }
        Ok(())
    }
}

fn sorted_names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    all.collect::<std::collections::BTreeSet<_>>().into_iter().cloned().collect()
}

/// Hashes the records, their order and their audio.
fn fingerprint_of(featurizer: &dyn Featurizer, records: &[(Utterance, Measured, Hash)]) -> Hash {
    let recipe = fingerprint::recipe(featurizer.columns(), &featurizer.fingerprint());
    let mut fingerprint = Fingerprint::new("runtime").bytes("recipe", &recipe);
    for (Utterance { id, text, speaker, language, .. }, measured, audio_hash) in records {
        fingerprint =
            fingerprint.text("id", id).text("text", text).text("speaker", speaker).text("language", language);
        fingerprint = fingerprint.bytes("sound", audio_hash);
        fingerprint = measured
            .rows
            .iter()
            .fold(fingerprint, |fingerprint, &rows| fingerprint.number("rows", u64::from(rows)));
    }
    fingerprint.finish()
}

impl RecordSource for Runtime {
    fn columns(&self) -> &[Column] {
        self.featurizer.columns()
    }

    fn len(&self) -> usize {
        self.records.len()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.records[record].measured.rows[column]
    }

    fn speaker(&self, record: usize) -> u32 {
        self.records[record].speaker
    }

    fn language(&self, record: usize) -> u32 {
        self.records[record].language
    }

    fn speakers(&self) -> &[String] {
        &self.speakers
    }

    fn languages(&self) -> &[String] {
        &self.languages
    }

    fn id(&self, record: usize) -> String {
        self.records[record].utterance.id.clone()
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if !self.keeps_all {
            let Record { utterance, measured, .. } = &self.records[record];
            let rows = || self.featurizer.rows(utterance, measured, column, first_row, out);
            if let Some(rows) = featurizer::catch_panic(utterance, rows).map_err(RecordError::Bad)? {
                return Ok(rows);
            }
        }
        match self.array(record, column).as_ref() {
            Ok(array) => Ok(copy_rows(array, self.columns()[column].row_bytes(), first_row, out)),
            Err(problem) => Err(RecordError::Bad(problem.clone())),
        }
    }

    fn fingerprint(&self) -> Hash {
        self.fingerprint
    }
}
