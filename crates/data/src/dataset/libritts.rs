//! LibriTTS: `SPEAKER/CHAPTER/ID.normalized.txt` with the sound beside it, also below folders such as
//! `train-clean-100/`. Where the normalised transcript is missing, `ID.original.txt` is read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::detect::Place;
use super::sounds;
use super::transcript::{self, Pending, without_transcript};
use super::{DatasetError, Reading};
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Origin;

pub(super) const LOOKED_FOR: &str = "SPEAKER/CHAPTER/ID.normalized.txt with the sound beside it";
const NORMALISED: &str = ".normalized.txt";
const ORIGINAL: &str = ".original.txt";

pub(super) fn fits(root: &Path) -> bool {
    sounds::any_folder(root, |files| files.iter().any(|file| file_name(file).ends_with(NORMALISED)))
}

fn file_name(file: &Path) -> &str {
    file.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// What a folder holds of one id.
#[derive(Default)]
struct Parts {
    normalised: Option<PathBuf>,
    original: Option<PathBuf>,
    sound: Option<PathBuf>,
}

pub(super) fn read(place: &Place) -> Result<Reading, DatasetError> {
    let mut pending = Vec::new();
    let mut found = Vec::new();
    let mut originals = 0_u64;
    let mut problems = sounds::walk(&place.root, &mut |folder, files| {
        let mut parts: BTreeMap<String, Parts> = BTreeMap::new();
        for file in files {
            let name = file_name(file);
            if let Some(id) = name.strip_suffix(NORMALISED) {
                parts.entry(id.to_owned()).or_default().normalised = Some(file.clone());
            } else if let Some(id) = name.strip_suffix(ORIGINAL) {
                parts.entry(id.to_owned()).or_default().original = Some(file.clone());
            } else if let Some(rank) = sounds::rank(file) {
                let id = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
                let sound = &mut parts.entry(id.to_owned()).or_default().sound;
                if sound.as_deref().and_then(sounds::rank).is_none_or(|old| rank < old) {
                    *sound = Some(file.clone());
                }
            }
        }
        for (id, parts) in parts {
            let is_original = parts.normalised.is_none() && parts.original.is_some();
            match (parts.normalised.or(parts.original), parts.sound) {
                (Some(transcript), Some(audio)) => {
                    originals += u64::from(is_original);
                    let speaker = speaker(&place.root, folder, &id);
                    pending.push(Pending { id, audio, transcript, speaker });
                }
                (Some(transcript), None) => found.push(Problem {
                    kind: ProblemKind::Missing,
                    severity: Severity::Error,
                    detail: format!("there is no sound {id}.wav beside the transcript"),
                    id: Some(id),
                    origin: Origin { file: transcript, line: None },
                }),
                (None, Some(sound)) => {
                    let wanted = format!("{id}{NORMALISED} beside it");
                    found.push(without_transcript(id, &sound, &wanted));
                }
                (None, None) => {}
            }
        }
        ControlFlow::Continue(())
    });
    problems.extend(found);
    let why = format!("SPEAKER/CHAPTER/ID{NORMALISED}, {} transcripts with a sound", pending.len());
    let mut notes = Vec::new();
    if originals > 0 {
        notes.push(format!("{originals} utterances have only {ORIGINAL}, which is read instead"));
    }
    let (drafts, unread) = transcript::read_all(pending);
    problems.extend(unread);
    Ok(Reading { why, notes, drafts, problems })
}

/// The folder above the chapter's; in a flatter tree, what stands before the id's first underscore.
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
