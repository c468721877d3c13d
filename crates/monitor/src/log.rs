//! Samples in a file, one a line, only ever added to: CSV or JSON lines by the file's name.
//!
//! A line is handed to the system when it is written, whole or not at all. A file that is there is gone on with: a torn last
//! line is cut off, and a CSV of other columns is refused rather than mixed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use myxtts_run::durable::{Appender, DurableError, fault};

use crate::sample::{Limit, Sample};

/// A header longer than this is none of ours.
const LONGEST_HEADER: u64 = 1 << 20;

/// Why samples cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The name does not say what to write.
    #[error("{} is neither .csv nor .jsonl: end the file's name in one of them", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// There is a file of other columns.
    #[error(
        "{} has other columns (another program's, or of a machine with another number of GPUs): name another file",
        path.display()
    )]
    Columns {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] DurableError),
}

/// A log, to be written.
pub struct Log {
    file: Appender,
    kind: Kind,
    gpus: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Csv,
    Jsonl,
}

impl Log {
    /// Opens a log, made if need be.
    pub fn open(path: &Path) -> Result<Log, LogError> {
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        let kind = match extension.as_ref().and_then(|extension| extension.to_str()) {
            Some("csv") => Kind::Csv,
            Some("jsonl") => Kind::Jsonl,
            _ => return Err(LogError::Kind { path: path.to_owned() }),
        };
        let (file, _) = Appender::open_lines(fault::disk_of_environment(), path)?;
        Ok(Log { file, kind, gpus: None })
    }

    /// Adds a sample.
    pub fn append(&mut self, sample: &Sample) -> Result<(), LogError> {
        let line = match self.kind {
            Kind::Jsonl => serde_json::to_string(sample).expect("a sample is numbers and words"),
            Kind::Csv => {
                self.head(sample)?;
                row(sample)
            }
        };
        Ok(self.file.append(format!("{line}\n").as_bytes())?)
    }

    /// Before the first line, when the number of GPUs is known.
    fn head(&mut self, sample: &Sample) -> Result<(), LogError> {
        let path = || self.file.path().to_owned();
        match self.gpus {
            Some(gpus) if gpus == sample.gpus.len() => return Ok(()),
            Some(_) => return Err(LogError::Columns { path: path() }),
            None => {}
        }
        let header = columns(sample).join(",");
        let mut first = String::new();
        File::open(self.file.path())
            .and_then(|file| BufReader::new(file.take(LONGEST_HEADER)).read_line(&mut first))
            .map_err(|source| LogError::Read { path: path(), source })?;
        match first.trim_end() {
            "" => self.file.append(format!("{header}\n").as_bytes())?,
            found if found == header => {}
            _ => return Err(LogError::Columns { path: path() }),
        }
        self.gpus = Some(sample.gpus.len());
        Ok(())
    }
}

/// Names of the columns, in order.
pub fn columns(sample: &Sample) -> Vec<String> {
    let mut names = vec!["time".to_owned(), "run_stage".to_owned(), "run_step".to_owned()];
    names.extend(sample.quantities().iter().map(|quantity| {
        let of = quantity.gpu.map(|gpu| format!("gpu{gpu}_")).unwrap_or_default();
        format!("{of}{}_{}", quantity.name, quantity.unit.name())
    }));
    for gpu in 0..sample.gpus.len() {
        names.extend([format!("gpu{gpu}_limits"), format!("gpu{gpu}_processes")]);
    }
    names
}

/// What was not found is an empty cell. Limits and processes (`NUMBER:BYTES`) are separated by spaces.
fn row(sample: &Sample) -> String {
    let run = sample.run.as_ref();
    let stage = run.and_then(|run| run.stage.clone()).unwrap_or_default();
    let step = run.and_then(|run| run.step).map(|step| step.to_string()).unwrap_or_default();
    let mut cells = vec![sample.time.to_string(), quoted(&stage), step];
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    cells.extend(sample.quantities().iter().map(|quantity| number(quantity.value)));
    for gpu in &sample.gpus {
        let limits: Vec<String> = gpu.limits.iter().flatten().map(word).collect();
        let memory = |memory: Option<u64>| memory.map(|memory| memory.to_string()).unwrap_or_default();
        let processes: Vec<String> =
            gpu.processes.iter().map(|one| format!("{}:{}", one.pid, memory(one.memory))).collect();
        cells.extend([limits.join(" "), processes.join(" ")]);
    }
    cells.join(",")
}

/// As in JSON, so that both logs say the same.
fn word(limit: &Limit) -> String {
    let value = serde_json::to_value(limit).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " ")),
        false => text.to_owned(),
    }
}
