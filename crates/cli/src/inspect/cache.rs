//! `myxtts inspect cache`: the content of a cache as a table, or the arrays of one utterance.

use std::path::PathBuf;

use myxtts_data::cache::Store;
use myxtts_data::record::{Dtype, RecordSource};
use myxtts_run::exit::Exit;
use myxtts_train::corpus::read::cache_in;
use serde::Serialize;

use crate::output::{errln, print, print_json, size};

#[derive(clap::Args)]
pub struct Args {
    /// Cache folder, or the corpus folder it belongs to
    dir: PathBuf,
    /// Id of an utterance to show
    utterance: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Overview {
    dir: PathBuf,
    records: usize,
    failures: u32,
    hours: f64,
    speakers: Vec<String>,
    languages: Vec<String>,
    columns: Vec<ColumnView>,
    shards: u32,
    array_bytes: u64,
    index_bytes: usize,
    recipe: String,
    fingerprint: String,
}

#[derive(Serialize)]
struct ColumnView {
    name: &'static str,
    dtype: &'static str,
    width: u32,
    rows: u64,
}

#[derive(Serialize)]
struct RecordView {
    id: String,
    record: usize,
    speaker: String,
    language: String,
    seconds: f32,
    source_bytes: u64,
    source_blake3: String,
    arrays: Vec<ArrayView>,
}

#[derive(Serialize)]
struct ArrayView {
    column: &'static str,
    dtype: &'static str,
    shape: Vec<u32>,
    min: f64,
    max: f64,
    mean: f64,
    file: PathBuf,
    first_row: u32,
    numpy: String,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let dir = cache_in(&args.dir);
    let store = Store::open(&dir)?;
    let Some(id) = &args.utterance else {
        let overview = overview(dir, &store);
        if args.json {
            print_json(&overview)?
        } else {
            print(&overview.table())?
        }
        return Ok(Exit::Done);
    };
    let Some(record) = store.find(id) else { return absent(&store, id) };
    let view = view(&store, record)?;
    if args.json {
        print_json(&view)?
    } else {
        print(&view.table())?
    }
    Ok(Exit::Done)
}

fn absent(store: &Store, id: &str) -> anyhow::Result<Exit> {
    match store.failures()?.iter().find(|failure| failure.id == id) {
        Some(failure) => errln!("{id} could not be prepared: {}", failure.detail),
        None => errln!("error: there is no utterance {id:?} in this cache"),
    }
    Ok(Exit::BadData)
}

fn overview(dir: PathBuf, store: &Store) -> Overview {
    let index = store.index();
    let rows = |column: usize| (0..index.shards()).map(|shard| index.shard(shard).rows[column]).sum();
    let columns = store.columns().iter().enumerate().map(|(at, column)| ColumnView {
        name: column.name,
        dtype: column.dtype.numpy(),
        width: column.width,
        rows: rows(at),
    });
    Overview {
        records: store.len(),
        failures: index.failures(),
        hours: index.total_seconds() / 3600.0,
        speakers: store.speakers().to_vec(),
        languages: store.languages().to_vec(),
        columns: columns.collect(),
        shards: index.shards(),
        array_bytes: store.array_bytes(),
        index_bytes: index.bytes().len(),
        recipe: hex(&index.recipe()),
        fingerprint: hex(&store.fingerprint()),
        dir,
    }
}

impl Overview {
    fn table(&self) -> String {
        let named = |names: &[String]| match names {
            [] => "none".to_owned(),
            names if names.len() <= 8 => format!("{}: {}", names.len(), names.join(", ")),
            names => format!("{}: {}, ...", names.len(), names[..8].join(", ")),
        };
        let mut out = format!(
            "cache        {}\nrecords      {}, {} utterances failed\nhours        {:.2}\nspeakers     {}\n\
             languages    {}\nshards       {}\narrays       {}, index {}\nrecipe       {}\nfingerprint  {}\n",
            self.dir.display(),
            self.records,
            self.failures,
            self.hours,
            named(&self.speakers),
            named(&self.languages),
            self.shards,
            size(self.array_bytes),
            size(self.index_bytes as u64),
            self.recipe,
            self.fingerprint,
        );
        out += &format!("\n{:<18} {:>5} {:>6} {:>14}\n", "column", "type", "width", "rows");
        for column in &self.columns {
            out +=
                &format!("{:<18} {:>5} {:>6} {:>14}\n", column.name, column.dtype, column.width, column.rows);
        }
        out
    }
}

fn view(store: &Store, record: usize) -> anyhow::Result<RecordView> {
    let sealed = store.provenance(record)?;
    let mut arrays = Vec::new();
    for (at, array) in store.array_locations(record).into_iter().enumerate() {
        let mut bytes = vec![0; array.rows as usize * array.column.row_bytes()];
        store.read(record, at, 0, &mut bytes)?;
        let [min, max, mean] = statistics(array.column.dtype, &bytes);
        let end = array.first_row + array.rows;
        let file = std::path::absolute(&array.file).unwrap_or(array.file);
        arrays.push(ArrayView {
            column: array.column.name,
            dtype: array.column.dtype.numpy(),
            shape: if array.column.width == 1 {
                vec![array.rows]
            } else {
                vec![array.rows, array.column.width]
            },
            min,
            max,
            mean,
            numpy: format!(
                "np.load({:?}, mmap_mode=\"r\")[{}:{end}]",
                file.display().to_string(),
                array.first_row
            ),
            file,
            first_row: array.first_row,
        });
    }
    Ok(RecordView {
        id: sealed.id,
        record,
        speaker: sealed.speaker,
        language: sealed.language,
        seconds: sealed.seconds,
        source_bytes: sealed.source.size,
        source_blake3: hex(&sealed.source.hash),
        arrays,
    })
}

impl RecordView {
    fn table(&self) -> String {
        let mut out = format!(
            "utterance    {} (record {})\nspeaker      {}\nlanguage     {}\nseconds      {:.3}\n\
             source       {} bytes, blake3 {}\n",
            self.id,
            self.record,
            self.speaker,
            self.language,
            self.seconds,
            self.source_bytes,
            self.source_blake3
        );
        for array in &self.arrays {
            out += &format!(
                "\n{} {} {:?}: min {:.4}, max {:.4}, mean {:.4}\n  {}\n",
                array.column, array.dtype, array.shape, array.min, array.max, array.mean, array.numpy
            );
        }
        out
    }
}

/// Minimum, maximum and mean; zeros for an empty array.
fn statistics(dtype: Dtype, bytes: &[u8]) -> [f64; 3] {
    let values: Vec<f64> = match dtype {
        Dtype::I16 => bytes.as_chunks().0.iter().map(|b| f64::from(i16::from_le_bytes(*b))).collect(),
        Dtype::I32 => bytes.as_chunks().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))).collect(),
        Dtype::F32 => bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
    };
    if values.is_empty() {
        return [0.0; 3];
    }
    let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(min, max), &v| (min.min(v), max.max(v)));
    [min, max, values.iter().sum::<f64>() / values.len() as f64]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
