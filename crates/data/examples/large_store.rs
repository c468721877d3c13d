//! Creates a store of any size within seconds, for measurements, and reports how long it takes to open.
//!
//! `cargo run --release -p myxtts-data --example large_store -- DIR [RECORDS] [--arrays]`
//!
//! The index is a real one with the five real columns. With `--arrays` the arrays are there as well:
//! all shards are alike, so that their files can be hard links to a few hundred megabytes.

use std::path::Path;
use std::time::Instant;

use myxtts_data::cache::Store;
use myxtts_data::cache::fingerprint::Hash;
use myxtts_data::cache::index::{IndexBuilder, IndexEntry};
use myxtts_data::cache::names::{INDEX_FILE, SHARD_SIZE, ShardName, shard_count};
use myxtts_data::cache::seal::StoredColumn;
use myxtts_data::cache::shard::array_header;
use myxtts_data::record::{CONDITIONING_MEL, Column, DVAE_MEL, RecordSource, SPEAKER_MEL, TOKENS, WAVEFORM};
use myxtts_run::durable;
use myxtts_run::seed::Seed;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const COLUMNS: [Column; 5] = [TOKENS, DVAE_MEL, CONDITIONING_MEL, SPEAKER_MEL, WAVEFORM];

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(arguments.first().ok_or("name a folder")?);
    let records: usize = arguments.get(1).map_or(Ok(1_000_000), |n| n.parse())?;
    std::fs::create_dir_all(dir)?;

    let began = Instant::now();
    let arrays = arguments.iter().any(|a| a == "--arrays");
    write(dir, records, arrays)?;
    println!("written in {:.1} s", began.elapsed().as_secs_f64());

    // The first opening also loads pages that no process has read yet.
    for _ in 0..5 {
        let (before, cpu_before, began) = (resident_kb(), cpu_ms(), Instant::now());
        let store = Store::open(dir)?;
        let (opened, cpu) = (began.elapsed(), cpu_ms() - cpu_before);
        let frames: u64 = (0..store.len()).map(|record| u64::from(store.rows(record, 1))).sum();
        println!(
            "{} records opened in {:.1} ms ({cpu:.1} of this thread), all {frames} lengths after {:.1} ms, {} MB of index, +{} MB resident",
            store.len(),
            opened.as_secs_f64() * 1e3,
            began.elapsed().as_secs_f64() * 1e3,
            store.index().bytes().len() >> 20,
            (resident_kb() - before) >> 10
        );
    }
    if arrays {
        read(&Store::open(dir)?)?;
    }
    Ok(())
}

/// Reads random mels, twice, because the first round maps the files.
fn read(store: &Store) -> Outcome<()> {
    const READS: u64 = 20_000;
    let seed = Seed::new(1).derive("reads");
    let longest = (0..11).map(|n| rows(n)[1]).max().unwrap_or(0);
    let mut out = vec![0; longest as usize * DVAE_MEL.row_bytes()];
    for round in 1..=2 {
        let (mut bytes, began) = (0, Instant::now());
        for n in 0..READS {
            let record = seed.below(n, store.len() as u64) as usize;
            bytes += u64::from(store.read(record, 1, 0, &mut out)?) * DVAE_MEL.row_bytes() as u64;
        }
        let seconds = began.elapsed().as_secs_f64();
        let (each, rate) = (seconds * 1e6 / READS as f64, bytes as f64 / seconds / 1e9);
        println!("round {round}: {each:.1} us a mel of {} kB, {rate:.2} GB/s", bytes / READS / 1000);
    }
    Ok(())
}

/// Lengths of the `n`-th record of a shard, 2 to 12 seconds.
fn rows(n: usize) -> [u32; 5] {
    let seconds = 2 + (n * 7 % 11) as u32;
    [seconds * 15, seconds * 86, seconds * 86, seconds * 100, seconds * 24_000]
}

fn write(dir: &Path, records: usize, arrays: bool) -> Outcome<()> {
    let shards = shard_count(records, SHARD_SIZE);
    let seal = Hash::default();
    // Ids are not in the shards of their hashes: records can be read, but not found by id.
    let members = |shard: usize| records / shards as usize + usize::from(shard < records % shards as usize);
    let longest = members(0);
    let mut originals: Vec<Vec<u8>> = vec![Vec::new(); COLUMNS.len()];
    let mut crcs = Vec::with_capacity(longest);
    for n in 0..longest {
        crcs.push(
            COLUMNS
                .iter()
                .zip(rows(n))
                .zip(&mut originals)
                .map(|((column, rows), original)| {
                    if !arrays {
                        return 0;
                    }
                    let start = original.len();
                    original.extend((0..rows as usize * column.row_bytes()).map(|i| (i % 120) as u8));
                    crc32fast::hash(&original[start..])
                })
                .collect::<Vec<u32>>(),
        );
    }

    let columns: Vec<StoredColumn> = COLUMNS.iter().map(StoredColumn::from).collect();
    let mut builder = IndexBuilder::new(columns.clone(), seal, shards);
    for shard in 0..shards as usize {
        builder.shard(&seal, 0);
        for (n, crcs) in crcs.iter().enumerate().take(members(shard)) {
            let id = format!("LJ{shard:05}-{n:04}");
            let speaker = format!("speaker {}", n % 40);
            let language = if n % 3 == 0 { "fa" } else { "en" };
            let entry =
                IndexEntry { id: &id, speaker: &speaker, language, seconds: rows(n)[0] as f32 / 15.0 };
            builder.record(entry, rows(n).into_iter().zip(crcs.iter().copied()))?;
        }
        for (column, original) in columns.iter().zip(&originals).filter(|_| arrays) {
            let file = |shard| dir.join(ShardName::new(shard as u32, shards, &seal).array(&column.name));
            // Two lengths of shard, and a link to the first of each for all the others.
            match (0..shard).find(|&earlier| members(earlier) == members(shard)) {
                Some(earlier) => {
                    let _ = std::fs::remove_file(file(shard));
                    std::fs::hard_link(file(earlier), file(shard))?;
                }
                None => {
                    let length =
                        (0..members(shard)).map(|n| u64::from(rows(n)[position(column)])).sum::<u64>();
                    let mut bytes = array_header(column, length).to_vec();
                    bytes.extend_from_slice(&original[..length as usize * column.row_bytes()]);
                    std::fs::write(file(shard), bytes)?;
                }
            }
        }
    }
    durable::write(&dir.join(INDEX_FILE), &builder.finish()?.to_bytes())?;
    Ok(())
}

fn position(column: &StoredColumn) -> usize {
    COLUMNS.iter().position(|known| column == known).unwrap_or_default()
}

/// CPU time of this thread, on Linux: on a busy machine, wall-clock time is less precise.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok()).unwrap_or(0.0) / 1e6
}

/// Memory of this process, on Linux.
fn resident_kb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
