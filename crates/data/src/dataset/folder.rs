//! A folder, at any depth, in which every audio file has a `.txt` or `.lab` of the same name next to it. The id is the path
//! without its extension. With several folders, the folder's name is the speaker.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::audio_files;
use super::detect::Location;
use super::transcript::{self, Pending, missing_transcript};
use super::{DatasetError, RawCorpus};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

pub(super) const EXPECTED: &str = "audio files with a .txt or .lab of the same name next to each";

/// Text files that often accompany a corpus and are not transcripts.
const DOCUMENTS: [&str; 9] = [
    "readme",
    "license",
    "licence",
    "copying",
    "changelog",
    "changes",
    "notes",
    "speaker-info",
    "requirements",
];

/// Preference among transcript extensions: 0 for `.txt`, 1 for `.lab`.
fn text_rank(file: &Path) -> Option<usize> {
    let extension = file.extension()?.to_str()?.to_ascii_lowercase();
    ["txt", "lab"].iter().position(|&known| known == extension)
}

pub(super) fn fits(root: &Path) -> bool {
    audio_files::any_folder(root, |files| {
        grouped(files).values().any(|group| !group.audio.is_empty() && !group.texts.is_empty())
    })
}

/// Files that share a stem, best first.
#[derive(Default)]
struct FileGroup {
    audio: Vec<(usize, PathBuf)>,
    texts: Vec<(usize, PathBuf)>,
}

fn grouped(files: &[PathBuf]) -> BTreeMap<&str, FileGroup> {
    let mut groups: BTreeMap<&str, FileGroup> = BTreeMap::new();
    for file in files {
        let Some(stem) = file.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if let Some(rank) = audio_files::rank(file) {
            groups.entry(stem).or_default().audio.push((rank, file.clone()));
        } else if let Some(rank) = text_rank(file) {
            groups.entry(stem).or_default().texts.push((rank, file.clone()));
        }
    }
    for group in groups.values_mut() {
        group.audio.sort();
        group.texts.sort();
    }
    groups
}

pub(super) fn read(location: &Location) -> Result<RawCorpus, DatasetError> {
    let root = &location.root;
    let mut pending = Vec::new();
    let mut found = Vec::new();
    let mut folders = BTreeSet::new();
    let mut problems = audio_files::walk(root, &mut |folder, files| {
        for (stem, group) in grouped(files) {
            let id = id_of(root, folder, stem);
            let mut candidates = group.audio.into_iter().map(|(_, path)| path);
            let transcript = group.texts.into_iter().map(|(_, path)| path).next();
            match (candidates.next(), transcript) {
                (Some(audio), Some(transcript)) => {
                    folders.insert(folder.to_owned());
                    found.extend(candidates.map(|other| unused_duplicate(&id, &audio, other)));
                    pending.push(Pending { id, audio, transcript, speaker: None });
                }
                (Some(audio), None) => {
                    found.push(missing_transcript(
                        id,
                        &audio,
                        &format!("{stem}.txt or {stem}.lab next to it"),
                    ));
                }
                (None, Some(transcript)) if !is_document(stem) => found.push(Problem {
                    kind: ProblemKind::Missing,
                    severity: Severity::Error,
                    id: Some(id),
                    origin: Origin { file: transcript, line: None },
                    detail: format!("there is no audio file named {stem} next to the transcript"),
                }),
                (None, _) => {}
            }
        }
        ControlFlow::Continue(())
    });
    problems.extend(found);
    let mut notes = Vec::new();
    if folders.len() > 1 {
        for utterance in &mut pending {
            let folder = utterance.audio.parent().and_then(Path::file_name);
            utterance.speaker = folder.map(|name| name.to_string_lossy().into_owned());
        }
        notes.push("speakers: named after the folders of their audio files".to_owned());
    }
    let why = format!(
        "{} audio files with a .txt or .lab next to each, in {} folder{}",
        pending.len(),
        folders.len(),
        if folders.len() == 1 { "" } else { "s" }
    );
    let (drafts, unread) = transcript::read_all(pending);
    problems.extend(unread);
    Ok(RawCorpus { why, notes, drafts, problems })
}

/// The path below the root without its extension, with forward slashes on every system.
fn id_of(root: &Path, folder: &Path, stem: &str) -> String {
    let inside = folder.strip_prefix(root).unwrap_or(folder);
    let mut parts: Vec<_> = inside.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.push(stem.into());
    parts.join("/")
}

fn is_document(stem: &str) -> bool {
    DOCUMENTS.contains(&stem.to_ascii_lowercase().as_str())
}

fn unused_duplicate(id: &str, first: &Path, other: PathBuf) -> Problem {
    Problem {
        kind: ProblemKind::DuplicateId,
        severity: Severity::Warning,
        id: Some(id.to_owned()),
        detail: format!("{} has the same name and is used instead of this file", first.display()),
        origin: Origin { file: other, line: None },
    }
}
