//! LibriTTS: `SPEAKER/CHAPTER/ID.normalized.txt` with the audio next to it, also below folders such as `train-clean-100/`.
//! Without a normalised transcript, `ID.original.txt` is read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::audio_files;
use super::detect::Location;
use super::transcript::{self, Pending, missing_transcript};
use super::{DatasetError, RawCorpus};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

pub(super) const EXPECTED: &str = "SPEAKER/CHAPTER/ID.normalized.txt with the audio next to it";
const NORMALISED: &str = ".normalized.txt";
const ORIGINAL: &str = ".original.txt";

pub(super) fn fits(root: &Path) -> bool {
    audio_files::any_folder(root, |files| files.iter().any(|file| file_name(file).ends_with(NORMALISED)))
}

fn file_name(file: &Path) -> &str {
    file.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Files of one id in a folder.
#[derive(Default)]
struct FileGroup {
    normalised: Option<PathBuf>,
    original: Option<PathBuf>,
    audio: Option<PathBuf>,
}

pub(super) fn read(location: &Location) -> Result<RawCorpus, DatasetError> {
    let mut pending = Vec::new();
    let mut found = Vec::new();
    let mut originals = 0_u64;
    let mut problems = audio_files::walk(&location.root, &mut |folder, files| {
        let mut groups: BTreeMap<String, FileGroup> = BTreeMap::new();
        for file in files {
            let name = file_name(file);
            if let Some(id) = name.strip_suffix(NORMALISED) {
                groups.entry(id.to_owned()).or_default().normalised = Some(file.clone());
            } else if let Some(id) = name.strip_suffix(ORIGINAL) {
                groups.entry(id.to_owned()).or_default().original = Some(file.clone());
            } else if let Some(rank) = audio_files::rank(file) {
                let id = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
                let audio = &mut groups.entry(id.to_owned()).or_default().audio;
                if audio.as_deref().and_then(audio_files::rank).is_none_or(|old| rank < old) {
                    *audio = Some(file.clone());
                }
            }
        }
        for (id, group) in groups {
            let is_original = group.normalised.is_none() && group.original.is_some();
            match (group.normalised.or(group.original), group.audio) {
                (Some(transcript), Some(audio)) => {
                    originals += u64::from(is_original);
                    let speaker = speaker(&location.root, folder, &id);
                    pending.push(Pending { id, audio, transcript, speaker });
                }
                (Some(transcript), None) => found.push(Problem {
                    kind: ProblemKind::Missing,
                    severity: Severity::Error,
                    detail: format!("there is no audio file {id}.wav next to the transcript"),
                    id: Some(id),
                    origin: Origin { file: transcript, line: None },
                }),
                (None, Some(audio)) => {
                    let wanted = format!("{id}{NORMALISED} next to it");
                    found.push(missing_transcript(id, &audio, &wanted));
                }
                (None, None) => {}
            }
        }
        ControlFlow::Continue(())
    });
    problems.extend(found);
    let why = format!("SPEAKER/CHAPTER/ID{NORMALISED}, {} transcripts with audio", pending.len());
    let mut notes = Vec::new();
    if originals > 0 {
        notes.push(format!(
            "{originals} utterances have no normalised transcript; their {ORIGINAL} is read instead"
        ));
    }
    let (drafts, unread) = transcript::read_all(pending);
    problems.extend(unread);
    Ok(RawCorpus { why, notes, drafts, problems })
}

/// The folder above the chapter; in a flatter tree, the part of the id before its first underscore.
fn speaker(root: &Path, folder: &Path, id: &str) -> Option<String> {
    let inside = folder.strip_prefix(root).ok()?;
    let above = inside.parent().and_then(|parent| parent.file_name());
    match above.and_then(|name| name.to_str()) {
        Some(name) => Some(name.to_owned()),
        None => id.split_once('_').map(|(speaker, _)| speaker.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speaker_is_the_folder_above_the_chapter() {
        let root = Path::new("/c");
        let of = |folder: &str, id: &str| speaker(root, Path::new(folder), id);
        assert_eq!(of("/c/84/121123", "84_121123_000007_000001").as_deref(), Some("84"));
        assert_eq!(of("/c/dev-clean/84/121123", "84_x").as_deref(), Some("84"));
        assert_eq!(of("/c/121123", "84_121123_000007").as_deref(), Some("84"));
        assert_eq!(of("/c", "plain"), None);
    }
}
