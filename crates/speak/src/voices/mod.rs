//! Voices that are kept beside a model: `MODEL/voices/NAME.safetensors`, one file each, and those the model came with.
//!
//! A voice is heard once and then opened in milliseconds. It fits the model that heard it and no other, so the file says which
//! one that was.

mod choose;
mod error;
mod file;

pub use choose::{Chosen, choose, kept};
pub use error::VoiceError;
pub use file::StoredVoice;

use crate::voice::Voice;
use myxtts_model::weights::folder::{Manifest, Part};
use myxtts_model::weights::{ModelFolder, Reading};
use myxtts_run::durable::{self, Disk, DurableError};
use std::path::{Path, PathBuf};

/// The folder inside a model's.
pub const FOLDER: &str = "voices";

/// How a voice's file ends.
const ENDING: &str = "safetensors";

/// Characters of a name at most.
const LONGEST_NAME: usize = 64;

/// The voices of one model.
#[derive(Clone, Debug)]
pub struct Voices {
    folder: PathBuf,
    fingerprint: String,
}

impl Voices {
    /// Those of a model folder that is opened.
    pub fn of(folder: &ModelFolder) -> Voices {
        Voices::at(folder.path(), folder.manifest())
    }

    /// Those of a model folder of which only the manifest was read.
    pub fn at(model: &Path, manifest: &Manifest) -> Voices {
        Voices { folder: model.join(FOLDER), fingerprint: fingerprint(manifest) }
    }

    /// What the model's own voices are marked with.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Names of the voices that are kept, in alphabetical order; those of other models too.
    pub fn names(&self) -> Result<Vec<String>, VoiceError> {
        let failed = |source| DurableError { action: "read the folder", path: self.folder.clone(), source };
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|ending| ending == ENDING)
                && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
                && check_name(name).is_ok()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// A voice that is kept, whichever model heard it; none where there is none of that name.
    pub fn get(&self, name: &str) -> Result<Option<StoredVoice>, VoiceError> {
        if check_name(name).is_err() {
            return Ok(None);
        }
        let path = self.path(name);
        if !path.exists() {
            return Ok(None);
        }
        StoredVoice::read(&path).map(Some)
    }

    /// A voice of this model.
    pub fn own(&self, name: &str) -> Result<Option<StoredVoice>, VoiceError> {
        match self.get(name)? {
            Some(stored) if stored.model != self.fingerprint => Err(VoiceError::OtherModel {
                name: name.to_owned(),
                found: stored.model,
                wanted: self.fingerprint.clone(),
                references: stored.references,
            }),
            found => Ok(found),
        }
    }

    /// Keeps a voice. One of the same name is only replaced where `replace` says so.
    pub fn add(&self, disk: &dyn Disk, stored: &StoredVoice, replace: bool) -> Result<PathBuf, VoiceError> {
        check_name(&stored.name)?;
        let path = self.path(&stored.name);
        if path.exists() && !replace {
            return Err(VoiceError::Exists { name: stored.name.clone() });
        }
        durable::create_folder(disk, &self.folder)?;
        durable::write_with(disk, &path, &stored.to_bytes())?;
        Ok(path)
    }

    /// Removes a voice that is kept.
    pub fn remove(&self, disk: &dyn Disk, name: &str) -> Result<(), VoiceError> {
        check_name(name)?;
        let path = self.path(name);
        if !path.exists() {
            return Err(VoiceError::unknown(name, self.names()?));
        }
        durable::remove(disk, &path)?;
        durable::sync_folder(disk, &self.folder)?;
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{ENDING}"))
    }
}

/// A voice that the model came with.
pub fn built_in(folder: &ModelFolder, name: &str) -> Option<Voice> {
    let (latents, speaker) = folder.voice(name)?;
    Some(Voice { conditioning: latents.to_f32()?, speaker: speaker.to_f32() })
}

/// All names that a voice of a model can be called by: first those that are kept, then those it came with.
pub fn all_names(folder: &ModelFolder) -> Result<Vec<String>, VoiceError> {
    let mut names = Voices::of(folder).names()?;
    let others: Vec<String> =
        folder.manifest().voices.iter().filter(|name| !names.contains(*name)).cloned().collect();
    names.extend(others);
    Ok(names)
}

/// Whether a name can be a file's, and a part of a mix.
pub fn check_name(name: &str) -> Result<(), VoiceError> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '\u{200c}');
    let ends = |c: char| c.is_alphanumeric() || c == '_';
    let sound = name.chars().count() <= LONGEST_NAME
        && name.chars().all(fits)
        && name.starts_with(ends)
        && name.ends_with(ends);
    match sound {
        true => Ok(()),
        false => Err(VoiceError::Name { name: name.to_owned(), longest: LONGEST_NAME }),
    }
}

/// A short hash of everything that a voice is heard by: the GPT with its conditioning and the mel statistics, the speaker
/// encoder, and how recordings are read. A decoder that is trained further leaves voices as they are.
fn fingerprint(manifest: &Manifest) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [Part::Gpt, Part::Speaker] {
        hasher.update(part.file().as_bytes());
        if let Some(record) = manifest.files.get(part.file()) {
            hasher.update(record.blake3.as_bytes());
        }
    }
    if let Some(Reading { trim_db, loudness_lufs, .. }) = &manifest.reading {
        hasher.update(format!("{trim_db:?} {loudness_lufs:?}").as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_files_and_parts_of_mixes() {
        for name in ["anna", "Claribel Dervla", "anna-2", "v1.5", "مینا", "می\u{200c}نا", "_x"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(65);
        for name in [
            "", ".hidden", "../anna", "a/b", "a\\b", "anna(2)", "a+b", " anna", "anna ", "a\0b", "a:b", &long,
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
