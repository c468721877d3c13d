//! Coqui's CSV: a header `audio_file|text|speaker_name`, paths relative to the folder, as the XTTS
//! fine-tuning demo writes it (`metadata_train.csv` and `metadata_eval.csv`). Its writer quotes fields
//! that hold a bar or a quote, so quotes are understood here.

use std::path::Path;

use super::detect::Place;
use super::metadata::{self, Parsed, quoted_fields};
use super::sounds;
use super::table::Table;
use super::{DatasetError, Reading};

pub(super) const FILES: [&str; 3] = ["metadata_train.csv", "metadata_eval.csv", "metadata.csv"];
pub(super) const LOOKED_FOR: &str =
    "metadata_train.csv, metadata_eval.csv or metadata.csv with the header audio_file|text|speaker_name";

const TABLE: Table = Table {
    separator: '|',
    audio: "audio_file",
    text: "text",
    speaker: &["speaker_name", "speaker"],
    language: &["language", "lang"],
    fields: quoted_fields,
    id: |path| path.replace('\\', "/"),
    transcript: str::to_owned,
};

pub(super) fn fits(head: &[String]) -> bool {
    TABLE.fits(head)
}

pub(super) fn parse(bytes: &[u8], file: &Path) -> Parsed {
    TABLE.parse(bytes, file)
}

pub(super) fn read(place: &Place) -> Result<Reading, DatasetError> {
    let bases = [place.root.clone(), place.root.join("wavs")];
    let header = Some("audio_file and text, separated by bars");
    let metadata::Drafts { drafts, problems, found, .. } =
        metadata::read_files(&place.files, parse, header, |entry| {
            sounds::resolve_entry(&bases, &place.root, entry)
        })?;
    let why = format!(
        "{} with the header audio_file|text, {found} of {} sounds found",
        metadata::names(&place.files),
        drafts.len()
    );
    let notes = metadata::one_corpus_note(&place.files);
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
