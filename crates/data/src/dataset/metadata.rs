//! What the line-based layouts share: bytes to numbered lines, lines to entries or problems.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use myxtts_run::regular_file;

use super::{DatasetError, Draft};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

/// The longest line that is read, in bytes. A transcript has hundreds; a longer line is a lost line
/// break or no metadata at all.
pub const LONGEST_LINE: usize = 64 * 1024;

/// The largest metadata file that is read: Common Voice's largest table is a third of it.
const LARGEST_FILE: u64 = 2 << 30;

/// What one line declares, before anything is looked up on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its id; unique only once the whole corpus is known.
    pub id: String,
    /// The sound file as written; `None` where the layout finds it by id.
    pub audio: Option<String>,
    /// The transcript, trimmed; may be empty.
    pub text: String,
    /// The speaker, where one is named.
    pub speaker: Option<String>,
    /// The language as written, where one is named.
    pub language: Option<String>,
    /// The duration in seconds, where one is declared.
    pub seconds: Option<f64>,
    /// The line, counted from 1.
    pub line: u64,
}

/// What became of a file: `lines == entries.len() + problems.len() + blank + header`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Lines in the file.
    pub lines: u64,
    /// Lines with nothing on them.
    pub blank: u64,
    /// Lines that name the columns: 0 or 1.
    pub header: u64,
    /// Columns of the widest entry.
    pub columns: usize,
    /// Lines that declare an utterance.
    pub entries: Vec<Entry>,
    /// Lines that do not, and why.
    pub problems: Vec<Problem>,
}

/// What a layout's parser makes of one line.
pub(super) enum Line {
    /// The names of the columns.
    Header,
    /// An utterance, from a line of so many columns.
    Entry(Entry, usize),
}

/// Runs `take` over every line that is readable text; its error becomes that line's problem.
pub(super) fn each_line(
    bytes: &[u8],
    file: &Path,
    mut take: impl FnMut(&str, u64) -> Result<Line, String>,
) -> Parsed {
    let mut parsed = Parsed::default();
    for (number, offset, line) in lines(bytes) {
        parsed.lines += 1;
        let taken = match text_of(line, offset) {
            Ok(text) if text.trim().is_empty() => {
                parsed.blank += 1;
                continue;
            }
            Ok(text) => take(text, number),
            Err(detail) => Err(detail),
        };
        match taken {
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

/// Lines with their number from 1 and the offset of their first byte; no BOM, no line ends.
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

/// A line as text, or what keeps it from being read.
fn text_of(line: &[u8], offset: usize) -> Result<&str, String> {
    if line.len() > LONGEST_LINE {
        return Err(format!(
            "the line has {} bytes, more than the {LONGEST_LINE} that are read; is a line break missing?",
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

/// A line that is no entry.
pub(super) fn malformed(file: &Path, line: Option<u64>, detail: String) -> Problem {
    Problem {
        kind: ProblemKind::MalformedLine,
        severity: Severity::Error,
        id: None,
        origin: Origin { file: file.to_owned(), line },
        detail,
    }
}

/// Ids, paths and names reach terminals, file names and logs: they are one line of printable text.
pub(super) fn name<'a>(what: &str, value: &'a str) -> Result<&'a str, String> {
    let value = value.trim();
    if value.is_empty() {
        return Err(format!("the {what} is empty"));
    }
    match value.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("the {what} holds the control character U+{:04X}; remove it", c as u32)),
        None => Ok(value),
    }
}

/// The same for a column that may be left out.
pub(super) fn optional_name(what: &str, value: Option<&str>) -> Result<Option<String>, String> {
    match value.map(str::trim) {
        None | Some("") => Ok(None),
        Some(value) => name(what, value).map(|value| Some(value.to_owned())),
    }
}

/// Fields of a line in which a quoted field may hold the separator and `""` means one quote.
///
/// A quote that is still open at the end of the line is an error of that line alone: a stray quote
/// must not swallow the rest of the file, as it does with readers that allow line breaks in fields.
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
                    "column {} opens a quote that this line does not close; double every quote inside it",
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
        // What stands between the closing quote and the separator belongs to the field, as elsewhere.
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

/// A whole metadata file.
pub(super) fn load(file: &Path) -> Result<Vec<u8>, DatasetError> {
    let failed = |source| DatasetError::Io { path: file.to_owned(), source };
    let mut open = regular_file::open(file).map_err(failed)?;
    let bytes = open.metadata().map_err(failed)?.len();
    if bytes > LARGEST_FILE {
        return Err(DatasetError::TooLarge { file: file.to_owned(), bytes, limit: LARGEST_FILE });
    }
    let mut content = Vec::with_capacity(bytes as usize);
    // A growing file has no honest size.
    open.by_ref().take(LARGEST_FILE).read_to_end(&mut content).map_err(failed)?;
    let encoding = match content.get(..2) {
        Some(b"\xff\xfe") => "UTF-16LE",
        Some(b"\xfe\xff") => "UTF-16BE",
        _ => return Ok(content),
    };
    Err(DatasetError::Encoding { file: file.to_owned(), encoding })
}

/// The utterances that metadata files declare, with their sounds looked up.
#[derive(Default)]
pub(super) struct Drafts {
    pub drafts: Vec<Draft>,
    pub problems: Vec<Problem>,
    /// Columns of the widest entry.
    pub columns: usize,
    /// Drafts whose audio file was found.
    pub found: u64,
}

/// Reads metadata files. `header` names the columns of a layout that cannot be read without a header; `locate` gives the
/// audio file of an entry and whether it is there, and may change the entry's id.
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

/// What to say of a corpus with several metadata files.
pub(super) fn one_corpus_note(files: &[PathBuf]) -> Vec<String> {
    match files.len() {
        0 | 1 => Vec::new(),
        _ => vec!["all these files are read as one corpus; name one of them to read it alone".to_owned()],
    }
}

/// The first lines of a file, for telling layouts apart. Unreadable files have none.
pub(super) fn head(file: &Path) -> Vec<String> {
    let mut bytes = Vec::new();
    let Ok(open) = regular_file::open(file) else { return Vec::new() };
    if open.take(LONGEST_LINE as u64).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    // The last line may be cut off: it only counts where it is the only one.
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(bytes.len(), |end| end + 1);
    lines(&bytes[..whole])
        .map(|(_, _, line)| String::from_utf8_lossy(line).into_owned())
        .filter(|line| !line.trim().is_empty())
        .take(100)
        .collect()
}

/// `a`, `a and b`, `a, b and c`: file names for a sentence.
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
    fn lines_know_their_number_and_offset() {
        let found: Vec<_> = lines(b"\xef\xbb\xbfa\r\n\nbc").collect();
        assert_eq!(found, [(1, 3, &b"a"[..]), (2, 6, b""), (3, 7, b"bc")]);
        assert_eq!(lines(b"").count(), 0);
        assert_eq!(lines(b"a\n").count(), 1, "a line end at the end of the file starts no line");
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
