//! Code shared by the line-based layouts: splits bytes into numbered lines and lines into entries or problems.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use myxtts_run::regular_file;

use super::audio_files;
use super::detect::Location;
use super::{DatasetError, Draft, RawCorpus};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

/// Maximum line length in bytes. A transcript has hundreds; a longer line has lost a line break or is not metadata.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Maximum metadata file size in bytes: Common Voice's largest table is a third of it.
const MAX_FILE_BYTES: u64 = 2 << 30;

/// The declaration in one line, before any lookup on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Utterance id; not yet checked for duplicates.
    pub id: String,
    /// Audio file as written; `None` if the layout finds it by id.
    pub audio: Option<String>,
    /// Transcript, trimmed; may be empty.
    pub text: String,
    /// Speaker, if named.
    pub speaker: Option<String>,
    /// Language as written, if named.
    pub language: Option<String>,
    /// Duration in seconds, if declared.
    pub seconds: Option<f64>,
    /// Line number, counted from 1.
    pub line: u64,
}

/// A parsed file. Invariant: `lines == entries.len() + problems.len() + blank + header`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Number of lines in the file.
    pub lines: u64,
    /// Number of blank lines.
    pub blank: u64,
    /// Number of header lines: 0 or 1.
    pub header: u64,
    /// Number of columns of the widest entry.
    pub columns: usize,
    /// Lines that declare an utterance.
    pub entries: Vec<Entry>,
    /// Lines that are malformed, with the reason.
    pub problems: Vec<Problem>,
}

/// A line as classified by a layout's parser.
pub(super) enum Line {
    /// Column names.
    Header,
    /// An utterance and the number of columns of its line.
    Entry(Entry, usize),
}

/// Calls `parse_line` for every line that is valid text; an error becomes that line's problem.
pub(super) fn each_line(
    bytes: &[u8],
    file: &Path,
    mut parse_line: impl FnMut(&str, u64) -> Result<Line, String>,
) -> Parsed {
    let mut parsed = Parsed::default();
    for (number, offset, line) in lines(bytes) {
        parsed.lines += 1;
        let outcome = match decode_line(line, offset) {
            Ok(text) if text.trim().is_empty() => {
                parsed.blank += 1;
                continue;
            }
            Ok(text) => parse_line(text, number),
            Err(detail) => Err(detail),
        };
        match outcome {
            Ok(Line::Header) => parsed.header += 1,
            Ok(Line::Entry(entry, columns)) => {
                parsed.columns = parsed.columns.max(columns);
                parsed.entries.push(entry);
            }
            Err(detail) => parsed.problems.push(malformed(file, Some(number), detail)),
        }
    }
    parsed
}

/// Yields line number from 1, offset of the first byte and content, without BOM and line endings.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let start = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let mut offset = start;
    let mut number = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|&b| b == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        let here = offset;
        offset += line.len() + 1;
        number += 1;
        Some((number, here, line.strip_suffix(b"\r").unwrap_or(line)))
    })
}

/// Decodes a line as text, or returns why it cannot be read.
fn decode_line(line: &[u8], offset: usize) -> Result<&str, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!(
            "the line has {} bytes, over the limit of {MAX_LINE_BYTES}; is a line break missing?",
            line.len()
        ));
    }
    std::str::from_utf8(line).map_err(|error| {
        let column = error.valid_up_to();
        format!(
            "byte 0x{:02x} at offset {} (byte {} of the line) is not UTF-8; save the file as UTF-8",
            line[column],
            offset + column,
            column + 1
        )
    })
}

/// Returns the problem for a malformed line.
pub(super) fn malformed(file: &Path, line: Option<u64>, detail: String) -> Problem {
    Problem {
        kind: ProblemKind::MalformedLine,
        severity: Severity::Error,
        id: None,
        origin: Origin { file: file.to_owned(), line },
        detail,
    }
}

