//! A folder, at any depth, in which every sound has a `.txt` or `.lab` of the same name beside it. The
//! id is the path without its extension; the speaker is the sound's folder where there are several.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::detect::Place;
use super::sounds;
use super::transcript::{self, Pending, without_transcript};
use super::{DatasetError, Reading};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

pub(super) const LOOKED_FOR: &str = "sounds with a .txt or .lab of the same name beside each";

/// Text files that come with corpora and are nobody's transcript.
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

/// 0 for `.txt`, 1 for `.lab`: the order of preference.
fn text_rank(file: &Path) -> Option<usize> {
    let extension = file.extension()?.to_str()?.to_ascii_lowercase();
    ["txt", "lab"].iter().position(|&known| known == extension)
}

pub(super) fn fits(root: &Path) -> bool {
    sounds::any_folder(root, |files| {
        grouped(files).values().any(|parts| !parts.sounds.is_empty() && !parts.texts.is_empty())
    })
}

/// The files of one name, best first.
#[derive(Default)]
struct Parts {
    sounds: Vec<(usize, PathBuf)>,
    texts: Vec<(usize, PathBuf)>,
}

fn grouped(files: &[PathBuf]) -> BTreeMap<&str, Parts> {
    let mut groups: BTreeMap<&str, Parts> = BTreeMap::new();
    for file in files {
        let Some(stem) = file.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if let Some(rank) = sounds::rank(file) {
            groups.entry(stem).or_default().sounds.push((rank, file.clone()));
        } else if let Some(rank) = text_rank(file) {
            groups.entry(stem).or_default().texts.push((rank, file.clone()));
        }
    }
    for parts in groups.values_mut() {
        parts.sounds.sort();
        parts.texts.sort();
    }
    groups
}

pub(super) fn read(place: &Place) -> Result<Reading, DatasetError> {
    let root = &place.root;
    let mut pending = Vec::new();
    let mut found = Vec::new();
    let mut folders = BTreeSet::new();
    let mut problems = sounds::walk(root, &mut |folder, files| {
        for (stem, parts) in grouped(files) {
            let id = id_of(root, folder, stem);
            let mut all_sounds = parts.sounds.into_iter().map(|(_, path)| path);
            let transcript = parts.texts.into_iter().map(|(_, path)| path).next();
            match (all_sounds.next(), transcript) {
                (Some(audio), Some(transcript)) => {
                    folders.insert(folder.to_owned());
                    found.extend(all_sounds.map(|other| second_sound(&id, &audio, other)));
                    pending.push(Pending { id, audio, transcript, speaker: None });
                }
                (Some(sound), None) => {
                    found.push(without_transcript(
                        id,
                        &sound,
                        &format!("{stem}.txt or {stem}.lab beside it"),
                    ));
                }
                (None, Some(transcript)) if !is_document(stem) => found.push(Problem {
                    kind: ProblemKind::Missing,
                    severity: Severity::Error,
                    id: Some(id),
                    origin: Origin { file: transcript, line: None },
                    detail: format!("there is no sound named {stem} beside the transcript"),
                }),
                (None, _) => {}
            }
        }
        ControlFlow::Continue(())
    });
    problems.extend(found);
    let mut notes = Vec::new();
    if folders.len() > 1 {
        for one in &mut pending {
            let folder = one.audio.parent().and_then(Path::file_name);
            one.speaker = folder.map(|name| name.to_string_lossy().into_owned());
        }
        notes.push("speakers: named after the folders that hold their sounds".to_owned());
    }
    let why = format!(
        "{} sounds with a .txt or .lab beside each, in {} folder{}",
        pending.len(),
        folders.len(),
        if folders.len() == 1 { "" } else { "s" }
    );
    let (drafts, unread) = transcript::read_all(pending);
    problems.extend(unread);
    Ok(Reading { why, notes, drafts, problems })
}

/// The path below the root without its extension, with slashes on every system.
fn id_of(root: &Path, folder: &Path, stem: &str) -> String {
    let inside = folder.strip_prefix(root).unwrap_or(folder);
    let mut parts: Vec<_> = inside.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.push(stem.into());
    parts.join("/")
}

fn is_document(stem: &str) -> bool {
    DOCUMENTS.contains(&stem.to_ascii_lowercase().as_str())
}

fn second_sound(id: &str, first: &Path, other: PathBuf) -> Problem {
    Problem {
        kind: ProblemKind::DuplicateId,
        severity: Severity::Warning,
        id: Some(id.to_owned()),
        detail: format!("{} has the same name and is used instead", first.display()),
        origin: Origin { file: other, line: None },
    }
}
