//! A list of texts: sentences to speak, or recordings with their transcripts.
//!
//! | line | meaning |
//! |---|---|
//! | `id\|text` | a text with an id, which becomes a file name |
//! | `id\|text\|reference` | the same with a voice reference; a third column that is not an audio file (LJSpeech's normalised text) is ignored |
//! | `text` | a text without a bar; its id is its line number, `0001` |
//! | `# ...` | a comment; empty lines are skipped too |
//!
//! Paths are relative to the list's folder. The recording of a text is `ID.*` in that folder or in its `wavs/`.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use myxtts_run::exit::Exit;
use myxtts_run::regular_file;

use super::audio_files::{AudioIndex, rank};
use super::metadata::MAX_LINE_BYTES;

/// Maximum size of a list in bytes.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// Maximum length of an id in bytes: with an extension it must be a valid file name.
const MAX_ID_BYTES: usize = 200;

/// One text of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// Unique in the list and valid as a file name.
    pub id: String,
    /// The text to speak, or the transcript of the recording.
    pub text: String,
    /// Recording of the voice to clone, if the line names one.
    pub reference: Option<PathBuf>,
    /// Recording of this text, if one was found.
    pub recording: Option<PathBuf>,
    /// Line number, counted from 1.
    pub line: usize,
}

/// Errors when reading a list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The file cannot be read.
    #[error("reading {path}: {source}", path = path.display())]
    Io {
        /// The list.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The file is not a list of texts.
    #[error("{path} is not a list of texts: {what}", path = path.display())]
    NotAList {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        what: String,
    },
    /// One line is invalid.
    #[error("{path}, line {line}: {what}", path = path.display())]
    Line {
        /// The list.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong and how to fix it.
        what: String,
    },
}

impl ListError {
    /// The exit code a command ends with.
    pub fn exit(&self) -> Exit {
        match self {
            ListError::Io { .. } => Exit::Io,
            ListError::NotAList { .. } | ListError::Line { .. } => Exit::BadData,
        }
    }
}

/// Reads a list. Recordings are searched in `recordings` first, then in the list's own folder.
pub fn read_list(path: &Path, recordings: Option<&Path>) -> Result<Vec<ListEntry>, ListError> {
    let io = |source| ListError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = regular_file::open(path).map_err(io)?;
    file.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folders: Vec<PathBuf> =
        recordings.map(Path::to_owned).into_iter().chain([here.to_owned(), here.join("wavs")]).collect();
    let audio_index = AudioIndex::scan(&folders);
    let mut list = parse(&bytes, path)?;
    for entry in &mut list {
        if let Some(reference) = entry.reference.take() {
            let found = folder.join(&reference);
            entry.reference = match found.is_file() {
                true => Some(found),
                // A third column with other text is ignored; a missing audio file is an error.
                false if rank(&reference).is_none() || reference.to_string_lossy().contains(' ') => None,
                false => {
                    let what = format!(
                        "the recording {} does not exist; paths are relative to the list's folder",
                        found.display()
                    );
                    return Err(ListError::Line { path: path.to_owned(), line: entry.line, what });
                }
            };
        }
        entry.recording = audio_index.get(&entry.id).cloned();
    }
    Ok(list)
}

/// Parses a list without touching the disk; the third column is returned as a path, unchecked.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Vec<ListEntry>, ListError> {
    let not_a_list = |what: String| ListError::NotAList { path: path.to_owned(), what };
    if bytes.len() as u64 > MAX_LIST_BYTES {
        return Err(not_a_list(format!("it is larger than {} MiB; split it", MAX_LIST_BYTES >> 20)));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(not_a_list("it is UTF-16; save it as UTF-8".to_owned()));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        not_a_list(format!("line {line} is not UTF-8; save the file as UTF-8"))
    })?;
    let mut first: HashMap<String, usize> = HashMap::new();
    let mut list = Vec::new();
    for (number, line) in (1..).zip(text.split('\n')) {
        let invalid = |what: String| ListError::Line { path: path.to_owned(), line: number, what };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(invalid(format!(
                "the line is longer than {MAX_LINE_BYTES} bytes; is a line break missing?"
            )));
        }
        let mut fields = line.split('|').map(str::trim);
        let (id, text, reference) = match (fields.next(), fields.next()) {
            (Some(id), Some(text)) => (id.to_owned(), text, fields.next()),
            _ => (format!("{number:04}"), line, None),
        };
        check_file_name(&id).map_err(invalid)?;
        if text.is_empty() {
            return Err(invalid(format!("{id} has no text; write `id|text`")));
        }
        if let Some(line) = first.insert(id.clone(), number) {
            return Err(invalid(format!("the id {id} is already used in line {line}; choose another id")));
        }
        let reference = reference.filter(|field| !field.is_empty()).map(PathBuf::from);
        list.push(ListEntry { id, text: text.to_owned(), reference, recording: None, line: number });
    }
    if list.is_empty() {
        return Err(not_a_list("it has no line with a text; write one `id|text` per line".to_owned()));
    }
    Ok(list)
}

