//! LJSpeech: `metadata.csv` with lines `id|text` or `id|text|normalised text`, audio in `wavs/`.
//!
//! There is no quoting: quotes and `#` are text. The normalised column is used unless it is empty. An optional
//! `speakers.csv` next to it, with lines `id|speaker|language`, describes a corpus of several voices or languages (such as
//! our demo corpus); empty columns are ignored.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::audio_files::{self, AudioIndex};
use super::detect::Location;
use super::metadata::{self, Entry, Line, Parsed, each_line, malformed, name, optional_name};
use super::{DatasetError, Draft, RawCorpus};
use crate::problem::{Problem, Severity};

pub(super) const FILES: [&str; 2] = ["metadata.csv", "metadata.txt"];
pub(super) const EXPECTED: &str = "metadata.csv with lines `id|text` or `id|text|normalised text`";
pub(super) const SPEAKERS: &str = "speakers.csv";
const AUDIO_FOLDERS: [&str; 5] = ["wavs", "wav", "audio", "clips", "."];

/// True when most lines have one or two bars.
pub(super) fn fits(head: &[String]) -> bool {
    let fitting = head.iter().filter(|line| (1..=2).contains(&line.matches('|').count())).count();
    !head.is_empty() && fitting * 2 > head.len()
}

pub(super) fn parse(bytes: &[u8], file: &Path) -> Parsed {
    each_line(bytes, file, |line, number| {
        let columns: Vec<&str> = line.split('|').collect();
        let (id, text, normalised) = match columns[..] {
            [id, text] => (id, text, ""),
            [id, text, normalised] => (id, text, normalised),
            _ => {
                return Err(format!(
                    "expected `id|text` or `id|text|normalised text`, found {} column(s)",
                    columns.len()
                ));
            }
        };
        if number == 1 && is_header(id, text) {
            return Ok(Line::Header);
        }
        let written = name("id", id)?;
        let id = audio_files::without_extension(written);
        let text = if normalised.trim().is_empty() { text } else { normalised };
        let entry = Entry {
            id: id.to_owned(),
            audio: (id != written).then(|| written.to_owned()),
            text: text.trim().to_owned(),
            speaker: None,
            language: None,
            seconds: None,
            line: number,
        };
        Ok(Line::Entry(entry, columns.len()))
    })
}

/// The layout has no header, but some corpora add one.
fn is_header(id: &str, text: &str) -> bool {
    let is = |value: &str, names: &[&str]| names.contains(&value.trim().to_ascii_lowercase().as_str());
    is(id, &["id", "file", "filename", "file_name", "audio", "audio_file", "wav", "path"])
        && is(text, &["text", "transcript", "transcription", "sentence"])
}

pub(super) fn read(location: &Location) -> Result<RawCorpus, DatasetError> {
    let root = &location.root;
    let folders: Vec<PathBuf> = AUDIO_FOLDERS.iter().map(|name| root.join(name)).collect();
    let folder_name = AUDIO_FOLDERS.iter().find(|name| root.join(name).is_dir()).unwrap_or(&"wavs");
    let audio_index = AudioIndex::scan(&folders);
    let bases = [root.clone(), root.join(folder_name)];
    let metadata::Drafts { mut drafts, mut problems, columns, found } =
        metadata::read_files(&location.files, parse, None, |entry| {
            match (&entry.audio, audio_index.get(&entry.id)) {
                (Some(written), _) => audio_files::resolve(&bases, written),
                (None, Some(path)) => (path.clone(), true),
                // An id with a slash names a file in a subfolder.
                (None, None) if entry.id.contains(['/', '\\']) => {
                    audio_files::resolve(&[root.join(folder_name), root.clone()], &entry.id)
                }
                (None, None) => (root.join(folder_name).join(format!("{}.wav", entry.id)), false),
            }
        })?;
    let mut why = format!(
        "{} with {columns} columns, {found} of {} ids found under {folder_name}/",
        metadata::names(&location.files),
        drafts.len(),
    );
    let speakers = root.join(SPEAKERS);
    if speakers.is_file() {
        let parsed = parse_speakers(&metadata::load(&speakers)?, &speakers);
        problems.extend(parsed.problems);
        problems.extend(apply_speakers(parsed.entries, &speakers, &mut drafts));
        why.push_str(", speakers and languages from speakers.csv");
    }
    Ok(RawCorpus { why, notes: Vec::new(), drafts, problems })
}

