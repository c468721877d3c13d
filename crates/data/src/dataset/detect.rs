//! Which layout a folder or a metadata file has: decided by content, and said aloud.

use std::path::{Path, PathBuf};

use super::{
    DatasetError, Format, common_voice, coqui, folder, jsonl, libritts, ljspeech, metadata, sounds, vctk,
};

/// Where a corpus lies.
pub(super) struct Place {
    /// The folder paths are relative to.
    pub(super) root: PathBuf,
    /// The metadata files to read; none for layouts that have none.
    pub(super) files: Vec<PathBuf>,
}

/// What detection found.
pub(super) struct Found {
    pub(super) format: Format,
    pub(super) place: Place,
    /// What else would have fitted, for the user to read.
    pub(super) others: Option<String>,
}

/// Finds the layout of `path`, or the files of the layout that was asked for.
pub(super) fn detect(path: &Path, asked: Option<Format>) -> Result<Found, DatasetError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(DatasetError::NotFound { path: path.to_owned() })
        }
        Err(source) => Err(DatasetError::Io { path: path.to_owned(), source }),
        Ok(about) if about.is_dir() => {
            // A folder that cannot be listed would look like a folder in which nothing fits.
            std::fs::read_dir(path).map_err(|source| DatasetError::Io { path: path.to_owned(), source })?;
            in_folder(path, asked)
        }
        Ok(_) => of_file(path, asked),
    }
}

fn of_file(file: &Path, asked: Option<Format>) -> Result<Found, DatasetError> {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let format = match asked {
        Some(format) if has_files(format) => format,
        Some(format) => {
            return Err(DatasetError::NotThisFormat {
                root: file.to_owned(),
                title: format.title(),
                looked_for: looked_for(format),
            });
        }
        None => {
            let head = metadata::head(file);
            Format::ALL.into_iter().find(|&format| fits(format, &head)).ok_or_else(|| {
                DatasetError::NothingFits { root: file.to_owned(), looked_for: everything_looked_for() }
            })?
        }
    };
    // Of a table in `root/metadata/` or the like nothing is known: sounds are relative to its folder.
    let place = Place { root: parent.to_owned(), files: vec![file.to_owned()] };
    Ok(Found { format, place, others: None })
}

fn in_folder(root: &Path, asked: Option<Format>) -> Result<Found, DatasetError> {
    if let Some(format) = asked {
        let files = probe(format, root, true).ok_or_else(|| DatasetError::NotThisFormat {
            root: root.to_owned(),
            title: format.title(),
            looked_for: looked_for(format),
        })?;
        return Ok(Found { format, place: Place { root: root.to_owned(), files }, others: None });
    }
    let mut found: Option<Found> = None;
    let mut others = Vec::new();
    for format in Format::ALL {
        // The layouts without metadata are a last resort: sounds beside texts are in most corpora.
        if found.is_some() && !has_files(format) {
            continue;
        }
        let Some(files) = probe(format, root, false) else { continue };
        match &found {
            None => {
                let place = Place { root: root.to_owned(), files };
                found = Some(Found { format, place, others: None });
            }
            // One table can be read in two ways; that is no second corpus.
            Some(found) if files.iter().all(|file| found.place.files.contains(file)) => {}
            Some(_) => others.push(format!("{} (--format {format})", metadata::names(&files))),
        }
    }
    let mut found = found.ok_or_else(|| DatasetError::NothingFits {
        root: root.to_owned(),
        looked_for: everything_looked_for(),
    })?;
    if !others.is_empty() {
        found.others = Some(format!("also there, not read: {}", others.join(", ")));
    }
    Ok(found)
}

/// Whether the layout is declared by metadata files rather than by folders.
fn has_files(format: Format) -> bool {
    !matches!(format, Format::Vctk | Format::LibriTts | Format::Folder)
}

/// The metadata files of this layout in `root`; `None` where it is not that layout. With `asked` the
/// user knows better: names are enough, content is not looked at.
fn probe(format: Format, root: &Path, asked: bool) -> Option<Vec<PathBuf>> {
    match format {
        Format::LjSpeech => first_fitting(root, &ljspeech::FILES, asked, ljspeech::fits),
        Format::CommonVoice => first_fitting(root, &common_voice::FILES, asked, common_voice::fits),
        Format::Coqui => {
            let files: Vec<_> = present(root, &coqui::FILES)
                .filter(|file| asked || coqui::fits(&metadata::head(file)))
                .collect();
            (!files.is_empty()).then_some(files)
        }
        Format::Jsonl => {
            let files: Vec<_> = sounds::files_in(root)
                .into_iter()
                .filter(|file| jsonl::could_be(file))
                .filter(|file| asked || jsonl::fits(&metadata::head(file)))
                .collect();
            (!files.is_empty()).then_some(files)
        }
        Format::Vctk => (asked || vctk::fits(root)).then(Vec::new),
        Format::LibriTts => (asked || libritts::fits(root)).then(Vec::new),
        Format::Folder => (asked || folder::fits(root)).then(Vec::new),
    }
}

fn present<'a>(root: &'a Path, names: &'a [&str]) -> impl Iterator<Item = PathBuf> + 'a {
    names.iter().map(|name| root.join(name)).filter(|file| file.is_file())
}

fn first_fitting(
    root: &Path,
    names: &[&str],
    asked: bool,
    fits: fn(&[String]) -> bool,
) -> Option<Vec<PathBuf>> {
    present(root, names).find(|file| asked || fits(&metadata::head(file))).map(|file| vec![file])
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

fn looked_for(format: Format) -> &'static str {
    match format {
        Format::LjSpeech => ljspeech::LOOKED_FOR,
        Format::Vctk => vctk::LOOKED_FOR,
        Format::LibriTts => libritts::LOOKED_FOR,
        Format::CommonVoice => common_voice::LOOKED_FOR,
        Format::Coqui => coqui::LOOKED_FOR,
        Format::Folder => folder::LOOKED_FOR,
        Format::Jsonl => jsonl::LOOKED_FOR,
    }
}

fn everything_looked_for() -> String {
    Format::ALL.iter().map(|&format| format!("  {format}: {}\n", looked_for(format))).collect()
}