/// Checks that `ID.wav` names a file inside one folder.
fn check_file_name(id: &str) -> Result<(), String> {
    let forbidden = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    let shown: String = id.chars().take(60).flat_map(char::escape_default).collect();
    if id.is_empty() {
        return Err("the id before the first bar is empty; write `id|text`".to_owned());
    }
    if id.len() > MAX_ID_BYTES {
        return Err(format!(
            "the id {shown}... is longer than {MAX_ID_BYTES} bytes and cannot be a file name"
        ));
    }
    if id.starts_with('.') || id.contains(forbidden) {
        return Err(format!(
            "the id {shown} cannot be a file name; use letters, digits, `-`, `_` and dots (not as the first character)"
        ));
    }
    Ok(())
}

/// Whether the path has the extension of an audio file.
pub fn is_audio_file(path: &Path) -> bool {
    rank(path).is_some()
}

/// Reads the transcript next to an audio file: the same name with `.txt` or `.lab`.
pub fn adjacent_transcript(audio: &Path) -> Option<String> {
    ["txt", "lab"].iter().find_map(|extension| {
        let mut bytes = Vec::new();
        let file = regular_file::open(&audio.with_extension(extension)).ok()?;
        file.take(MAX_LINE_BYTES as u64).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let joined: Vec<&str> = text.split_whitespace().collect();
        Some(joined.join(" ")).filter(|text| !text.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<Vec<ListEntry>, String> {
        parse(text.as_bytes(), Path::new("list")).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_texts_with_or_without_ids() {
        let list =
            parsed("\u{feff}# a comment\r\n a-1 | Hello. | wavs/x.wav \r\n\r\nJust a text.\nb|x||more\n")
                .unwrap();
        let short: Vec<_> = list.iter().map(|one| (one.id.as_str(), one.text.as_str(), one.line)).collect();
        assert_eq!(short, [("a-1", "Hello.", 2), ("0004", "Just a text.", 4), ("b", "x", 5)]);
        assert_eq!(list[0].reference.as_deref(), Some(Path::new("wavs/x.wav")));
        assert_eq!(list[2].reference, None);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, message) in [
            ("", "no line with a text"),
            ("# only\n", "no line with a text"),
            ("a|", "line 1: a has no text"),
            ("|text", "line 1: the id before the first bar is empty"),
            ("ok|x\n..|text", "line 2: the id .. cannot be a file name"),
            ("a/b|text", "a/b cannot be a file name"),
            ("a\u{1b}[2J|text", "\\u{1b}[2J cannot be a file name"),
            ("a|x\n0003|y\nplain", "the id 0003 is already used in line 2"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(message), "{text:?}: {error}");
        }
        let long = parsed(&format!("{}|x", "i".repeat(300))).unwrap_err();
        assert!(long.contains("longer than 200 bytes") && long.len() < 200, "{long}");
        assert!(parse(b"\xff\xfea", Path::new("list")).unwrap_err().to_string().contains("UTF-16"));
    }

    proptest! {
        #[test]
        fn ids_stay_in_their_folder(bytes in prop::collection::vec(any::<u8>(), 0..200), text in any::<String>()) {
            for bytes in [&bytes[..], text.as_bytes()] {
                for one in parse(bytes, Path::new("list")).unwrap_or_default() {
                    let name = format!("{}.wav", one.id);
                    prop_assert_eq!(Path::new(&name).file_name().and_then(|n| n.to_str()), Some(name.as_str()));
                    prop_assert!(!one.text.is_empty());
                }
            }
        }
    }
}
