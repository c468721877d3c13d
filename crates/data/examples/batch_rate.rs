//! Measures how fast batches are planned, opened and collated. Prints one JSON object.
//!
//! ```text
//! cargo run --profile dist -p myxtts-data --example batch_rate -- [--data DIR] [--records N] [--seconds S]
//!     [--npy] [--only-collate] [--cache DIR]
//! ```
//!
//! `--make-cache DIR [--records N] [--frames F]` does not measure: it prepares a cache of synthetic records to
//! give to `--cache`, a million small ones or a few thousand of 10 s.
//!
//! `--data` keeps the synthetic mels (for another run, or for `bench/batches/peer.py`), `--npy` writes them
//! as one file each as well. `--cache` measures a real cache instead, with as many records as it has.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use memmap2::Mmap;
use myxtts_data::batch::{Part, Plan, Rows, Settings};
use myxtts_data::cache::{Features, Featurizer, Fingerprint, PrepareOptions, Store, prepare};
use myxtts_data::loader::{HostSlab, Loader, Options};
use myxtts_data::npy;
use myxtts_data::problem::{Problem, ProblemKind, Severity};
use myxtts_data::record::{CONDITIONING_MEL, Column, DVAE_MEL, Dtype, RecordError, RecordSource, TOKENS};
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_run::progress::Silent;
use myxtts_run::seed::Seed;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// 10 s at 22,050 Hz, hop 256.
const FRAMES: u32 = 862;
const ROWS: u32 = 32;
const MILLION: usize = 1_000_000;

struct Args {
    data: Option<PathBuf>,
    records: usize,
    seconds: f64,
    npy: bool,
    only_collate: bool,
    cache: Option<PathBuf>,
    make_cache: Option<PathBuf>,
    frames: u32,
}

fn main() -> Outcome<()> {
    let args = parse()?;
    if let Some(dir) = &args.make_cache {
        return make_cache(dir, args.records, args.frames);
    }
    let temporary = tempfile::tempdir()?;
    let folder = args.data.clone().unwrap_or_else(|| temporary.path().to_owned());
    let mut report = json!({});
    if !args.only_collate {
        // First, while the process is small: memory is part of the question.
        let made = temporary.path().join("index.bin");
        Index::make(&made)?;
        let index = || -> Outcome<Arc<dyn RecordSource>> {
            match &args.cache {
                Some(dir) => Ok(Arc::new(Store::open(dir)?)),
                None => Ok(Arc::new(Index::open(&made)?)),
            }
        };
        report["open"] = open(&index)?;
        report["resolve"] = resolve(&*index()?, args.seconds)?;
    }
    let mels: Arc<dyn RecordSource> = match &args.cache {
        Some(dir) => Arc::new(Store::open(dir)?),
        None => Arc::new(Mels::make(&folder, args.records, args.npy)?),
    };
    report["collate"] = collate(mels, args.seconds)?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

fn parse() -> Outcome<Args> {
    let mut args = Args {
        data: None,
        records: 2048,
        seconds: 3.0,
        npy: false,
        only_collate: false,
        cache: None,
        make_cache: None,
        frames: FRAMES,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--data" => args.data = Some(value()?.into()),
            "--records" => args.records = value()?.parse()?,
            "--seconds" => args.seconds = value()?.parse()?,
            "--npy" => args.npy = true,
            "--make-cache" => args.make_cache = Some(value()?.into()),
            "--frames" => args.frames = value()?.parse()?,
            "--cache" => args.cache = Some(value()?.into()),
            "--only-collate" => args.only_collate = true,
            other => return Err(format!("{other} is not known; see the top of batch_rate.rs").into()),
        }
    }
    Ok(args)
}

