//! VCTK: `txt/p225/p225_001.txt` and `wav48_silence_trimmed/p225/p225_001_mic1.flac` (0.92) or
//! `wav48/p225/p225_001.wav` (0.80). The folder is the speaker. Of two microphones the first is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::detect::Place;
use super::sounds;
use super::transcript::{self, Pending, without_transcript};
use super::{DatasetError, Reading};

pub(super) const LOOKED_FOR: &str =
    "txt/SPEAKER/ID.txt with wav48_silence_trimmed/SPEAKER/ID_mic1.flac or wav48/SPEAKER/ID.wav";
const SOUND_FOLDERS: [&str; 4] = ["wav48_silence_trimmed", "wav48", "wav", "wavs"];

pub(super) fn fits(root: &Path) -> bool {
    let Some(sound) = SOUND_FOLDERS.iter().map(|name| root.join(name)).find(|folder| folder.is_dir()) else {
        return false;
    };
    // One speaker with both a transcript and a sound is enough: other speakers may lack either.
    sounds::folders_in(&root.join("txt")).iter().filter_map(|folder| folder.file_name()).any(|speaker| {
        let has_text = sounds::files_in(&root.join("txt").join(speaker)).iter().any(|file| is_text(file));
        has_text && sounds::files_in(&sound.join(speaker)).iter().any(|file| sounds::rank(file).is_some())
    })
}

fn is_text(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt"))
}

fn stem(file: &Path) -> Option<&str> {
    file.file_stem().and_then(|stem| stem.to_str())
}

/// `p225_001_mic1` -> (`p225_001`, 1); no microphone counts as the first choice.
fn microphone(stem: &str) -> (&str, u8) {
    for (suffix, number) in [("_mic1", 1), ("_mic2", 2)] {
        if let Some(id) = stem.strip_suffix(suffix) {
            return (id, number);
        }
    }
    (stem, 0)
}

pub(super) fn read(place: &Place) -> Result<Reading, DatasetError> {
    let root = &place.root;
    let sound_name =
        SOUND_FOLDERS.iter().find(|name| root.join(name).is_dir()).copied().unwrap_or(SOUND_FOLDERS[0]);
    let (texts, sound) = (root.join("txt"), root.join(sound_name));
    let speakers: BTreeSet<String> = sounds::folders_in(&texts)
        .iter()
        .chain(&sounds::folders_in(&sound))
        .filter_map(|folder| folder.file_name().and_then(|name| name.to_str()).map(str::to_owned))
        .collect();
    let mut pending = Vec::new();
    let mut problems = Vec::new();
    let (mut there, mut second) = (0_u64, 0_u64);
    for speaker in &speakers {
        // Sorted by id; the best microphone and extension first.
        let mut heard: BTreeMap<String, Vec<(u8, usize, PathBuf)>> = BTreeMap::new();
        for file in sounds::files_in(&sound.join(speaker)) {
            if let (Some(rank), Some(stem)) = (sounds::rank(&file), stem(&file)) {
                let (id, microphone) = microphone(stem);
                heard.entry(id.to_owned()).or_default().push((microphone, rank, file));
            }
        }
        for transcript in sounds::files_in(&texts.join(speaker)).into_iter().filter(|file| is_text(file)) {
            let Some(id) = stem(&transcript).map(str::to_owned) else { continue };
            let audio = match heard.remove(&id).and_then(|all| best(all, &mut second)) {
                Some(path) => {
                    there += 1;
                    path
                }
                None => sound.join(speaker).join(format!("{id}_mic1.flac")),
            };
            pending.push(Pending { id, audio, transcript, speaker: Some(speaker.clone()) });
        }
        for (id, all) in heard {
            if let Some(path) = best(all, &mut second) {
                problems.push(without_transcript(id.clone(), &path, &format!("txt/{speaker}/{id}.txt")));
            }
        }
    }
    let why = format!(
        "txt/ and {sound_name}/ with {} speakers, {there} of {} transcripts have a sound",
        speakers.len(),
        pending.len()
    );
    let mut notes = Vec::new();
    if second > 0 {
        notes.push(format!("{second} recordings of the second microphone (_mic2) are not used"));
    }
    let (drafts, unread) = transcript::read_all(pending);
    problems.extend(unread);
    Ok(Reading { why, notes, drafts, problems })
}

fn best(mut all: Vec<(u8, usize, PathBuf)>, second: &mut u64) -> Option<PathBuf> {
    all.sort();
    let mut all = all.into_iter();
    let (_, _, path) = all.next()?;
    *second += all.filter(|(microphone, _, _)| *microphone == 2).count() as u64;
    Some(path)
}
