//! VCTK: `txt/p225/p225_001.txt` and `wav48_silence_trimmed/p225/p225_001_mic1.flac` (0.92) or `wav48/p225/p225_001.wav`
//! (0.80). The folder is the speaker. Of two microphones the first is used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::audio_files;
use super::detect::Location;
use super::transcript::{self, Pending, missing_transcript};
use super::{DatasetError, RawCorpus};

pub(super) const EXPECTED: &str =
    "txt/SPEAKER/ID.txt with wav48_silence_trimmed/SPEAKER/ID_mic1.flac or wav48/SPEAKER/ID.wav";
const AUDIO_FOLDERS: [&str; 4] = ["wav48_silence_trimmed", "wav48", "wav", "wavs"];

pub(super) fn fits(root: &Path) -> bool {
    let Some(audio_root) = AUDIO_FOLDERS.iter().map(|name| root.join(name)).find(|folder| folder.is_dir())
    else {
        return false;
    };
    // One speaker with both a transcript and an audio file is enough: other speakers may lack either.
    audio_files::folders_in(&root.join("txt")).iter().filter_map(|folder| folder.file_name()).any(|speaker| {
        let has_text =
            audio_files::files_in(&root.join("txt").join(speaker)).iter().any(|file| is_text(file));
        has_text
            && audio_files::files_in(&audio_root.join(speaker))
                .iter()
                .any(|file| audio_files::rank(file).is_some())
    })
}

fn is_text(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt"))
}

fn stem(file: &Path) -> Option<&str> {
    file.file_stem().and_then(|stem| stem.to_str())
}

/// `p225_001_mic1` -> (`p225_001`, 1). A stem without a microphone is 0, the first choice.
fn microphone(stem: &str) -> (&str, u8) {
    for (suffix, number) in [("_mic1", 1), ("_mic2", 2)] {
        if let Some(id) = stem.strip_suffix(suffix) {
            return (id, number);
        }
    }
    (stem, 0)
}

pub(super) fn read(location: &Location) -> Result<RawCorpus, DatasetError> {
    let root = &location.root;
    let audio_folder =
        AUDIO_FOLDERS.iter().find(|name| root.join(name).is_dir()).copied().unwrap_or(AUDIO_FOLDERS[0]);
    let (texts, audio_root) = (root.join("txt"), root.join(audio_folder));
    let speakers: BTreeSet<String> = audio_files::folders_in(&texts)
        .iter()
        .chain(&audio_files::folders_in(&audio_root))
        .filter_map(|folder| folder.file_name().and_then(|name| name.to_str()).map(str::to_owned))
        .collect();
    let mut pending = Vec::new();
    let mut problems = Vec::new();
    let (mut found, mut second) = (0_u64, 0_u64);
    for speaker in &speakers {
        // Sorted by id; the best microphone and extension first.
        let mut recordings: BTreeMap<String, Vec<(u8, usize, PathBuf)>> = BTreeMap::new();
        for file in audio_files::files_in(&audio_root.join(speaker)) {
            if let (Some(rank), Some(stem)) = (audio_files::rank(&file), stem(&file)) {
                let (id, microphone) = microphone(stem);
                recordings.entry(id.to_owned()).or_default().push((microphone, rank, file));
            }
        }
        for transcript in audio_files::files_in(&texts.join(speaker)).into_iter().filter(|file| is_text(file))
        {
            let Some(id) = stem(&transcript).map(str::to_owned) else { continue };
            let audio = match recordings.remove(&id).and_then(|all| best(all, &mut second)) {
                Some(path) => {
                    found += 1;
                    path
                }
                None => audio_root.join(speaker).join(format!("{id}_mic1.flac")),
            };
            pending.push(Pending { id, audio, transcript, speaker: Some(speaker.clone()) });
        }
        for (id, all) in recordings {
            if let Some(path) = best(all, &mut second) {
                problems.push(missing_transcript(id.clone(), &path, &format!("txt/{speaker}/{id}.txt")));
            }
        }
    }
    let why = format!(
        "txt/ and {audio_folder}/ with {} speakers, {found} of {} transcripts have audio",
        speakers.len(),
        pending.len()
    );
    let mut notes = Vec::new();
    if second > 0 {
        notes.push(format!("{second} recordings of the second microphone (_mic2) are not used"));
    }
    let (drafts, unread) = transcript::read_all(pending);
    problems.extend(unread);
    Ok(RawCorpus { why, notes, drafts, problems })
}

fn best(mut all: Vec<(u8, usize, PathBuf)>, second: &mut u64) -> Option<PathBuf> {
    all.sort();
    let mut all = all.into_iter();
    let (_, _, path) = all.next()?;
    *second += all.filter(|(microphone, _, _)| *microphone == 2).count() as u64;
    Some(path)
}