/// From an index of a million records to the first batch: at step 0 and at step 1,000,000.
fn open(open_index: &dyn Fn() -> Outcome<Arc<dyn RecordSource>>) -> Outcome<Value> {
    let before = resident()?;
    let mut times: [Vec<f64>; 2] = Default::default();
    let mut cpu_times = Vec::new();
    let (mut grown, mut records) = ([0.0; 2], 0);
    // In turns, so that both run under the same load.
    for round in 0..9 {
        for (i, step) in [0, 1_000_000].into_iter().enumerate() {
            let (began, cpu) = (Instant::now(), cpu_s()?);
            let index = open_index()?;
            records = index.len();
            let plan = Arc::new(Plan::new(&*index, 0..records as u32, settings(true))?);
            let slabs = HostSlab::pool(3, plan.slab_bytes(1)?);
            let state = plan.state(step);
            let mut loader = Loader::start(index, plan, &state, Options::default(), slabs)?;
            let batch = loader.next().ok_or("the loader ended")??;
            times[i].push(began.elapsed().as_secs_f64());
            cpu_times.push(cpu_s()? - cpu);
            if round == 0 && i == 0 {
                let [own, files] = resident()?;
                grown = [own - before[0], files - before[1]];
            }
            drop(batch);
        }
    }
    let first = |times: &[f64]| times.first().copied().unwrap_or(f64::NAN);
    let [start, million] = times.each_ref().map(|times| median(times));
    Ok(json!({
        "records": records,
        "first_of_process_s": first(&times[0]),
        "step_0_s": start,
        "step_1000000_s": million,
        "ratio": million / start,
        "opening_thread_cpu_s": median(&cpu_times),
        "memory_growth_mb": grown[0],
        "mapped_growth_mb": grown[1],
        "raw_s": times,
    }))
}

/// Batches whose rows and companions are known, one thread.
fn resolve(index: &dyn RecordSource, seconds: f64) -> Outcome<Value> {
    let plan = Plan::new(index, 0..index.len() as u32, settings(true))?;
    let rate = |companions: bool| {
        let (began, mut batches, mut sum) = (Instant::now(), 0u64, 0u64);
        while began.elapsed().as_secs_f64() < seconds / 2.0 {
            for _ in 0..100 {
                let step = plan.step(batches * 7919);
                for record in step.records().flatten() {
                    sum = sum.wrapping_add(record.into());
                    if companions {
                        let speaker = index.speaker(record as usize);
                        sum = sum.wrapping_add(step.companion(record, 0, speaker, 0).into());
                    }
                }
                batches += 1;
            }
        }
        std::hint::black_box(sum);
        batches as f64 / began.elapsed().as_secs_f64()
    };
    Ok(json!({
        "rows": ROWS,
        "records": index.len(),
        "batches_per_s": rate(false),
        "with_companions_per_s": rate(true),
    }))
}

/// Batches of 32 x 10 s DVAE mels through the loader, two workers, every record's checksum checked.
fn collate(source: Arc<dyn RecordSource>, seconds: f64) -> Outcome<Value> {
    let plan = Arc::new(Plan::new(&*source, 0..source.len() as u32, settings(false))?);
    let slabs = HostSlab::pool(6, plan.slab_bytes(1)?);
    let options = Options { workers: 2, ..Options::default() };
    let mut loader = Loader::start(source.clone(), plan.clone(), &plan.state(0), options, slabs)?;
    // An epoch to bring everything into memory, unless there is more than memory would hold.
    for _ in 0..plan.batches_per_epoch().min(500) {
        loader.next().ok_or("the loader ended")??;
    }
    let (began, mut batches, mut padding) = (Instant::now(), 0u64, 0.0);
    while began.elapsed().as_secs_f64() < seconds {
        let batch = loader.next().ok_or("the loader ended")??;
        padding += batch.info().padding();
        batches += 1;
    }
    let took = began.elapsed().as_secs_f64();
    let frames: u64 = plan.buckets().iter().map(|bucket| bucket.frames).sum();
    Ok(json!({
        "rows": ROWS,
        "records": source.len(),
        "data_mb": frames as f64 * 320.0 / 1e6,
        "workers": 2,
        "batches_per_s": batches as f64 / took,
        "padding": padding / batches as f64,
        "stats": loader.stats(),
    }))
}

/// Prepares a cache whose arrays are generated from the utterance's id.
fn make_cache(dir: &Path, records: usize, frames: u32) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let audio = folder.path().join("sound");
    std::fs::write(&audio, b"never read")?;
    let utterance = |i: usize| Utterance {
        id: format!("record-{i:07}"),
        audio: audio.clone(),
        text: "synthetic".into(),
        speaker: format!("speaker {:03}", i % 1000),
        language: "en".into(),
        origin: Origin { file: "synthetic".into(), line: Some(i as u64 + 1) },
    };
    let utterances: Vec<Utterance> = (0..records).map(utterance).collect();
    let report =
        prepare(dir, &utterances, &SyntheticFeaturizer { frames }, &PrepareOptions::default(), &Silent)?;
    println!("{report:?}");
    Ok(())
}

