//! Coqui's CSV: a header `audio_file|text|speaker_name`, paths relative to the folder, as the XTTS
//! fine-tuning demo writes it (`metadata_train.csv` and `metadata_eval.csv`). Its writer quotes fields
//! that hold a bar or a quote, so quotes are understood here.

use std::path::Path;

use super::detect::Place;
use super::metadata::{self, Entry, Line, Parsed, each_line, name, optional_name, quoted_fields};
use super::sounds;
use super::{DatasetError, Draft, Reading};
use crate::utterance::Origin;

pub(super) const FILES: [&str; 3] = ["metadata_train.csv", "metadata_eval.csv", "metadata.csv"];
pub(super) const LOOKED_FOR: &str =
    "metadata_train.csv, metadata_eval.csv or metadata.csv with the header audio_file|text|speaker_name";

/// Where the columns stand that we use.
struct Columns {
    audio: usize,
    text: usize,
    speaker: Option<usize>,
    language: Option<usize>,
}

impl Columns {
    fn of(header: &str) -> Option<Self> {
        let names: Vec<&str> = header.split('|').map(str::trim).collect();
        let at = |wanted: &str| names.iter().position(|&name| name == wanted);
        Some(Columns {
            audio: at("audio_file")?,
            text: at("text")?,
            speaker: at("speaker_name").or_else(|| at("speaker")),
            language: at("language").or_else(|| at("lang")),
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
                None => Err("no header audio_file|text|speaker_name stands above this line".to_owned()),
            };
        };
        let fields = quoted_fields(line, '|')?;
        let field = |at: usize| fields.get(at).map(|field| field.as_ref());
        let (Some(path), Some(text)) = (field(columns.audio), field(columns.text)) else {
            return Err(format!(
                "{} column(s), but audio_file is column {} and text column {}",
                fields.len(),
                columns.audio + 1,
                columns.text + 1
            ));
        };
        let written = name("audio_file", path)?;
        let entry = Entry {
            id: sounds::without_extension(written).replace('\\', "/"),
            audio: Some(written.to_owned()),
            text: text.trim().to_owned(),
            speaker: optional_name("speaker_name", columns.speaker.and_then(field))?,
            language: optional_name("language", columns.language.and_then(field))?,
            seconds: None,
            line: number,
        };
        Ok(Line::Entry(entry, fields.len()))
    })
}

pub(super) fn read(place: &Place) -> Result<Reading, DatasetError> {
    let bases = [place.root.clone(), place.root.join("wavs")];
    let mut drafts = Vec::new();
    let mut problems = Vec::new();
    let mut there = 0;
    for file in &place.files {
        let parsed = parse(&metadata::load(file)?, file);
        if parsed.header == 0 {
            return Err(DatasetError::NoHeader {
                file: file.clone(),
                wanted: "audio_file and text, separated by bars",
                found: metadata::head(file).into_iter().next().unwrap_or_default(),
            });
        }
        problems.extend(parsed.problems);
        for entry in parsed.entries {
            let (audio, found) = sounds::resolve(&bases, entry.audio.as_deref().unwrap_or(&entry.id));
            there += u64::from(found);
            drafts.push(Draft {
                id: sounds::relative_id(&place.root, entry.id),
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
        "{} with the header audio_file|text, {there} of {} sounds found",
        metadata::names(&place.files),
        drafts.len()
    );
    let notes = match place.files.len() {
        0 | 1 => Vec::new(),
        _ => vec!["all these files are read as one corpus; name one of them to read it alone".to_owned()],
    };
    Ok(Reading { why, notes, drafts, problems })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_bars_and_quotes_are_unwrapped() {
        let table =
            "audio_file|text|speaker_name\nwavs/a.wav|\"one | \"\"two\"\"\"|coqui\nwavs/b.wav|\"open|c\n";
        let found = parse(table.as_bytes(), Path::new("metadata_train.csv"));
        assert_eq!(found.entries.len(), 1);
        assert_eq!(found.entries[0].text, "one | \"two\"");
        assert_eq!(found.entries[0].speaker.as_deref(), Some("coqui"));
        assert_eq!(found.problems[0].origin.line, Some(3));
    }
}