/// Parses `speakers.csv`: `id|speaker` or `id|speaker|language`.
fn parse_speakers(bytes: &[u8], file: &Path) -> Parsed {
    each_line(bytes, file, |line, number| {
        let columns: Vec<&str> = line.split('|').collect();
        let (id, speaker, language) = match columns[..] {
            [id, speaker] => (id, speaker, ""),
            [id, speaker, language] => (id, speaker, language),
            _ => return Err(format!("expected `id|speaker|language`, found {} column(s)", columns.len())),
        };
        if number == 1 && id.trim() == "id" && speaker.trim() == "speaker" {
            return Ok(Line::Header);
        }
        let entry = Entry {
            id: name("id", id)?.to_owned(),
            audio: None,
            text: String::new(),
            speaker: optional_name("speaker", Some(speaker))?,
            language: optional_name("language", Some(language))?,
            seconds: None,
            line: number,
        };
        Ok(Line::Entry(entry, columns.len()))
    })
}

/// Applies the speakers and languages of `speakers.csv` to the drafts; unknown ids become warnings.
fn apply_speakers(entries: Vec<Entry>, file: &Path, drafts: &mut [Draft]) -> Vec<Problem> {
    let mut by_id: HashMap<String, Vec<usize>> = HashMap::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        by_id.entry(draft.id.clone()).or_default().push(index);
    }
    let mut problems = Vec::new();
    let mut first: HashMap<String, u64> = HashMap::with_capacity(entries.len());
    for entry in entries {
        let warn = |detail| {
            let problem = malformed(file, Some(entry.line), detail);
            Problem { severity: Severity::Warning, id: Some(entry.id.clone()), ..problem }
        };
        let Some(indices) = by_id.get(&entry.id) else {
            problems.push(warn("the id is not in the metadata; the line is ignored".to_owned()));
            continue;
        };
        if let Some(line) = first.get(&entry.id) {
            problems.push(warn(format!("the id is already in line {line}; that line is used")));
            continue;
        }
        first.insert(entry.id.clone(), entry.line);
        for &index in indices {
            drafts[index].speaker.clone_from(&entry.speaker);
            drafts[index].language.clone_from(&entry.language);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed {
        parse(text.as_bytes(), Path::new("metadata.csv"))
    }

    #[test]
    fn the_normalised_column_is_preferred_unless_empty() {
        let texts: Vec<_> =
            parsed("a|one|two\nb|one|\nc|one\nd| |").entries.into_iter().map(|e| e.text).collect();
        assert_eq!(texts, ["two", "one", "one", ""]);
    }

    #[test]
    fn quotes_and_hashes_are_text() {
        let found = parsed("#a|\"Stop,\" she|\"Stop,\" she\n\"b|x");
        assert_eq!(found.problems.len(), 0);
        assert_eq!(found.entries[0].id, "#a");
        assert_eq!(found.entries[0].text, "\"Stop,\" she");
        assert_eq!(found.entries[1].id, "\"b");
    }

    #[test]
    fn a_header_is_only_a_header_in_the_first_line() {
        let found = parsed("file|text\nfile|text");
        assert_eq!((found.header, found.entries.len()), (1, 1));
    }

    #[test]
    fn an_id_with_an_extension_is_a_path() {
        let found = parsed("wavs/a.wav|x\na.1|x");
        assert_eq!(found.entries[0].id, "wavs/a");
        assert_eq!(found.entries[0].audio.as_deref(), Some("wavs/a.wav"));
        assert_eq!((found.entries[1].id.as_str(), &found.entries[1].audio), ("a.1", &None));
    }
}