struct SyntheticFeaturizer {
    frames: u32,
}

impl Featurizer for SyntheticFeaturizer {
    fn columns(&self) -> &[Column] {
        &[TOKENS, DVAE_MEL, CONDITIONING_MEL]
    }
    fn fingerprint(&self) -> [u8; 32] {
        Fingerprint::new("made up").number("frames", self.frames.into()).finish()
    }
    fn compute(&self, utterance: &Utterance, _: &[u8]) -> Result<Features, Problem> {
        let seed = Seed::new(12).derive(&utterance.id);
        // Within 3 %, at least a frame.
        let frames = self.frames - self.frames / 33 + seed.below(0, u64::from(self.frames / 16) + 1) as u32;
        let values = (0..u64::from(frames) * 80).map(|j| (seed.unit(j) * 13.0 - 11.5) as f32);
        let mel: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        let tokens = (0..1 + frames as i32 / 6).flat_map(i32::to_le_bytes).collect();
        Ok(Features { arrays: vec![tokens, mel.clone(), mel], seconds: frames as f32 * 256.0 / 22050.0 })
    }
}

fn settings(companions: bool) -> Settings {
    let parts = match companions {
        true => vec![Part::whole(TOKENS), Part::whole(DVAE_MEL), Part::companion(CONDITIONING_MEL, 517)],
        false => vec![Part::whole(DVAE_MEL)],
    };
    Settings { seed: Seed::new(1), rows: Rows::Fixed(ROWS), parts, ..Settings::default() }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Memory of this process in megabytes: its own, and pages of files that others share and the system
/// takes back when it needs them.
fn resident() -> Outcome<[f64; 2]> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let megabytes = |name: &str| -> Outcome<f64> {
        let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
        let kilobytes: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
        Ok(kilobytes * 1024.0 / 1e6)
    };
    Ok([megabytes("RssAnon:")?, megabytes("RssFile:")?])
}

/// CPU time of this thread: on a busy machine, wall-clock time is less precise.
fn cpu_s() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = text.split(' ').next().ok_or("no number")?.parse()?;
    Ok(nanoseconds / 1e9)
}

fn map(file: &Path) -> Outcome<Mmap> {
    // SAFETY: the file is created by this program and not changed while it is mapped.
    Ok(unsafe { Mmap::map(&File::open(file)?)? })
}

/// Synthetic mels of about 10 s in one mapped file, each with a checksum.
struct Mels {
    bytes: Mmap,
    frames: Vec<u32>,
    offsets: Vec<usize>,
    checksums: Vec<u32>,
    names: Vec<String>,
}

impl Mels {
    fn make(folder: &Path, records: usize, npy_files: bool) -> Outcome<Self> {
        std::fs::create_dir_all(folder)?;
        let seed = Seed::new(10).derive("mels");
        // 10 s within 3 %: some padding, as in real corpora.
        let frames: Vec<u32> = (0..records as u64).map(|i| FRAMES - 26 + seed.below(i, 53) as u32).collect();
        let (file, index) = (folder.join("mels.bin"), folder.join("mels.json"));
        let total: u64 = frames.iter().map(|&frames| u64::from(frames) * 320).sum();
        if std::fs::metadata(&file).map_or(true, |data| data.len() != total) {
            let mut out = BufWriter::new(File::create(&file)?);
            for (i, &frames) in frames.iter().enumerate() {
                let seed = seed.with(i as u64);
                let values = (0..u64::from(frames) * 80).map(|j| (seed.unit(j) * 13.0 - 11.5) as f32);
                out.write_all(&values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())?;
            }
            out.flush()?;
            std::fs::write(&index, serde_json::to_vec(&json!({ "frames": frames }))?)?;
        }
        let bytes = map(&file)?;
        let mut offsets = vec![0];
        for &frames in &frames {
            offsets.push(offsets[offsets.len() - 1] + frames as usize * 320);
        }
        let arrays = || offsets.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        if npy_files {
            let npy_folder = folder.join("npy");
            std::fs::create_dir_all(&npy_folder)?;
            for (i, array) in arrays().enumerate() {
                let header = npy::header(Dtype::F32, &[frames[i] as usize, 80]);
                std::fs::write(npy_folder.join(format!("{i:06}.npy")), [&header[..], array].concat())?;
            }
        }
        let checksums = arrays().map(crc32fast::hash).collect();
        Ok(Mels { bytes, frames, offsets, checksums, names: vec!["one".into()] })
    }
}

