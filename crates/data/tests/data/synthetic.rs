//! Records in memory, for tests of batches.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use myxtts_data::problem::{Problem, ProblemKind, Severity};
use myxtts_data::record::{CONDITIONING_MEL, Column, DVAE_MEL, RecordError, RecordSource, TOKENS};
use myxtts_data::utterance::Origin;
use myxtts_run::seed::Seed;

const COLUMNS: [Column; 3] = [TOKENS, DVAE_MEL, CONDITIONING_MEL];

/// Length of one record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    pub frames: u32,
    pub tokens: u32,
}

/// A corpus in memory whose every value is a function of record, column and position.
pub struct Synthetic {
    lengths: Vec<Length>,
    speakers: Vec<String>,
    languages: Vec<String>,
    /// Speaker and language of each record; `None` assigns them in turn.
    groups: Option<Vec<(u32, u32)>>,
    /// Arrays, distributed over shards; the shard of a record must not matter.
    shards: Vec<HashMap<(usize, usize), Vec<u8>>>,
    /// Reported lengths exceed the readable ones by this, which `RecordSource::rows` allows.
    reported_excess: u32,
    fingerprint: [u8; 32],
    faults: Mutex<Faults>,
    pub reads: AtomicU64,
    pub length_queries: AtomicU64,
}

/// Planted faults, by record.
#[derive(Default)]
pub struct Faults {
    pub bad: BTreeSet<usize>,
    pub bad_conditioning: BTreeSet<usize>,
    pub io: BTreeSet<usize>,
    pub panics: BTreeSet<usize>,
    pub hangs: BTreeSet<usize>,
    /// Panics at the first read only.
    pub panics_once: BTreeSet<usize>,
    /// The first read blocks until all are released; later reads pass.
    pub hangs_once: BTreeSet<usize>,
    pub released: bool,
    /// The time of every read depends on its record's number, so that steps finish out of order.
    pub jitter: bool,
}

impl Synthetic {
    pub fn new(lengths: Vec<Length>, speakers: u32) -> Self {
        Self::sharded(lengths, speakers, 1)
    }

    pub fn sharded(lengths: Vec<Length>, speakers: u32, shards: usize) -> Self {
        let mut stored = vec![HashMap::new(); shards];
        for (record, length) in lengths.iter().enumerate().filter(|_| shards > 0) {
            for (column, kind) in COLUMNS.iter().enumerate() {
                let rows = if column == 0 { length.tokens } else { length.frames };
                let values = rows * kind.width;
                let bytes = (0..values)
                    .flat_map(|i| match column {
                        0 => (1 + record as i32 * 1000 + i as i32).to_le_bytes(),
                        _ => (record as f32 + column as f32 / 8.0 + i as f32 / 65536.0).to_le_bytes(),
                    })
                    .collect();
                stored[record % shards].insert((record, column), bytes);
            }
        }
        // A hash of content, not of storage: the same for any number of shards.
        let mut fingerprint = [0; 32];
        let hash = lengths.iter().fold(Seed::new(speakers.into()), |seed, length| {
            seed.with(length.frames.into()).with(length.tokens.into())
        });
        fingerprint[..8].copy_from_slice(&hash.value().to_le_bytes());
        Synthetic {
            lengths,
            speakers: (0..speakers).map(|i| format!("speaker {i}")).collect(),
            languages: vec!["en".into(), "fa".into()],
            groups: None,
            shards: stored,
            reported_excess: 0,
            fingerprint,
            faults: Mutex::default(),
            reads: AtomicU64::new(0),
            length_queries: AtomicU64::new(0),
        }
    }

    /// Only lengths, for plans, which read nothing else.
    pub fn unread(lengths: Vec<Length>, speakers: u32) -> Self {
        Self::sharded(lengths, speakers, 0)
    }

    /// `count` records with random lengths from 5 to 60 frames.
    pub fn speech(count: usize) -> Self {
        Self::new(speech_lengths(count), 3)
    }

