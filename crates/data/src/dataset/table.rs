//! Tables with a header line: Common Voice's and Coqui's.

use std::borrow::Cow;
use std::path::Path;

use super::audio_files;
use super::metadata::{Entry, Line, Parsed, each_line, name, optional_name};

/// Fields of a line, unquoted.
type Fields<'a> = Vec<Cow<'a, str>>;

/// A table layout: the names of its columns and how a line is split into fields.
pub(super) struct Table {
    /// Separator between columns.
    pub separator: char,
    /// Name of the audio path column.
    pub audio: &'static str,
    /// Name of the transcript column.
    pub text: &'static str,
    /// Names of the speaker column, in order of preference.
    pub speaker: &'static [&'static str],
    /// Names of the language column, in order of preference.
    pub language: &'static [&'static str],
    /// Splits a line into fields, or returns why it cannot be split.
    pub fields: fn(line: &str, separator: char) -> Result<Fields<'_>, String>,
    /// Converts an audio path without its extension to an id.
    pub id: fn(&str) -> String,
    /// Converts a trimmed transcript field to text.
    pub transcript: fn(&str) -> String,
}

/// Indices of the columns in use.
struct Columns {
    audio: usize,
    text: usize,
    speaker: Option<usize>,
    language: Option<usize>,
}

impl Table {
    fn columns(&self, header: &str) -> Option<Columns> {
        let names: Vec<&str> = header.split(self.separator).map(str::trim).collect();
        let at = |wanted: &str| names.iter().position(|&name| name == wanted);
        let first = |wanted: &[&str]| wanted.iter().find_map(|name| at(name));
        Some(Columns {
            audio: at(self.audio)?,
            text: at(self.text)?,
            speaker: first(self.speaker),
            language: first(self.language),
        })
    }

    /// Whether the first line is a header of this layout.
    pub fn fits(&self, head: &[String]) -> bool {
        head.first().is_some_and(|line| self.columns(line).is_some())
    }

    /// Parses every line to an entry or a problem.
    pub fn parse(&self, bytes: &[u8], file: &Path) -> Parsed {
        let mut columns: Option<Columns> = None;
        each_line(bytes, file, |line, number| {
            let Some(columns) = &columns else {
                columns = self.columns(line);
                return match columns {
                    Some(_) => Ok(Line::Header),
                    None => Err(format!(
                        "expected a header with the columns {} and {} above this line",
                        self.audio, self.text
                    )),
                };
            };
            let fields = (self.fields)(line, self.separator)?;
            let field = |at: usize| fields.get(at).map(|field| field.as_ref());
            let (Some(audio), Some(text)) = (field(columns.audio), field(columns.text)) else {
                return Err(format!(
                    "{} column(s), but {} is column {} and {} column {}",
                    fields.len(),
                    self.audio,
                    columns.audio + 1,
                    self.text,
                    columns.text + 1
                ));
            };
            let written = name(self.audio, audio)?;
            let entry = Entry {
                id: (self.id)(audio_files::without_extension(written)),
                audio: Some(written.to_owned()),
                text: (self.transcript)(text.trim()),
                speaker: optional_name(self.speaker[0], columns.speaker.and_then(field))?,
                language: optional_name(self.language[0], columns.language.and_then(field))?,
                seconds: None,
                line: number,
            };
            Ok(Line::Entry(entry, fields.len()))
        })
    }
}
