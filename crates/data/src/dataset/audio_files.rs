//! Finds audio files: by id in a folder, by a path as written, or by walking a tree that may contain symbolic links to
//! itself.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::metadata::Entry;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

/// Extensions of audio files in order of preference for ids with several files. The last ones cannot be decoded, but are
/// listed so that a folder of them gets a better message than "no audio here".
const EXTENSIONS: [&str; 13] =
    ["wav", "flac", "mp3", "ogg", "oga", "m4a", "mp4", "aac", "opus", "aiff", "aif", "webm", "wma"];

/// Maximum folder depth below the root.
const MAX_DEPTH: usize = 16;

/// Number of files and folders to inspect before giving up a search: users may point the program at a home folder.
const MAX_ENTRIES_SEARCHED: usize = 200_000;

/// Preference of an audio file's extension, 0 is best; `None` if it is not an audio file.
pub(super) fn rank(path: &Path) -> Option<usize> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    EXTENSIONS.iter().position(|&known| known == extension)
}

/// Removes an audio extension from a path as written: `wavs/a.b.wav` -> `wavs/a.b`.
pub(super) fn without_extension(written: &str) -> &str {
    match written.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() && rank(Path::new(written)).is_some() => stem,
        _ => written,
    }
}

/// Makes an id derived from a path relative to the corpus folder if it is inside, so that ids and everything keyed by them
/// survive moving the corpus.
fn relative_id(root: &Path, id: String) -> String {
    let path = Path::new(&id);
    if !path.is_absolute() {
        return id;
    }
    let inside = |root: &Path| path.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned);
    let found = inside(root).or_else(|| root.canonicalize().ok().and_then(|root| inside(&root)));
    found.filter(|inside| !inside.is_empty()).unwrap_or(id)
}

/// Returns the audio file that an entry names and whether it exists; makes the entry's id relative to the corpus.
pub(super) fn resolve_entry(bases: &[PathBuf], root: &Path, entry: &mut Entry) -> (PathBuf, bool) {
    let found = resolve(bases, entry.audio.as_deref().unwrap_or(&entry.id));
    entry.id = relative_id(root, std::mem::take(&mut entry.id));
    found
}

/// Audio files of several folders, by stem.
pub(super) struct AudioIndex {
    by_stem: HashMap<String, PathBuf>,
}

impl AudioIndex {
    /// Lists each folder once, far cheaper than probing every id and extension. Earlier folders take precedence; missing
    /// folders are skipped.
    pub(super) fn scan(folders: &[PathBuf]) -> Self {
        let mut by_stem: HashMap<String, PathBuf> = HashMap::new();
        for folder in folders.iter().rev() {
            let mut here: HashMap<String, PathBuf> = HashMap::new();
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let (Some(new), Some(stem)) = (rank(&path), path.file_stem().and_then(|s| s.to_str())) else {
                    continue;
                };
                // Equal ranks mean `a.wav` and `a.WAV`: decide by name, not by directory order.
                let better = here.get(stem).is_none_or(|old| (new, &path) < (rank(old).unwrap_or(99), old));
                if better {
                    here.insert(stem.to_owned(), path);
                }
            }
            by_stem.extend(here);
        }
        AudioIndex { by_stem }
    }

    /// The audio file with this stem.
    pub(super) fn get(&self, stem: &str) -> Option<&PathBuf> {
        self.by_stem.get(stem)
    }
}

/// Resolves an audio path as the metadata wrote it: absolute or relative to one of `bases`, with or without an extension,
/// also with the separators of another system. Returns the first candidate and `false` if no file exists.
pub(super) fn resolve(bases: &[PathBuf], written: &str) -> (PathBuf, bool) {
    let forward = written.replace('\\', "/");
    for spelling in [written, forward.as_str()] {
        for base in bases {
            let path = base.join(spelling);
            if path.is_file() {
                return (path, true);
            }
            if rank(&path).is_some() {
                continue;
            }
            for extension in EXTENSIONS {
                let path = base.join(format!("{spelling}.{extension}"));
                if path.is_file() {
                    return (path, true);
                }
            }
        }
    }
    (bases.first().map_or_else(|| PathBuf::from(written), |base| base.join(written)), false)
}

