//! LJSpeech: `metadata.csv` with lines `id|text` or `id|text|normalised text`, sounds in `wavs/`.
//!
//! There is no quoting: a quote is text, and so is `#`. The normalised column is taken where it is not
//! empty. An optional `speakers.csv` beside it, with lines `id|speaker|language`, gives a corpus of
//! several voices or languages (our demo corpus is one); columns left empty say nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::detect::Place;
use super::metadata::{self, Entry, Line, Parsed, each_line, malformed, name, optional_name};
use super::sounds::{self, Shelf};
use super::{DatasetError, Draft, Reading};
use crate::problem::{Problem, Severity};

pub(super) const FILES: [&str; 2] = ["metadata.csv", "metadata.txt"];
pub(super) const LOOKED_FOR: &str = "metadata.csv with lines `id|text` or `id|text|normalised text`";
pub(super) const SPEAKERS: &str = "speakers.csv";
const SOUND_FOLDERS: [&str; 5] = ["wavs", "wav", "audio", "clips", "."];

/// Most lines have one or two bars.
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
                    "{} column(s) where `id|text` or `id|text|normalised text` is wanted",
                    columns.len()
                ));
            }
        };
        if number == 1 && is_header(id, text) {
            return Ok(Line::Header);
        }
        let written = name("id", id)?;
        let id = sounds::without_extension(written);
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

/// The layout has no header, but people give it one.
fn is_header(id: &str, text: &str) -> bool {
    let is = |value: &str, names: &[&str]| names.contains(&value.trim().to_ascii_lowercase().as_str());
    is(id, &["id", "file", "filename", "file_name", "audio", "audio_file", "wav", "path"])
        && is(text, &["text", "transcript", "transcription", "sentence"])
}

pub(super) fn read(place: &Place) -> Result<Reading, DatasetError> {
    let root = &place.root;
    let folders: Vec<PathBuf> = SOUND_FOLDERS.iter().map(|name| root.join(name)).collect();
    let folder_name = SOUND_FOLDERS.iter().find(|name| root.join(name).is_dir()).unwrap_or(&"wavs");
    let shelf = Shelf::of(&folders);
    let bases = [root.clone(), root.join(folder_name)];
    let metadata::Drafts { mut drafts, mut problems, columns, found } =
        metadata::read_files(&place.files, parse, None, |entry| {
            match (&entry.audio, shelf.get(&entry.id)) {
                (Some(written), _) => sounds::resolve(&bases, written),
                (None, Some(path)) => (path.clone(), true),
                // Ids with a slash name a sound in a folder of its own.
                (None, None) if entry.id.contains(['/', '\\']) => {
                    sounds::resolve(&[root.join(folder_name), root.clone()], &entry.id)
                }
                (None, None) => (root.join(folder_name).join(format!("{}.wav", entry.id)), false),
            }
        })?;
    let mut why = format!(
        "{} with {columns} columns, {found} of {} ids found under {folder_name}/",
        metadata::names(&place.files),
        drafts.len(),
    );
    let speakers = root.join(SPEAKERS);
    if speakers.is_file() {
        let parsed = parse_speakers(&metadata::load(&speakers)?, &speakers);
        problems.extend(parsed.problems);
        problems.extend(apply(parsed.entries, &speakers, &mut drafts));
        why.push_str(", speakers and languages from speakers.csv");
    }
    Ok(Reading { why, notes: Vec::new(), drafts, problems })
}

/// The side file: `id|speaker` or `id|speaker|language`.
fn parse_speakers(bytes: &[u8], file: &Path) -> Parsed {
    each_line(bytes, file, |line, number| {
        let columns: Vec<&str> = line.split('|').collect();
        let (id, speaker, language) = match columns[..] {
            [id, speaker] => (id, speaker, ""),
            [id, speaker, language] => (id, speaker, language),
            _ => return Err(format!("{} column(s) where `id|speaker|language` is wanted", columns.len())),
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

/// Gives drafts what the side file says of them; what it says of nobody is a problem.
fn apply(said: Vec<Entry>, file: &Path, drafts: &mut [Draft]) -> Vec<Problem> {
    let mut by_id: HashMap<String, Vec<usize>> = HashMap::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        by_id.entry(draft.id.clone()).or_default().push(index);
    }
    let mut problems = Vec::new();
    let mut first: HashMap<String, u64> = HashMap::with_capacity(said.len());
    for entry in said {
        let warn = |detail| {
            let problem = malformed(file, Some(entry.line), detail);
            Problem { severity: Severity::Warning, id: Some(entry.id.clone()), ..problem }
        };
        let Some(indices) = by_id.get(&entry.id) else {
            problems.push(warn("the id does not occur in the metadata; the line is not used".to_owned()));
            continue;
        };
        if let Some(line) = first.get(&entry.id) {
            problems.push(warn(format!("the id stands already in line {line}; that line counts")));
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
