//! Append-only log of samples, one per line: CSV or JSON lines, chosen by the file extension.
//!
//! Lines are written atomically. An existing file is continued: an incomplete last line is removed, and a CSV file with
//! other columns is refused.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use myxtts_run::durable::{Appender, DurableError, fault};

use crate::sample::{ClockLimit, Sample};

/// Maximum length of a CSV header in bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Why samples cannot be logged.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file extension is unknown.
    #[error("{} must end in .csv or .jsonl", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The file exists with other columns.
    #[error(
        "{} has other columns (written by another program, or with another number of GPUs): choose another file",
        path.display()
    )]
    Columns {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] DurableError),
}

/// A log, open for writing.
pub struct SampleLog {
    file: Appender,
    format: Format,
    gpus: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    Jsonl,
}

impl SampleLog {
    /// Opens a log, creating it if needed.
    pub fn open(path: &Path) -> Result<SampleLog, LogError> {
        let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
        let format = match extension.as_ref().and_then(|extension| extension.to_str()) {
            Some("csv") => Format::Csv,
            Some("jsonl") => Format::Jsonl,
            _ => return Err(LogError::Extension { path: path.to_owned() }),
        };
        let (file, _) = Appender::open_lines(fault::disk_from_env(), path)?;
        Ok(SampleLog { file, format, gpus: None })
    }

    /// Adds a sample.
    pub fn append(&mut self, sample: &Sample) -> Result<(), LogError> {
        let line = match self.format {
            Format::Jsonl => serde_json::to_string(sample).expect("a sample consists of numbers and strings"),
            Format::Csv => {
                self.ensure_header(sample)?;
                row(sample)
            }
        };
        Ok(self.file.append(format!("{line}\n").as_bytes())?)
    }

    /// Writes or checks the header before the first line, when the number of GPUs is known.
    fn ensure_header(&mut self, sample: &Sample) -> Result<(), LogError> {
        let path = || self.file.path().to_owned();
        match self.gpus {
            Some(gpus) if gpus == sample.gpus.len() => return Ok(()),
            Some(_) => return Err(LogError::Columns { path: path() }),
            None => {}
        }
        let header = columns(sample).join(",");
        let mut first = String::new();
        File::open(self.file.path())
            .and_then(|file| BufReader::new(file.take(MAX_HEADER_BYTES)).read_line(&mut first))
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

/// Column names, in order.
pub fn columns(sample: &Sample) -> Vec<String> {
    let mut names = vec!["time".to_owned(), "run_stage".to_owned(), "run_step".to_owned()];
    names.extend(sample.quantities().iter().map(|quantity| {
        let prefix = quantity.gpu.map(|gpu| format!("gpu{gpu}_")).unwrap_or_default();
        format!("{prefix}{}_{}", quantity.name, quantity.unit.name())
    }));
    for gpu in 0..sample.gpus.len() {
        names.extend([format!("gpu{gpu}_limits"), format!("gpu{gpu}_processes")]);
    }
    names
}

/// Formats a CSV row. Unknown values are empty; limits and processes (`PID:BYTES`) are separated by spaces.
fn row(sample: &Sample) -> String {
    let run = sample.run.as_ref();
    let stage = run.and_then(|run| run.stage.clone()).unwrap_or_default();
    let step = run.and_then(|run| run.step).map(|step| step.to_string()).unwrap_or_default();
    let mut cells = vec![sample.time.to_string(), quoted(&stage), step];
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    cells.extend(sample.quantities().iter().map(|quantity| number(quantity.value)));
    for gpu in &sample.gpus {
        let limits: Vec<String> = gpu.limits.iter().flatten().map(limit_name).collect();
        let memory = |memory: Option<u64>| memory.map(|memory| memory.to_string()).unwrap_or_default();
        let processes: Vec<String> =
            gpu.processes.iter().map(|one| format!("{}:{}", one.pid, memory(one.memory))).collect();
        cells.extend([limits.join(" "), processes.join(" ")]);
    }
    cells.join(",")
}

/// Name of a limit as in JSON, so that both formats agree.
fn limit_name(limit: &ClockLimit) -> String {
    let value = serde_json::to_value(limit).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " ")),
        false => text.to_owned(),
    }
}