    /// The same records with other speakers and languages.
    pub fn grouped(mut self, groups: Vec<(u32, u32)>) -> Self {
        self.groups = Some(groups);
        self
    }

    pub fn reporting_longer(mut self, frames: u32) -> Self {
        self.reported_excess = frames;
        self
    }

    pub fn with(self, set: impl FnOnce(&mut Faults)) -> Self {
        set(&mut self.faults.lock().unwrap());
        self
    }

    /// Releases every read that hangs.
    pub fn release(&self) {
        let mut faults = self.faults.lock().unwrap();
        faults.hangs.clear();
        faults.released = true;
    }

    pub fn length(&self, record: u32) -> Length {
        self.lengths[record as usize]
    }

    /// Returns the bytes of an array.
    pub fn array(&self, record: u32, column: usize) -> &[u8] {
        &self.shards[record as usize % self.shards.len()][&(record as usize, column)]
    }

    fn check(&self, record: usize, column: usize) -> Result<(), RecordError> {
        let problem = || Problem {
            kind: ProblemKind::DamagedRecord,
            severity: Severity::Error,
            id: Some(self.id(record)),
            origin: Origin { file: PathBuf::from("synthetic"), line: None },
            detail: "planted".into(),
        };
        let (hangs, once, jitter) = {
            let mut faults = self.faults.lock().unwrap();
            if faults.bad.contains(&record) || (column == 2 && faults.bad_conditioning.contains(&record)) {
                return Err(RecordError::Bad(problem()));
            }
            if faults.io.contains(&record) {
                let source = io::Error::other("the disk is gone");
                return Err(RecordError::Io { id: self.id(record), source });
            }
            if faults.panics.contains(&record) || faults.panics_once.remove(&record) {
                drop(faults);
                panic!("planted panic at record {record}");
            }
            (faults.hangs.contains(&record), faults.hangs_once.remove(&record), faults.jitter)
        };
        while once && !self.faults.lock().unwrap().released {
            std::thread::sleep(Duration::from_millis(2));
        }
        if jitter {
            std::thread::sleep(Duration::from_micros(record as u64 * 7 % 120));
        }
        while hangs && self.faults.lock().unwrap().hangs.contains(&record) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

pub fn speech_lengths(count: usize) -> Vec<Length> {
    let seed = Seed::new(99).derive("lengths");
    (0..count as u64)
        .map(|i| {
            let frames = 5 + (seed.unit(2 * i) * seed.unit(2 * i + 1) * 55.0) as u32;
            Length { frames, tokens: 1 + frames / 4 + (seed.at(i) % 3) as u32 }
        })
        .collect()
}

impl RecordSource for Synthetic {
    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn len(&self) -> usize {
        self.lengths.len()
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        self.length_queries.fetch_add(1, Relaxed);
        let length = self.lengths[record];
        if column == 0 { length.tokens } else { length.frames + self.reported_excess }
    }

    fn speaker(&self, record: usize) -> u32 {
        let dealt = (record % self.speakers.len()) as u32;
        self.groups.as_ref().map_or(dealt, |groups| groups[record].0)
    }

    fn language(&self, record: usize) -> u32 {
        self.groups.as_ref().map_or(record as u32 % 2, |groups| groups[record].1)
    }

    fn speakers(&self) -> &[String] {
        &self.speakers
    }

    fn languages(&self) -> &[String] {
        &self.languages
    }

    fn id(&self, record: usize) -> String {
        format!("clip-{record:04}")
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        self.reads.fetch_add(1, Relaxed);
        self.check(record, column)?;
        let row_bytes = COLUMNS[column].row_bytes();
        let array = self.array(record as u32, column);
        let from = (first_row as usize * row_bytes).min(array.len());
        let bytes = (array.len() - from).min(out.len());
        out[..bytes].copy_from_slice(&array[from..from + bytes]);
        Ok((bytes / row_bytes) as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}