/// Visits every folder below `root` with its files, both sorted by name. Hidden files and folders are skipped; links are
/// followed, each folder is visited once. Returns the folders and files that could not be visited.
pub(super) fn walk(root: &Path, visit: &mut dyn FnMut(&Path, &[PathBuf]) -> ControlFlow<()>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = HashSet::new();
    let mut pending = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = pending.pop() {
        // Compare canonical paths: a link to a parent would otherwise be followed for ever.
        if folder.canonicalize().is_ok_and(|true_path| !seen.insert(true_path)) {
            continue;
        }
        if depth > MAX_DEPTH {
            problems.push(unvisited(&folder, format!("nested deeper than {MAX_DEPTH} folders; move it up")));
            continue;
        }
        let listing = match std::fs::read_dir(&folder) {
            Ok(listing) => listing,
            Err(error) => {
                problems.push(unvisited(&folder, format!("the folder cannot be read: {error}")));
                continue;
            }
        };
        let mut files = Vec::new();
        let mut folders = Vec::new();
        for entry in listing.flatten() {
            let path = entry.path();
            match entry.file_name().to_str() {
                Some(name) if name.starts_with('.') => continue,
                Some(name) if name.contains(char::is_control) => {
                    let detail = format!("the name {name:?} contains a control character; rename it");
                    problems.push(unvisited(&folder, detail));
                    continue;
                }
                Some(_) => {}
                None if rank(&path).is_none() && !path.is_dir() => continue,
                None => {
                    problems.push(unvisited(&path, "the name is not UTF-8; rename it".to_owned()));
                    continue;
                }
            }
            // `metadata` follows links, `file_type` does not.
            match std::fs::metadata(&path) {
                Ok(attributes) if attributes.is_dir() => folders.push(path),
                Ok(_) => files.push(path),
                // Keep a dangling link to an audio file: opening it later reports it as missing.
                Err(_) => files.push(path),
            }
        }
        files.sort();
        folders.sort();
        if visit(&folder, &files).is_break() {
            return problems;
        }
        pending.extend(folders.into_iter().rev().map(|folder| (folder, depth + 1)));
    }
    problems
}

/// Whether the files of any folder satisfy `wanted`; gives up in very large trees.
pub(super) fn any_folder(root: &Path, wanted: impl Fn(&[PathBuf]) -> bool) -> bool {
    let mut found = false;
    let mut inspected = 0;
    walk(root, &mut |_, files| {
        found = wanted(files);
        inspected += 1 + files.len();
        if found || inspected > MAX_ENTRIES_SEARCHED {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found
}

fn unvisited(path: &Path, detail: String) -> Problem {
    Problem {
        kind: ProblemKind::Unreadable,
        severity: Severity::Error,
        id: None,
        // Problems are stored as JSON, which is UTF-8.
        origin: Origin { file: PathBuf::from(path.to_string_lossy().into_owned()), line: None },
        detail,
    }
}

/// Folders directly in `folder`, sorted, without hidden ones.
pub(super) fn folders_in(folder: &Path) -> Vec<PathBuf> {
    visible_in(folder, Path::is_dir)
}

/// Files directly in `folder`, sorted, without hidden ones.
pub(super) fn files_in(folder: &Path) -> Vec<PathBuf> {
    visible_in(folder, Path::is_file)
}

fn visible_in(folder: &Path, wanted: fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| !n.starts_with('.')))
        .filter(|path| wanted(path))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_audio_extensions_are_removed() {
        assert_eq!(without_extension("wavs/a.b.wav"), "wavs/a.b");
        assert_eq!(without_extension("a.FLAC"), "a");
        assert_eq!(without_extension("v1.2"), "v1.2");
        assert_eq!(without_extension(".wav"), ".wav");
    }

    #[test]
    fn ids_do_not_depend_on_where_the_corpus_is_stored() {
        let id = |id: &str| relative_id(Path::new("/data/corpus"), id.to_owned());
        assert_eq!(id("/data/corpus/wavs/a"), "wavs/a");
        assert_eq!(id("/data/other/a"), "/data/other/a");
        assert_eq!(id("wavs/a"), "wavs/a");
        assert_eq!(id("/data/corpus"), "/data/corpus");
    }

    #[test]
    fn an_audio_index_prefers_earlier_folders_and_lossless_files() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        for (folder, name) in [(&a, "x.mp3"), (&a, "x.flac"), (&b, "x.wav"), (&b, "y.OGG"), (&b, "z.txt")] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(name), b"").unwrap();
        }
        let audio_index = AudioIndex::scan(&[a.clone(), b.clone(), dir.path().join("none")]);
        assert_eq!(audio_index.get("x"), Some(&a.join("x.flac")));
        assert_eq!(audio_index.get("y"), Some(&b.join("y.OGG")));
        assert_eq!(audio_index.get("z"), None);
    }

    #[test]
    fn paths_of_other_systems_are_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("wavs")).unwrap();
        let there = dir.path().join("wavs/a.flac");
        std::fs::write(&there, b"").unwrap();
        let bases = [dir.path().to_owned()];
        for written in ["wavs/a.flac", "wavs\\a.flac", "wavs/a", "wavs\\a", &there.to_string_lossy()] {
            assert_eq!(resolve(&bases, written), (there.clone(), true), "{written}");
        }
        assert_eq!(resolve(&bases, "b.wav"), (dir.path().join("b.wav"), false));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_parent_ends_the_walk() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/x.wav"), b"").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/up")).unwrap();
        let mut seen = 0;
        let problems = walk(dir.path(), &mut |_, files| {
            seen += files.len();
            ControlFlow::Continue(())
        });
        assert_eq!((seen, problems.len()), (1, 0));
    }
}
