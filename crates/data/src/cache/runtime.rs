//! Records without a store: computed when they are asked for, kept in memory within a bound.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use myxtts_run::progress::Progress;

use super::featurizer::{self, Features, Featurizer};
use super::fingerprint::{self, Fingerprint, Hash};
use super::memory::{MemoryCache, MemoryUse};
use super::names::SHARD_SIZE;
use super::prepare::Partition;
use super::store::copy_rows;
use super::{CacheError, source, workers};
use crate::problem::Problem;
use crate::record::{Column, RecordError, RecordSource, note_computing};
use crate::utterance::Utterance;

/// How runtime mode works.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeOptions {
    /// Bytes of arrays kept in memory.
    pub memory_bytes: usize,
    /// Threads that ask for every utterance's length when it opens.
    pub workers: usize,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        RuntimeOptions { memory_bytes: 1 << 30, workers }
    }
}

/// A source of records that computes them. Records are numbered as a [`super::Store`] of the same
/// utterances numbers them; lengths are upper bounds.
pub struct Runtime {
    featurizer: Arc<dyn Featurizer>,
    records: Vec<Record>,
    speakers: Vec<String>,
    languages: Vec<String>,
    problems: Vec<Problem>,
    memory: MemoryCache<Result<Features, Problem>>,
    fingerprint: Hash,
}

struct Record {
    utterance: Utterance,
    bounds: Vec<u32>,
    speaker: u32,
    language: u32,
}

impl Runtime {
    /// Asks for the length of every utterance. Those that have none are left out, see
    /// [`Self::problems`].
    pub fn open(
        utterances: &[Utterance],
        featurizer: Arc<dyn Featurizer>,
        options: &RuntimeOptions,
        progress: &dyn Progress,
    ) -> Result<Runtime, CacheError> {
        let partition = Partition::natural(utterances, SHARD_SIZE);
        let ordered: Vec<&Utterance> = partition.shards.into_iter().flatten().collect();
        let bounds = Bounds::ask(&ordered, featurizer.as_ref(), options.workers, progress)?;

        let mut problems = partition.duplicates;
        let mut kept = Vec::with_capacity(ordered.len());
        for (utterance, bound) in ordered.into_iter().zip(bounds.0) {
            match bound {
                Ok(bounds) => kept.push((utterance.clone(), bounds)),
                Err(problem) => problems.push(problem),
            }
        }
        let speakers = names(kept.iter().map(|(utterance, _)| &utterance.speaker));
        let languages = names(kept.iter().map(|(utterance, _)| &utterance.language));
        let place = |names: &[String], name: &String| names.binary_search(name).unwrap_or_default() as u32;
        let records: Vec<Record> = kept
            .into_iter()
            .map(|(utterance, bounds)| Record {
                speaker: place(&speakers, &utterance.speaker),
                language: place(&languages, &utterance.language),
                utterance,
                bounds,
            })
            .collect();
        let fingerprint = identity(featurizer.as_ref(), &records);
        let memory = MemoryCache::new(options.memory_bytes);
        Ok(Runtime { featurizer, records, speakers, languages, problems, memory, fingerprint })
    }

    /// Utterances that were left out, and why.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What the memory cache has done.
    pub fn memory(&self) -> MemoryUse {
        self.memory.usage()
    }

    fn features(&self, record: usize) -> Arc<Result<Features, Problem>> {
        self.memory.get(record, || {
            let utterance = &self.records[record].utterance;
            let (bytes, _) = source::read(&utterance.audio);
            let began = Instant::now();
            let features = match bytes {
                Ok(bytes) => featurizer::compute(self.featurizer.as_ref(), utterance, &bytes),
                Err(why) => Err(why.problem(utterance)),
            };
            note_computing(began.elapsed());
            // A failure is remembered too: it would only fail again.
            let bytes = features.as_ref().map_or(256, Features::bytes);
            (features, bytes)
        })
    }
}

/// The lengths of all utterances, or why there are none.
struct Bounds(Vec<Result<Vec<u32>, Problem>>);

impl Bounds {
    fn ask(
        utterances: &[&Utterance],
        featurizer: &dyn Featurizer,
        workers: usize,
        progress: &dyn Progress,
    ) -> Result<Self, CacheError> {
        /// Utterances dealt to a worker at once.
        const CHUNK: usize = 64;
        let chunks: Vec<&[&Utterance]> = utterances.chunks(CHUNK).collect();
        let answers: Vec<Mutex<Vec<_>>> = chunks.iter().map(|_| Mutex::new(Vec::new())).collect();
        progress.start("lengths", utterances.len() as u64);
        workers::deal(workers, chunks.len(), &AtomicBool::new(false), |chunk| {
            let mut found = Vec::with_capacity(CHUNK);
            for utterance in chunks[chunk] {
                found.push(featurizer::bound(featurizer, utterance));
                progress.advance(1);
            }
            *answers[chunk].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = found;
            Ok(())
        })?;
        progress.finish();
        let answers = answers.into_iter().map(|a| a.into_inner().unwrap_or_else(|p| p.into_inner()));
        Ok(Bounds(answers.flatten().collect()))
    }
}

fn names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    all.collect::<std::collections::BTreeSet<_>>().into_iter().cloned().collect()
}

/// Which records, in which order, of which length. The sound itself is not read for it.
fn identity(featurizer: &dyn Featurizer, records: &[Record]) -> Hash {
    let recipe = fingerprint::recipe(featurizer.columns(), &featurizer.fingerprint());
    let mut print = Fingerprint::new("runtime").bytes("recipe", &recipe);
    for record in records {
        let Utterance { id, text, speaker, language, .. } = &record.utterance;
        print = print.text("id", id).text("text", text).text("speaker", speaker).text("language", language);
        print = record.bounds.iter().fold(print, |print, &rows| print.number("rows", u64::from(rows)));
    }
    print.finish()
}

impl RecordSource for Runtime {
    fn columns(&self) -> &[Column] {
        self.featurizer.columns()
    }

    fn len(&self) -> usize {
        self.records.len()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.records[record].bounds[column]
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
        match self.features(record).as_ref() {
            Ok(features) => {
                let row_bytes = self.columns()[column].row_bytes();
                Ok(copy_rows(&features.arrays[column], row_bytes, first_row, out))
            }
            Err(problem) => Err(RecordError::Bad(problem.clone())),
        }
    }

    fn fingerprint(&self) -> Hash {
        self.fingerprint
    }
}