impl RecordSource for Mels {
    fn columns(&self) -> &[Column] {
        &[DVAE_MEL]
    }
    fn len(&self) -> usize {
        self.frames.len()
    }
    fn rows(&self, record: usize, _: usize) -> u32 {
        self.frames[record]
    }
    fn speaker(&self, _: usize) -> u32 {
        0
    }
    fn language(&self, _: usize) -> u32 {
        0
    }
    fn speakers(&self) -> &[String] {
        &self.names
    }
    fn languages(&self) -> &[String] {
        &self.names
    }
    fn id(&self, record: usize) -> String {
        record.to_string()
    }
    fn read(&self, record: usize, _: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let array = &self.bytes[self.offsets[record]..self.offsets[record + 1]];
        if crc32fast::hash(array) != self.checksums[record] {
            return Err(RecordError::Bad(Problem {
                kind: ProblemKind::DamagedRecord,
                severity: Severity::Error,
                id: Some(self.id(record)),
                origin: Origin { file: "mels.bin".into(), line: None },
                detail: "the checksum does not match".into(),
            }));
        }
        let array = &array[(first_row as usize * 320).min(array.len())..];
        let bytes = array.len().min(out.len());
        out[..bytes].copy_from_slice(&array[..bytes]);
        Ok((bytes / 320) as u32)
    }
    fn fingerprint(&self) -> [u8; 32] {
        [1; 32]
    }
}

/// A mapped index of a million records, 32 bytes each, that all share one array.
struct Index {
    entries: Mmap,
    array: Vec<u8>,
    speakers: Vec<String>,
}

const ENTRY: usize = 32;

impl Index {
    fn make(file: &Path) -> Outcome<()> {
        let mut out = BufWriter::new(File::create(file)?);
        let seed = Seed::new(11).derive("index");
        for i in 0..MILLION as u64 {
            // 1 to 11.6 s, most of them in the middle.
            let frames = 86 + seed.below(3 * i, 456) as u32 + seed.below(3 * i + 1, 456) as u32;
            let mut entry = [0; ENTRY];
            entry[..4].copy_from_slice(&frames.to_le_bytes());
            entry[4..8].copy_from_slice(&(frames / 6).to_le_bytes());
            entry[8..12].copy_from_slice(&(seed.below(3 * i + 2, 1000) as u32).to_le_bytes());
            out.write_all(&entry)?;
        }
        Ok(out.flush()?)
    }

    fn open(file: &Path) -> Outcome<Self> {
        let speakers = (0..1000).map(|i| i.to_string()).collect();
        Ok(Index { entries: map(file)?, array: vec![0; 1000 * 320], speakers })
    }

    fn number(&self, record: usize, at: usize) -> u32 {
        let bytes = &self.entries[record * ENTRY + at..][..4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl RecordSource for Index {
    fn columns(&self) -> &[Column] {
        &[TOKENS, DVAE_MEL, CONDITIONING_MEL]
    }
    fn len(&self) -> usize {
        MILLION
    }
    fn rows(&self, record: usize, column: usize) -> u32 {
        self.number(record, if column == 0 { 4 } else { 0 })
    }
    fn speaker(&self, record: usize) -> u32 {
        self.number(record, 8)
    }
    fn language(&self, _: usize) -> u32 {
        0
    }
    fn speakers(&self) -> &[String] {
        &self.speakers
    }
    fn languages(&self) -> &[String] {
        &self.speakers
    }
    fn id(&self, record: usize) -> String {
        record.to_string()
    }
    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let row_bytes = if column == 0 { 4 } else { 320 };
        let rows = (self.rows(record, column) - first_row).min((out.len() / row_bytes) as u32);
        let bytes = rows as usize * row_bytes;
        out[..bytes].copy_from_slice(&self.array[..bytes]);
        Ok(rows)
    }
    fn fingerprint(&self) -> [u8; 32] {
        [2; 32]
    }
}
