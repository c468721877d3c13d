//! Common Voice: a tab-separated table with a header (`client_id`, `path`, `sentence`, `locale`, ...), audio in `clips/`.
//! `validated.tsv` has the most clips; `train.tsv` is the fallback.

use std::borrow::Cow;
use std::path::Path;

use super::audio_files::{self, AudioIndex};
use super::detect::Location;
use super::metadata::{self, Parsed};
use super::table::Table;
use super::{DatasetError, RawCorpus};

pub(super) const FILES: [&str; 2] = ["validated.tsv", "train.tsv"];
pub(super) const EXPECTED: &str =
    "validated.tsv or train.tsv with a header naming the columns path and sentence";

const TABLE: Table = Table {
    separator: '\t',
    audio: "path",
    text: "sentence",
    speaker: &["client_id"],
    language: &["locale"],
    fields: |line, separator| Ok(line.split(separator).map(Cow::Borrowed).collect()),
    id: str::to_owned,
    transcript: unquoted,
};

pub(super) fn fits(head: &[String]) -> bool {
    TABLE.fits(head)
}

pub(super) fn parse(bytes: &[u8], file: &Path) -> Parsed {
    TABLE.parse(bytes, file)
}

/// Some releases quote sentences as CSV does, others write quotes literally. A fully quoted sentence is unwrapped only if
/// every quote inside is doubled.
fn unquoted(sentence: &str) -> String {
    let inside = sentence.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inside.map(|inside| inside.replace("\"\"", "\0")) {
        Some(inside) if !inside.contains('"') => inside.replace('\0', "\""),
        _ => sentence.to_owned(),
    }
}

pub(super) fn read(location: &Location) -> Result<RawCorpus, DatasetError> {
    let root = &location.root;
    let clips = root.join("clips");
    let audio_index = AudioIndex::scan(std::slice::from_ref(&clips));
    let bases = [clips, root.clone()];
    let metadata::Drafts { drafts, problems, found, .. } =
        metadata::read_files(&location.files, parse, Some("path and sentence"), |entry| {
            match audio_index.get(&entry.id) {
                Some(path) => (path.clone(), true),
                None => audio_files::resolve(&bases, entry.audio.as_deref().unwrap_or(&entry.id)),
            }
        })?;
    let why = format!(
        "{} with the columns path and sentence, {found} of {} audio files found under clips/",
        metadata::names(&location.files),
        drafts.len()
    );
    Ok(RawCorpus { why, notes: Vec::new(), drafts, problems })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_quoting_styles_are_supported() {
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
