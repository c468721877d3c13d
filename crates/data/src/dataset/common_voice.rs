//! Common Voice: a tab-separated table with a header (`client_id`, `path`, `sentence`, `locale`, ...),
//! sounds in `clips/`. `validated.tsv` holds the most; `train.tsv` is read where it is missing.

use std::path::Path;

use super::detect::Place;
use super::metadata::{self, Entry, Line, Parsed, each_line, name, optional_name};
use super::sounds::{self, Shelf};
use super::{DatasetError, Draft, Reading};
use crate::utterance::Origin;

pub(super) const FILES: [&str; 2] = ["validated.tsv", "train.tsv"];
pub(super) const LOOKED_FOR: &str =
    "validated.tsv or train.tsv with a header naming the columns path and sentence";

/// Where the columns stand that we use.
struct Columns {
    path: usize,
    sentence: usize,
    speaker: Option<usize>,
    language: Option<usize>,
}

impl Columns {
    fn of(header: &str) -> Option<Self> {
        let names: Vec<&str> = header.split('\t').map(str::trim).collect();
        let at = |wanted: &str| names.iter().position(|&name| name == wanted);
        Some(Columns {
            path: at("path")?,
            sentence: at("sentence")?,
            speaker: at("client_id"),
            language: at("locale"),
        })
    }
}

pub(super) fn fits(head: &[String]) -> bool {
    head.first().is_some_and(|line| Columns::of(line).is_some())
}

pub(super) fn parse(bytes: &[u8], file: &Path) -> Parsed {
    let mut columns: Option<Columns> = None;
    each_line(bytes, file, |line, number| {
        let Some(columns) = &columns else {
            columns = Columns::of(line);
            return match columns {
                Some(_) => Ok(Line::Header),
                None => Err("no header with the columns path and sentence stands above this line".to_owned()),
            };
        };
        let fields: Vec<&str> = line.split('\t').collect();
        let (Some(path), Some(sentence)) = (fields.get(columns.path), fields.get(columns.sentence)) else {
            return Err(format!(
                "{} column(s), but path is column {} and sentence column {}",
                fields.len(),
                columns.path + 1,
                columns.sentence + 1
            ));
        };
        let field = |at: Option<usize>| at.and_then(|at| fields.get(at)).copied();
        let written = name("path", path)?;
        let entry = Entry {
            id: sounds::without_extension(written).to_owned(),
            audio: Some(written.to_owned()),
            text: unquoted(sentence.trim()),
            speaker: optional_name("client_id", field(columns.speaker))?,
            language: optional_name("locale", field(columns.language))?,
            seconds: None,
            line: number,
        };
        Ok(Line::Entry(entry, fields.len()))
    })
}

/// Some releases quote sentences as CSV does, others write quotes as they are. A sentence that is
/// quoted as a whole is unwrapped only where every quote inside is doubled.
fn unquoted(sentence: &str) -> String {
    let inside = sentence.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inside.map(|inside| inside.replace("\"\"", "\0")) {
        Some(inside) if !inside.contains('"') => inside.replace('\0', "\""),
        _ => sentence.to_owned(),
    }
}

pub(super) fn read(place: &Place) -> Result<Reading, DatasetError> {
    let root = &place.root;
    let clips = root.join("clips");
    let shelf = Shelf::of(std::slice::from_ref(&clips));
    let mut drafts = Vec::new();
    let mut problems = Vec::new();
    let mut there = 0;
    for file in &place.files {
        let parsed = parse(&metadata::load(file)?, file);
        if parsed.header == 0 {
            return Err(DatasetError::NoHeader {
                file: file.clone(),
                wanted: "path and sentence",
                found: metadata::head(file).into_iter().next().unwrap_or_default(),
            });
        }
        problems.extend(parsed.problems);
        for entry in parsed.entries {
            let (audio, found) = match shelf.get(&entry.id) {
                Some(path) => (path.clone(), true),
                None => {
                    let written = entry.audio.as_deref().unwrap_or(&entry.id);
                    sounds::resolve(&[clips.clone(), root.clone()], written)
                }
            };
            there += u64::from(found);
            drafts.push(Draft {
                id: entry.id,
                audio,
                text: entry.text,
                speaker: entry.speaker,
                language: entry.language,
                seconds: None,
                origin: Origin { file: file.clone(), line: Some(entry.line) },
            });
        }
    }
    let why = format!(
        "{} with the columns path and sentence, {there} of {} sounds found under clips/",
        metadata::names(&place.files),
        drafts.len()
    );
    Ok(Reading { why, notes: Vec::new(), drafts, problems })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_quoting_are_understood() {
        assert_eq!(unquoted(r#""He said ""no"".""#), r#"He said "no"."#);
        assert_eq!(unquoted(r#""Yes" and "no""#), r#""Yes" and "no""#);
        assert_eq!(unquoted(r#"a "b""#), r#"a "b""#);
        assert_eq!(unquoted(r#"""#), r#"""#);
    }

    #[test]
    fn columns_are_found_by_name() {
        let table = "locale\tsentence\tpath\tclient_id\nfa\tسلام\ta.mp3\tz9\nfa\tx\n";
        let found = parse(table.as_bytes(), Path::new("train.tsv"));
        let entry = &found.entries[0];
        assert_eq!((entry.id.as_str(), entry.text.as_str()), ("a", "سلام"));
        assert_eq!((entry.speaker.as_deref(), entry.language.as_deref()), (Some("z9"), Some("fa")));
        assert_eq!(found.problems.len(), 1);
        assert!(found.problems[0].detail.contains("path is column 3"), "{}", found.problems[0].detail);
    }
}
