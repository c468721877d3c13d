//! Coqui's CSV: a header `audio_file|text|speaker_name`, paths relative to the folder, as written by the XTTS fine-tuning
//! demo (`metadata_train.csv` and `metadata_eval.csv`). That writer quotes fields that contain a bar or a quote, so quoting
//! is supported here.

use std::path::Path;

use super::detect::Location;
use super::metadata::{Parsed, quoted_fields, read_listed};
use super::table::Table;
use super::{DatasetError, RawCorpus};

pub(super) const FILES: [&str; 3] = ["metadata_train.csv", "metadata_eval.csv", "metadata.csv"];
pub(super) const EXPECTED: &str =
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

pub(super) fn read(location: &Location) -> Result<RawCorpus, DatasetError> {
    let bases = [location.root.clone(), location.root.join("wavs")];
    let header = Some("audio_file and text, separated by bars");
    read_listed(location, parse, header, &bases, "with the header audio_file|text")
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
