//! `events.jsonl`: what happened in a run, one JSON object a line, only ever added to.
//!
//! ```text
//! {"time":1763217533.123,"kind":"step","loss":2.5,"step":1200}
//! ```
//!
//! A line is handed to the system when it is written, so that it survives `kill -9`; it is brought to the
//! device every few seconds, so that a power cut costs no more than those. After a resume the log tells
//! the steps since the checkpoint a second time: for each step, the last line holds.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::durable::{Appender, Disk, DurableError, fault};

/// Time between two waits for the device. A wait takes milliseconds; more often would be felt in fast steps.
const SYNC_AFTER: Duration = Duration::from_secs(5);
/// A line past this is no event: nothing that long is written, and it must not fill the memory.
const MAX_LINE: u64 = 16 << 20;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since 1970.
    pub time: f64,
    /// What it was: `step`, `validation`, `checkpoint`, `stop`.
    pub kind: String,
    /// The rest.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// The log, to be written.
pub struct EventLog {
    file: Appender,
    cut: u64,
    synced: Instant,
}

impl EventLog {
    /// Opens a log, made if need be, on the disk of the environment; a torn last line is cut off.
    pub fn open(path: &Path) -> Result<Self, DurableError> {
        Self::open_on(fault::disk_of_environment(), path)
    }

    /// [`Self::open`] on a disk of the caller's choice.
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, DurableError> {
        let (file, cut) = Appender::open_lines(disk, path)?;
        Ok(EventLog { file, cut, synced: Instant::now() })
    }

    /// Bytes of the torn line that was cut off on opening.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Adds an event that happens now. `fields` is a struct or a map, and numbers that are none become
    /// `null`.
    pub fn append(&mut self, kind: &str, fields: impl Serialize) -> Result<(), DurableError> {
        self.append_at(now(), kind, fields)?;
        if self.synced.elapsed() >= SYNC_AFTER { self.sync() } else { Ok(()) }
    }

    /// [`Self::append`], and waits until it is on the device: for what must not be unsaid, such as why a
    /// run stopped.
    pub fn append_durably(&mut self, kind: &str, fields: impl Serialize) -> Result<(), DurableError> {
        self.append_at(now(), kind, fields)?;
        self.sync()
    }

    /// Waits until every event is on the device.
    pub fn sync(&mut self) -> Result<(), DurableError> {
        self.synced = Instant::now();
        self.file.sync()
    }

    fn append_at(&mut self, time: f64, kind: &str, fields: impl Serialize) -> Result<(), DurableError> {
        let fields = serde_json::to_value(fields).expect("an event is made of numbers, words and lists");
        let Value::Object(fields) = fields else { panic!("an event is a struct or a map, not {fields}") };
        assert!(!fields.contains_key("time") && !fields.contains_key("kind"), "an event has these already");
        // By hand, so that the time comes first: people read this, too.
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

/// A log, read from its beginning and then on as it grows.
#[derive(Debug)]
pub struct EventReader {
    path: PathBuf,
    position: u64,
    damaged: u64,
}

impl EventReader {
    /// A reader at the beginning of a log, which need not be there yet.
    pub fn new(path: &Path) -> Self {
        EventReader { path: path.to_owned(), position: 0, damaged: 0 }
    }

    /// The events that were added since the last call. A last line without its end is not there yet.
    pub fn read(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        self.read_with(|event| events.push(event))?;
        Ok(events)
    }

    /// [`Self::read`] one by one, for a log of which only a part is wanted.
    pub fn read_with(&mut self, mut take: impl FnMut(Event)) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if file.metadata()?.len() < self.position {
            // Another log under the same name.
            self.position = 0;
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        // A line too long is read in pieces, of which only the last ends.
        let mut torn = false;
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
                    Ok(event) if !torn => take(event),
                    _ => self.damaged += 1,
                }
            }
            torn = !ended;
        }
    }

    /// Lines so far that are no events; a disk that lost power can leave such.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }
}
