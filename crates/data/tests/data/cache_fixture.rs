//! A small corpus on disk, a fast deterministic featurizer, and comparison of folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use myxtts_data::cache::{Features, Featurizer, Fingerprint, PrepareOptions, PrepareReport, prepare};
use myxtts_data::problem::{Problem, ProblemKind, Severity};
use myxtts_data::record::{Column, Dtype, TOKENS, WAVEFORM};
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_run::durable::fault::{FaultPlan, FaultyDisk};
use myxtts_run::progress::Silent;

/// A folder for one test: in memory if the system supports it, because the tests here are about dying processes and not
/// about disks, and create and remove thousands of small files.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Not a built-in column: a store must support any column.
pub const SMALL_MEL: Column = Column { name: "small_mel", dtype: Dtype::F32, width: 4 };

/// Arrays that follow from the text and the audio file: "FAIL" fails, "PANIC" panics, "ODD" has the wrong shape, "MUTE" has
/// no mel.
pub struct Synthetic {
    pub version: u64,
    pub delay: Duration,
    pub computed: AtomicU64,
    pub columns: [Column; 3],
}

impl Synthetic {
    pub fn new() -> Self {
        let columns = [TOKENS, SMALL_MEL, WAVEFORM];
        Synthetic { version: 1, delay: Duration::ZERO, computed: AtomicU64::new(0), columns }
    }
}

impl Featurizer for Synthetic {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn fingerprint(&self) -> [u8; 32] {
        Fingerprint::new("synthetic").number("version", self.version).finish()
    }

    fn compute(&self, utterance: &Utterance, source: &[u8]) -> Result<Features, Problem> {
        self.computed.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.delay);
        if utterance.text.contains("FAIL") {
            return Err(Problem {
                kind: ProblemKind::Silent,
                severity: Severity::Error,
                id: Some(utterance.id.clone()),
                origin: utterance.origin.clone(),
                detail: "planted failure".into(),
            });
        }
        assert!(!utterance.text.contains("PANIC"), "planted panic");
        let tokens = utterance.text.bytes().flat_map(|b| i32::from(b).to_le_bytes()).collect();
        let rows = if utterance.text.contains("MUTE") { 0 } else { 1 + utterance.text.len() % 7 };
        let value = |i: usize| (i as f32).mul_add(0.5, f32::from(source[i % source.len()]));
        let mel = (0..4 * rows).flat_map(|i| value(i).to_le_bytes()).collect();
        let mut samples: Vec<u8> = source.iter().flat_map(|&b| i16::from(b).to_le_bytes()).collect();
        samples.extend(self.version.to_le_bytes());
        if utterance.text.contains("ODD") {
            samples.pop();
        }
        Ok(Features { arrays: vec![tokens, mel, samples], seconds: source.len() as f32 / 100.0 })
    }
}

/// A corpus of `count` utterances on disk, with failures of several kinds among them.
pub fn corpus(folder: &Path, count: usize) -> Vec<Utterance> {
    std::fs::create_dir_all(folder).unwrap();
    let utterances = declared(folder, count);
    for (n, utterance) in utterances.iter().enumerate().filter(|(n, _)| n % 40 != 33) {
        let bytes: Vec<u8> = (0..50 + (n * 37) % 300).map(|i| (i * 7 + n * 13) as u8).collect();
        std::fs::write(&utterance.audio, bytes).unwrap();
    }
    utterances
}

/// The same corpus without writing its files.
pub fn declared(folder: &Path, count: usize) -> Vec<Utterance> {
    let declare = |n: usize| {
        let mark = match n % 40 {
            13 => "FAIL",
            27 => "MUTE",
            _ => "",
        };
        let audio = folder.join(format!("{n:04}.raw"));
        utterance(&format!("utt-{n:04}"), audio, &format!("sentence number {n} {mark}"), n)
    };
    (0..count).map(declare).collect()
}

pub fn utterance(id: &str, audio: PathBuf, text: &str, n: usize) -> Utterance {
    Utterance {
        id: id.into(),
        audio,
        text: text.into(),
        speaker: format!("speaker {}", n % 3),
        language: if n.is_multiple_of(2) { "en" } else { "fa" }.into(),
        origin: Origin { file: "metadata.csv".into(), line: Some(n as u64 + 1) },
    }
}

/// Small shards, a budget for the failures, and no waiting for the device.
pub fn options() -> PrepareOptions {
    PrepareOptions {
        workers: 2,
        failure_budget: 0.2,
        shard_size: 8,
        disk: std::sync::Arc::new(FaultyDisk::new(FaultPlan::none())),
        ..PrepareOptions::default()
    }
}

pub fn prepared(dir: &Path, utterances: &[Utterance]) -> PrepareReport {
    prepare(dir, utterances, &Synthetic::new(), &options(), &Silent).unwrap()
}

/// Every file of a folder with its bytes.
pub fn snapshot(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Equal names and equal bytes; the message names what differs instead of printing it.
#[track_caller]
pub fn assert_same(found: &Path, wanted: &BTreeMap<String, Vec<u8>>, when: &str) {
    let found = snapshot(found);
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(wanted), "{when}");
    for (name, bytes) in &found {
        assert!(bytes == &wanted[name], "{when}: {name} differs");
    }
}

/// The files of a folder whose names end with `end`, in order.
pub fn files_ending(dir: &Path, end: &str) -> Vec<PathBuf> {
    let names = snapshot(dir).into_keys().filter(|name| name.ends_with(end));
    names.map(|name| dir.join(name)).collect()
}