/// Validates an id, path or name: one line of printable text, because it reaches terminals, file names and logs.
pub(super) fn name<'a>(what: &str, value: &'a str) -> Result<&'a str, String> {
    let value = value.trim();
    if value.is_empty() {
        return Err(format!("the {what} is empty"));
    }
    match value.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("the {what} contains the control character U+{:04X}; remove it", c as u32)),
        None => Ok(value),
    }
}

/// Like [`name`], for an optional column.
pub(super) fn optional_name(what: &str, value: Option<&str>) -> Result<Option<String>, String> {
    match value.map(str::trim) {
        None | Some("") => Ok(None),
        Some(value) => name(what, value).map(|value| Some(value.to_owned())),
    }
}

/// Splits a line in which a quoted field may contain the separator and `""` means one quote.
///
/// A quote still open at the end of the line is an error of that line alone: a stray quote must not swallow the rest of the
/// file, as it does with readers that allow line breaks in fields.
pub(super) fn quoted_fields(line: &str, separator: char) -> Result<Vec<Cow<'_, str>>, String> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let Some(inside) = rest.strip_prefix('"') else {
            match rest.split_once(separator) {
                Some((field, after)) => {
                    fields.push(Cow::Borrowed(field));
                    rest = after;
                    continue;
                }
                None => {
                    fields.push(Cow::Borrowed(rest));
                    return Ok(fields);
                }
            }
        };
        let mut field = String::new();
        let mut after = inside;
        loop {
            let Some((part, tail)) = after.split_once('"') else {
                return Err(format!(
                    "column {} opens a quote that this line does not close; double every quote inside the field",
                    fields.len() + 1
                ));
            };
            field.push_str(part);
            match tail.strip_prefix('"') {
                Some(tail) => {
                    field.push('"');
                    after = tail;
                }
                None => {
                    after = tail;
                    break;
                }
            }
        }
        // Text between the closing quote and the separator belongs to the field, as in other CSV readers.
        match after.split_once(separator) {
            Some((tail, next)) => {
                field.push_str(tail);
                fields.push(Cow::Owned(field));
                rest = next;
            }
            None => {
                field.push_str(after);
                fields.push(Cow::Owned(field));
                return Ok(fields);
            }
        }
    }
}

/// Reads a whole metadata file.
pub(super) fn load(file: &Path) -> Result<Vec<u8>, DatasetError> {
    let failed = |source| DatasetError::Io { path: file.to_owned(), source };
    let mut open = regular_file::open(file).map_err(failed)?;
    let bytes = open.metadata().map_err(failed)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(DatasetError::TooLarge { file: file.to_owned(), bytes, limit: MAX_FILE_BYTES });
    }
    let mut content = Vec::with_capacity(bytes as usize);
    // The file may grow after its size was read.
    open.by_ref().take(MAX_FILE_BYTES).read_to_end(&mut content).map_err(failed)?;
    let encoding = match content.get(..2) {
        Some(b"\xff\xfe") => "UTF-16LE",
        Some(b"\xfe\xff") => "UTF-16BE",
        _ => return Ok(content),
    };
    Err(DatasetError::Encoding { file: file.to_owned(), encoding })
}

/// Utterances declared by metadata files, with their audio paths resolved.
#[derive(Default)]
pub(super) struct Drafts {
    pub drafts: Vec<Draft>,
    pub problems: Vec<Problem>,
    /// Number of columns of the widest entry.
    pub columns: usize,
    /// Number of drafts whose audio file exists.
    pub found: u64,
}

