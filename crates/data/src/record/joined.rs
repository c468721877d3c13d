//! Several sources as one: the records of the first, then those of the next.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Column, RecordError, RecordSource};
use crate::cache::Fingerprint;

/// A source to join to others.
pub struct JoinInput {
    /// Source of the records.
    pub source: Arc<dyn RecordSource>,
    /// Prefix of its ids, before a colon; `None` leaves them unchanged.
    pub label: Option<String>,
    /// Names that mean the same speaker here as in the sources before it.
    pub shared: SharedSpeakers,
}

/// Which speakers of two sources are the same person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedSpeakers {
    /// All speakers with equal names.
    Names,
    /// Only the one of this name. Any other with the name of an earlier speaker is a different person and is renamed.
    Only(Option<String>),
}

/// Why sources cannot be joined.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The sources have different columns.
    #[error(
        "{label} has the columns {found}, the corpora before it {wanted}: prepare both with the same settings"
    )]
    Columns {
        /// Label of the source.
        label: String,
        /// Columns of the source, as a list.
        found: String,
        /// Columns of the first source.
        wanted: String,
    },
    /// No source was given.
    #[error("no corpus was given")]
    Nothing,
}

struct Part {
    source: Arc<dyn RecordSource>,
    label: Option<String>,
    /// Number of its first record.
    first: usize,
    /// Speaker numbers of the joined source, by the source's own numbers.
    speakers: Vec<u32>,
    languages: Vec<u32>,
}

/// Several sources as one.
pub struct JoinedSource {
    parts: Vec<Part>,
    len: usize,
    columns: Vec<Column>,
    speakers: Vec<String>,
    languages: Vec<String>,
    renamed: Vec<(String, String)>,
    fingerprint: [u8; 32],
}

impl JoinedSource {
    /// Joins sources in this order. The records of the first keep their numbers, speakers and languages.
    pub fn new(sources: Vec<JoinInput>) -> Result<JoinedSource, JoinError> {
        let columns = sources.first().ok_or(JoinError::Nothing)?.source.columns().to_vec();
        let mut joined = JoinedSource {
            parts: Vec::new(),
            len: 0,
            columns,
            speakers: Vec::new(),
            languages: Vec::new(),
            renamed: Vec::new(),
            fingerprint: [0; 32],
        };
        let mut fingerprint = Fingerprint::new("joined records").number("sources", sources.len() as u64);
        for JoinInput { source, label, shared } in sources {
            if source.columns() != joined.columns {
                let named =
                    |columns: &[Column]| columns.iter().map(|c| c.name).collect::<Vec<_>>().join(", ");
                return Err(JoinError::Columns {
                    label: label.unwrap_or_default(),
                    found: named(source.columns()),
                    wanted: named(&joined.columns),
                });
            }
            fingerprint = fingerprint.text("label", label.as_deref().unwrap_or_default());
            fingerprint = fingerprint.bytes("source", &source.fingerprint());
            let speakers = joined.add_speakers(&*source, label.as_deref(), &shared);
            let mut languages = Vec::new();
            for code in source.languages() {
                languages.push(number_of(&mut joined.languages, code));
            }
            let first = joined.len;
            joined.len += source.len();
            joined.parts.push(Part { source, label, first, speakers, languages });
        }
        joined.fingerprint = fingerprint.finish();
        Ok(joined)
    }

    /// Returns the renamed speakers: original and new name.
    pub fn renamed(&self) -> &[(String, String)] {
        &self.renamed
    }

    fn add_speakers(
        &mut self,
        source: &dyn RecordSource,
        label: Option<&str>,
        shared: &SharedSpeakers,
    ) -> Vec<u32> {
        let before: HashMap<String, u32> =
            self.speakers.iter().enumerate().map(|(i, name)| (name.clone(), i as u32)).collect();
        let mut numbers = Vec::new();
        for name in source.speakers() {
            let is_same = match shared {
                SharedSpeakers::Names => true,
                SharedSpeakers::Only(only) => only.as_deref() == Some(name),
            };
            match before.get(name) {
                Some(known) if is_same => numbers.push(*known),
                Some(_) => {
                    let mut own = format!("{name} ({})", label.unwrap_or("another"));
                    while self.speakers.contains(&own) {
                        own.push('\'');
                    }
                    self.renamed.push((name.clone(), own.clone()));
                    numbers.push(self.speakers.len() as u32);
                    self.speakers.push(own);
                }
                None => {
                    numbers.push(self.speakers.len() as u32);
                    self.speakers.push(name.clone());
                }
            }
        }
        numbers
    }

    /// Returns the part that holds a record, and its number there.
    fn part(&self, record: usize) -> (&Part, usize) {
        let at = self.parts.partition_point(|part| part.first <= record).saturating_sub(1);
        // Empty parts share their first number with the next part; the last of them is the one that has records.
        (&self.parts[at], record - self.parts[at].first)
    }
}

fn number_of(names: &mut Vec<String>, name: &str) -> u32 {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    }) as u32
}

impl RecordSource for JoinedSource {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn len(&self) -> usize {
        self.len
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        let (part, record) = self.part(record);
        part.source.rows(record, column)
    }

    fn speaker(&self, record: usize) -> u32 {
        let (part, record) = self.part(record);
        part.speakers[part.source.speaker(record) as usize]
    }

    fn language(&self, record: usize) -> u32 {
        let (part, record) = self.part(record);
        part.languages[part.source.language(record) as usize]
    }

    fn speakers(&self) -> &[String] {
        &self.speakers
    }

    fn languages(&self) -> &[String] {
        &self.languages
    }

    fn id(&self, record: usize) -> String {
        let (part, record) = self.part(record);
        joined_id(part.label.as_deref(), &part.source.id(record))
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let (part, record) = self.part(record);
        part.source.read(record, column, first_row, out)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}

/// Returns the id of a record whose source has a label.
pub fn joined_id(label: Option<&str>, id: &str) -> String {
    match label {
        Some(label) => format!("{label}:{id}"),
        None => id.to_owned(),
    }
}
