//! `events.jsonl`: the append-only event log of a run, one JSON object per line.
//!
//! ```text
//! {"time":1763217533.123,"kind":"step","loss":2.5,"step":1200}
//! ```
//!
//! Lines are written to the system immediately, so that they survive `kill -9`, and synced every few seconds, so that a
//! power failure loses no more than those. A resumed run logs the steps since the checkpoint again: for each step, the
//! last line is valid.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::durable::{Appender, Disk, DurableError, fault};

/// Interval between syncs. A sync takes milliseconds; more frequent ones would slow down fast steps.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum line length in bytes. No event is that long, and a damaged file must not fill the memory.
const MAX_LINE: u64 = 16 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since 1970.
    pub time: f64,
    /// Type of the event: `step`, `validation`, `checkpoint`, `stop`.
    pub kind: String,
    /// All other fields.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// An event log, open for writing.
pub struct EventLog {
    file: Appender,
    removed_bytes: u64,
    synced: Instant,
}

impl EventLog {
    /// Opens a log on the default disk, creating it if needed; an incomplete last line is removed.
    pub fn open(path: &Path) -> Result<Self, DurableError> {
        Self::open_on(fault::disk_from_env(), path)
    }

    /// [`Self::open`] on the given disk.
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, DurableError> {
        let (file, removed_bytes) = Appender::open_lines(disk, path)?;
        Ok(EventLog { file, removed_bytes, synced: Instant::now() })
    }

    /// Length of the incomplete line that was removed on opening, in bytes.
    pub fn removed_bytes(&self) -> u64 {
        self.removed_bytes
    }

    /// Appends an event with the current time. `fields` is a struct or a map; NaN and Inf become `null`.
    pub fn append(&mut self, kind: &str, fields: impl Serialize) -> Result<(), DurableError> {
        self.append_at(now(), kind, fields)?;
        if self.synced.elapsed() >= SYNC_INTERVAL { self.sync() } else { Ok(()) }
    }

    /// [`Self::append`], then syncs: for events that must not be lost, such as why a run stopped.
    pub fn append_durably(&mut self, kind: &str, fields: impl Serialize) -> Result<(), DurableError> {
        self.append_at(now(), kind, fields)?;
        self.sync()
    }

    /// Flushes every event to the device.
    pub fn sync(&mut self) -> Result<(), DurableError> {
        self.synced = Instant::now();
        self.file.sync()
    }

    fn append_at(&mut self, time: f64, kind: &str, fields: impl Serialize) -> Result<(), DurableError> {
        let fields = serde_json::to_value(fields).expect("an event consists of numbers, strings and lists");
        let Value::Object(fields) = fields else { panic!("an event is a struct or a map, not {fields}") };
        assert!(
            !fields.contains_key("time") && !fields.contains_key("kind"),
            "`time` and `kind` are reserved"
        );
        // Formatted manually so that the time comes first, for human readers.
        let mut line = format!("{{\"time\":{},\"kind\":{}", Value::from(time), Value::from(kind));
        for (name, value) in &fields {
            line.push_str(&format!(",{}:{value}", Value::from(name.as_str())));
        }
        line.push_str("}\n");
        self.file.append(line.as_bytes())
    }
}

/// Seconds since 1970, to the millisecond.
fn now() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as f64 / 1000.0
}

/// Reads an event log from the start, and then as it grows.
#[derive(Debug)]
pub struct EventReader {
    path: PathBuf,
    position: u64,
    damaged: u64,
}

impl EventReader {
    /// Creates a reader at the start of a log, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        EventReader { path: path.to_owned(), position: 0, damaged: 0 }
    }

    /// Returns the events that were added since the last call. An incomplete last line is left for the next call.
    pub fn read(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        self.read_with(|event| events.push(event))?;
        Ok(events)
    }

    /// [`Self::read`] one by one, for callers that need only a part of the log.
    pub fn read_with(&mut self, mut take: impl FnMut(Event)) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if file.metadata()?.len() < self.position {
            // The file was replaced by another log.
            self.position = 0;
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        // An overlong line is read in pieces, of which only the last one ends with a newline.
        let mut is_continued = false;
        loop {
            line.clear();
            let read = (&mut file).take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
            let ended = line.ends_with(b"\n");
            if !ended && read < MAX_LINE {
                return Ok(());
            }
            self.position += read;
            if ended {
                match serde_json::from_slice(&line) {
                    Ok(event) if !is_continued => take(event),
                    _ => self.damaged += 1,
                }
            }
            is_continued = !ended;
        }
    }

    /// Number of lines so far that are not valid events, as a power failure can leave.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }
}
