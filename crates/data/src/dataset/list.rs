//! A list of texts: what to speak, or recordings with what is said in them.
//!
//! | line | meaning |
//! |---|---|
//! | `id\|text` | the text under a name, which becomes a file's name |
//! | `id\|text\|reference` | and a recording of the voice; what is no sound file (LJSpeech's normalised text) is ignored |
//! | `text` | a text without a bar; its name is the number of its line, `0001` |
//! | `# ...` | a remark; empty lines are skipped too |
//!
//! Paths are relative to the list's folder. The recording of a text is `ID.*` there or in `wavs/` there.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use myxtts_run::exit::Exit;

use super::metadata::LONGEST_LINE;
use super::sounds::{Shelf, rank};

/// The largest list that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// The longest id, in bytes: with an extension it must be a file's name.
const LONGEST_ID: usize = 200;

/// One text of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name: unique in the list, and fit to name a file.
    pub id: String,
    /// What is to be said, or is said.
    pub text: String,
    /// A recording of the voice, where the line names one.
    pub reference: Option<PathBuf>,
    /// The recording of this very text, where there is one.
    pub recording: Option<PathBuf>,
    /// The line it stands in, counted from 1.
    pub line: usize,
}

/// Why a list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The file cannot be read.
    #[error("reading {path}: {source}", path = path.display())]
    Io {
        /// The list.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no list.
    #[error("{path} is no list of texts: {what}", path = path.display())]
    NotAList {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        what: String,
    },
    /// One line is wrong.
    #[error("{path}, line {line}: {what}", path = path.display())]
    Line {
        /// The list.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what to write instead.
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

/// Reads a list; recordings are also looked for in `recordings`, which comes before the list's own folder.
pub fn read_list(path: &Path, recordings: Option<&Path>) -> Result<Vec<Listed>, ListError> {
    let io = |source| ListError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(io)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folders: Vec<PathBuf> =
        recordings.map(Path::to_owned).into_iter().chain([here.to_owned(), here.join("wavs")]).collect();
    let shelf = Shelf::of(&folders);
    let mut list = parse(&bytes, path)?;
    for one in &mut list {
        if let Some(reference) = one.reference.take() {
            let found = folder.join(&reference);
            one.reference = match found.is_file() {
                true => Some(found),
                // Text that happens to stand there is none of ours; a sound file that is missing is a mistake.
                false if rank(&reference).is_none() || reference.to_string_lossy().contains(' ') => None,
                false => {
                    let what = format!(
                        "there is no recording {}; paths are relative to the list's folder",
                        found.display()
                    );
                    return Err(ListError::Line { path: path.to_owned(), line: one.line, what });
                }
            };
        }
        one.recording = shelf.get(&one.id).cloned();
    }
    Ok(list)
}

/// The lines of a list, without a disk: the third column is taken for a path as it is written.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Listed>, ListError> {
    let not_a_list = |what: String| ListError::NotAList { path: path.to_owned(), what };
    if bytes.len() as u64 > LARGEST {
        return Err(not_a_list(format!("it has more than {} MiB; split it", LARGEST >> 20)));
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
        let wrong = |what: String| ListError::Line { path: path.to_owned(), line: number, what };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.len() > LONGEST_LINE {
            return Err(wrong(format!("it has more than {LONGEST_LINE} bytes: is a line break missing?")));
        }
        let mut fields = line.split('|').map(str::trim);
        let (id, text, reference) = match (fields.next(), fields.next()) {
            (Some(id), Some(text)) => (id.to_owned(), text, fields.next()),
            _ => (format!("{number:04}"), line, None),
        };
        fit_to_name_a_file(&id).map_err(wrong)?;
        if text.is_empty() {
            return Err(wrong(format!("{id} has no text; write `id|text`")));
        }
        if let Some(line) = first.insert(id.clone(), number) {
            return Err(wrong(format!("the id {id} stands in line {line} too; give this one another")));
        }
        let reference = reference.filter(|field| !field.is_empty()).map(PathBuf::from);
        list.push(Listed { id, text: text.to_owned(), reference, recording: None, line: number });
    }
    if list.is_empty() {
        return Err(not_a_list("it has no line with a text; write `id|text`, one a line".to_owned()));
    }
    Ok(list)
}

/// Sound is written as `ID.wav`: nothing outside of one folder may be named so.
fn fit_to_name_a_file(id: &str) -> Result<(), String> {
    let refused = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    let shown: String = id.chars().take(60).flat_map(char::escape_default).collect();
    if id.is_empty() {
        return Err("the id before the first bar is empty; write `id|text`".to_owned());
    }
    if id.len() > LONGEST_ID {
        return Err(format!("the id {shown}... has more than {LONGEST_ID} bytes and cannot name a file"));
    }
    if id.starts_with('.') || id.contains(refused) {
        return Err(format!(
            "the id {shown} cannot name a file; use letters, digits, `-`, `_` and dots that are not in front"
        ));
    }
    Ok(())
}

/// Whether a file's name is that of a sound file.
pub fn is_sound(path: &Path) -> bool {
    rank(path).is_some()
}

/// The transcript beside a sound file: its name with `.txt` or `.lab`.
pub fn transcript_beside(sound: &Path) -> Option<String> {
    ["txt", "lab"].iter().find_map(|extension| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(sound.with_extension(extension)).ok()?;
        file.take(LONGEST_LINE as u64).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let joined: Vec<&str> = text.split_whitespace().collect();
        Some(joined.join(" ")).filter(|text| !text.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<Vec<Listed>, String> {
        parse(text.as_bytes(), Path::new("list")).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_texts_with_or_without_names() {
        let list =
            parsed("\u{feff}# a remark\r\n a-1 | Hello. | wavs/x.wav \r\n\r\nJust a text.\nb|x||more\n")
                .unwrap();
        let short: Vec<_> = list.iter().map(|one| (one.id.as_str(), one.text.as_str(), one.line)).collect();
        assert_eq!(short, [("a-1", "Hello.", 2), ("0004", "Just a text.", 4), ("b", "x", 5)]);
        assert_eq!(list[0].reference.as_deref(), Some(Path::new("wavs/x.wav")));
        assert_eq!(list[2].reference, None);
    }

    #[test]
    fn what_is_no_list_says_where() {
        for (text, message) in [
            ("", "no line with a text"),
            ("# only\n", "no line with a text"),
            ("a|", "line 1: a has no text"),
            ("|text", "line 1: the id before the first bar is empty"),
            ("ok|x\n..|text", "line 2: the id .. cannot name a file"),
            ("a/b|text", "a/b cannot name a file"),
            ("a\u{1b}[2J|text", "\\u{1b}[2J cannot name a file"),
            ("a|x\n0003|y\nplain", "the id 0003 stands in line 2 too"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(message), "{text:?}: {error}");
        }
        let long = parsed(&format!("{}|x", "i".repeat(300))).unwrap_err();
        assert!(long.contains("more than 200 bytes") && long.len() < 200, "{long}");
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
