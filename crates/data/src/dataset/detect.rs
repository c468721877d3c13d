//! Detects the layout of a folder or a metadata file by its content, and reports the decision.

use std::path::{Path, PathBuf};

use super::{
    DatasetError, Format, audio_files, common_voice, coqui, folder, jsonl, libritts, ljspeech, metadata, vctk,
};

/// Location of a corpus on disk.
pub(super) struct Location {
    /// Folder that relative paths refer to.
    pub(super) root: PathBuf,
    /// Metadata files to read; empty for layouts that have none.
    pub(super) files: Vec<PathBuf>,
}

/// Result of detection.
pub(super) struct Found {
    pub(super) format: Format,
    pub(super) location: Location,
    /// Other layouts that also match, as a note for the user.
    pub(super) others: Option<String>,
}

/// Detects the layout of `path`, or finds the files of the requested layout.
pub(super) fn detect(path: &Path, requested: Option<Format>) -> Result<Found, DatasetError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(DatasetError::NotFound { path: path.to_owned() })
        }
        Err(source) => Err(DatasetError::Io { path: path.to_owned(), source }),
        Ok(attributes) if attributes.is_dir() => {
            // Without this, a folder that cannot be listed would be reported as one that matches no layout.
            std::fs::read_dir(path).map_err(|source| DatasetError::Io { path: path.to_owned(), source })?;
            detect_folder(path, requested)
        }
        Ok(_) => detect_file(path, requested),
    }
}

fn detect_file(file: &Path, requested: Option<Format>) -> Result<Found, DatasetError> {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let format = match requested {
        Some(format) if has_files(format) => format,
        Some(format) => {
            return Err(DatasetError::FormatMismatch {
                root: file.to_owned(),
                title: format.title(),
                expected: expected(format),
            });
        }
        None => {
            let head = metadata::head(file);
            Format::ALL.into_iter().find(|&format| fits(format, &head)).ok_or_else(|| {
                DatasetError::UnknownLayout { root: file.to_owned(), expected: all_expected() }
            })?
        }
    };
    // Nothing is known about the surroundings of a single table (it may be in `root/metadata/`), so audio paths are relative
    // to its own folder.
    let location = Location { root: parent.to_owned(), files: vec![file.to_owned()] };
    Ok(Found { format, location, others: None })
}

fn detect_folder(root: &Path, requested: Option<Format>) -> Result<Found, DatasetError> {
    if let Some(format) = requested {
        let files = probe(format, root, true).ok_or_else(|| DatasetError::FormatMismatch {
            root: root.to_owned(),
            title: format.title(),
            expected: expected(format),
        })?;
        return Ok(Found { format, location: Location { root: root.to_owned(), files }, others: None });
    }
    let mut found: Option<Found> = None;
    let mut others = Vec::new();
    for format in Format::ALL {
        // Layouts without metadata are a last resort: most corpora contain audio next to text files.
        if found.is_some() && !has_files(format) {
            continue;
        }
        let Some(files) = probe(format, root, false) else { continue };
        match &found {
            None => {
                let location = Location { root: root.to_owned(), files };
                found = Some(Found { format, location, others: None });
            }
            // One table may parse as two layouts; that is not a second corpus.
            Some(found) if files.iter().all(|file| found.location.files.contains(file)) => {}
            Some(_) => others.push(format!("{} (--format {format})", metadata::names(&files))),
        }
    }
    let mut found = found
        .ok_or_else(|| DatasetError::UnknownLayout { root: root.to_owned(), expected: all_expected() })?;
    if !others.is_empty() {
        found.others = Some(format!("also found but not read: {}", others.join(", ")));
    }
    Ok(found)
}

/// Whether the layout is declared by metadata files rather than by its folder structure.
fn has_files(format: Format) -> bool {
    !matches!(format, Format::Vctk | Format::LibriTts | Format::Folder)
}

/// Returns the metadata files of `format` in `root`, or `None` if the folder does not match. When the user requested the
/// format, matching file names are enough and their content is not inspected.
fn probe(format: Format, root: &Path, requested: bool) -> Option<Vec<PathBuf>> {
    match format {
        Format::LjSpeech => first_fitting(root, &ljspeech::FILES, requested, ljspeech::fits),
        Format::CommonVoice => first_fitting(root, &common_voice::FILES, requested, common_voice::fits),
        Format::Coqui => {
            let files: Vec<_> = present(root, &coqui::FILES)
                .filter(|file| requested || coqui::fits(&metadata::head(file)))
                .collect();
            (!files.is_empty()).then_some(files)
        }
        Format::Jsonl => {
            let files: Vec<_> = audio_files::files_in(root)
                .into_iter()
                .filter(|file| jsonl::could_be(file))
                .filter(|file| requested || jsonl::fits(&metadata::head(file)))
                .collect();
            (!files.is_empty()).then_some(files)
        }
        Format::Vctk => (requested || vctk::fits(root)).then(Vec::new),
        Format::LibriTts => (requested || libritts::fits(root)).then(Vec::new),
        Format::Folder => (requested || folder::fits(root)).then(Vec::new),
    }
}

fn present<'a>(root: &'a Path, names: &'a [&str]) -> impl Iterator<Item = PathBuf> + 'a {
    names.iter().map(|name| root.join(name)).filter(|file| file.is_file())
}

fn first_fitting(
    root: &Path,
    names: &[&str],
    requested: bool,
    fits: fn(&[String]) -> bool,
) -> Option<Vec<PathBuf>> {
    present(root, names).find(|file| requested || fits(&metadata::head(file))).map(|file| vec![file])
}

fn fits(format: Format, head: &[String]) -> bool {
    match format {
        Format::LjSpeech => ljspeech::fits(head),
        Format::CommonVoice => common_voice::fits(head),
        Format::Coqui => coqui::fits(head),
        Format::Jsonl => jsonl::fits(head),
        Format::Vctk | Format::LibriTts | Format::Folder => false,
    }
}

fn expected(format: Format) -> &'static str {
    match format {
        Format::LjSpeech => ljspeech::EXPECTED,
        Format::Vctk => vctk::EXPECTED,
        Format::LibriTts => libritts::EXPECTED,
        Format::CommonVoice => common_voice::EXPECTED,
        Format::Coqui => coqui::EXPECTED,
        Format::Folder => folder::EXPECTED,
        Format::Jsonl => jsonl::EXPECTED,
    }
}

fn all_expected() -> String {
    Format::ALL.iter().map(|&format| format!("  {format}: {}\n", expected(format))).collect()
}