/// Reads metadata files. `header` names the required columns of a layout that needs a header; `locate` returns the audio
/// file of an entry and whether it exists, and may change the entry's id.
pub(super) fn read_files(
    files: &[PathBuf],
    parse: fn(&[u8], &Path) -> Parsed,
    header: Option<&'static str>,
    mut locate: impl FnMut(&mut Entry) -> (PathBuf, bool),
) -> Result<Drafts, DatasetError> {
    let mut all = Drafts::default();
    for file in files {
        let parsed = parse(&load(file)?, file);
        if let (Some(wanted), 0) = (header, parsed.header) {
            let found = head(file).into_iter().next().unwrap_or_default();
            return Err(DatasetError::NoHeader { file: file.clone(), wanted, found });
        }
        all.columns = all.columns.max(parsed.columns);
        all.problems.extend(parsed.problems);
        for mut entry in parsed.entries {
            let (audio, found) = locate(&mut entry);
            all.found += u64::from(found);
            all.drafts.push(Draft {
                id: entry.id,
                audio,
                text: entry.text,
                speaker: entry.speaker,
                language: entry.language,
                seconds: entry.seconds,
                origin: Origin { file: file.clone(), line: Some(entry.line) },
            });
        }
    }
    Ok(all)
}

/// Reads metadata files whose entries name audio files relative to one of `bases`; `content` describes the files.
pub(super) fn read_listed(
    location: &Location,
    parse: fn(&[u8], &Path) -> Parsed,
    header: Option<&'static str>,
    bases: &[PathBuf],
    content: &str,
) -> Result<RawCorpus, DatasetError> {
    let Drafts { drafts, problems, found, .. } = read_files(&location.files, parse, header, |entry| {
        audio_files::resolve_entry(bases, &location.root, entry)
    })?;
    let (files, count) = (names(&location.files), drafts.len());
    let why = format!("{files} {content}, {found} of {count} audio files found");
    Ok(RawCorpus { why, notes: one_corpus_note(&location.files), drafts, problems })
}

/// Note for a corpus with several metadata files.
fn one_corpus_note(files: &[PathBuf]) -> Vec<String> {
    match files.len() {
        0 | 1 => Vec::new(),
        _ => vec!["these files are read as one corpus; pass a single file to read only that one".to_owned()],
    }
}

/// The first lines of a file, for layout detection. Empty for unreadable files.
pub(super) fn head(file: &Path) -> Vec<String> {
    let mut bytes = Vec::new();
    let Ok(open) = regular_file::open(file) else { return Vec::new() };
    if open.take(MAX_LINE_BYTES as u64).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    // The last line may be cut off, so it is used only if it is the only one.
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(bytes.len(), |end| end + 1);
    lines(&bytes[..whole])
        .map(|(_, _, line)| String::from_utf8_lossy(line).into_owned())
        .filter(|line| !line.trim().is_empty())
        .take(100)
        .collect()
}

/// Joins file names for a sentence: `a`, `a and b`, `a, b and c`.
pub(super) fn names(files: &[PathBuf]) -> String {
    let names: Vec<_> = files
        .iter()
        .map(|file| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned())
        .collect();
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_number_and_offset() {
        let found: Vec<_> = lines(b"\xef\xbb\xbfa\r\n\nbc").collect();
        assert_eq!(found, [(1, 3, &b"a"[..]), (2, 6, b""), (3, 7, b"bc")]);
        assert_eq!(lines(b"").count(), 0);
        assert_eq!(lines(b"a\n").count(), 1, "a trailing line break does not start another line");
    }

    #[test]
    fn quoted_fields_follow_the_csv_rules_within_a_line() {
        let fields = |line| quoted_fields(line, '|').map(|f| f.join("~"));
        assert_eq!(fields("a|b|c").unwrap(), "a~b~c");
        assert_eq!(fields("a||").unwrap(), "a~~");
        assert_eq!(fields(r#"a|"he said ""no"" | left"|c"#).unwrap(), r#"a~he said "no" | left~c"#);
        assert_eq!(fields(r#"a|5" pipe|c"#).unwrap(), r#"a~5" pipe~c"#);
        assert!(fields(r#"a|"open|c"#).unwrap_err().contains("column 2"));
    }

    #[test]
    fn a_name_is_one_line_of_printable_text() {
        assert_eq!(name("id", " a b ").unwrap(), "a b");
        assert!(name("id", " ").unwrap_err().contains("empty"));
        assert!(name("path", "a\0b").unwrap_err().contains("U+0000"));
        assert!(name("id", "\u{1b}[2J").unwrap_err().contains("U+001B"));
    }
}
