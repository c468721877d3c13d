//! Stored voices of a model: one file `MODEL/voices/NAME.safetensors` each, and the voices included in the model.
//!
//! A voice is encoded once and then opened in milliseconds. It fits only the model that encoded it, so its file has the model's
//! fingerprint.

mod error;
mod file;
mod resolve;

pub use error::VoiceError;
pub use file::StoredVoice;
pub use resolve::{ResolvedVoice, find_stored, resolve_voice};

use crate::voice::Voice;
use myxtts_model::weights::folder::{Manifest, Part};
use myxtts_model::weights::{ModelFolder, Reading};
use myxtts_run::durable::{self, Disk, DurableError};
use std::path::{Path, PathBuf};

/// Folder of the voices inside a model folder.
pub const FOLDER: &str = "voices";

/// File extension of a voice.
const EXTENSION: &str = "safetensors";

/// Largest number of characters of a name.
const LONGEST_NAME: usize = 64;

/// The voices of one model.
#[derive(Clone, Debug)]
pub struct Voices {
    folder: PathBuf,
    fingerprint: String,
}

impl Voices {
    /// Voices of an opened model folder.
    pub fn from_folder(folder: &ModelFolder) -> Voices {
        Voices::from_manifest(folder.path(), folder.manifest())
    }

    /// Voices of a model folder of which only the manifest was read.
    pub fn from_manifest(model: &Path, manifest: &Manifest) -> Voices {
        Voices { folder: model.join(FOLDER), fingerprint: fingerprint(manifest) }
    }

    /// Fingerprint of the model, which its voices carry.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Names of the stored voices in alphabetical order, including those of other models.
    pub fn names(&self) -> Result<Vec<String>, VoiceError> {
        let failed = |source| DurableError { action: "read the folder", path: self.folder.clone(), source };
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|ending| ending == EXTENSION)
                && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
                && check_name(name).is_ok()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Reads a stored voice of any model; `None` if there is none of that name.
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

    /// Reads a stored voice; fails if another model encoded it.
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

    /// Stores a voice. An existing voice of the same name is replaced only if `replace` is set.
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

    /// Removes a stored voice.
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
        self.folder.join(format!("{name}.{EXTENSION}"))
    }
}

/// A voice included in the model.
pub fn built_in(folder: &ModelFolder, name: &str) -> Option<Voice> {
    let (latents, speaker) = folder.voice(name)?;
    Some(Voice { conditioning: latents.to_f32()?, speaker: speaker.to_f32() })
}

/// Names of all voices of a model: first the stored ones, then those included in the model.
pub fn all_names(folder: &ModelFolder) -> Result<Vec<String>, VoiceError> {
    let mut names = Voices::from_folder(folder).names()?;
    let others: Vec<String> =
        folder.manifest().voices.iter().filter(|name| !names.contains(*name)).cloned().collect();
    names.extend(others);
    Ok(names)
}

/// Checks that a name can be a file name and a part of a mix.
pub fn check_name(name: &str) -> Result<(), VoiceError> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '\u{200c}');
    let ends = |c: char| c.is_alphanumeric() || c == '_';
    let is_valid = name.chars().count() <= LONGEST_NAME
        && name.chars().all(fits)
        && name.starts_with(ends)
        && name.ends_with(ends);
    match is_valid {
        true => Ok(()),
        false => Err(VoiceError::Name { name: name.to_owned(), longest: LONGEST_NAME }),
    }
}

/// A short hash of everything that encodes a voice: the GPT with its conditioning and mel statistics, the speaker encoder, and
/// the preprocessing of recordings. Further training of the decoder leaves voices valid.
fn fingerprint(manifest: &Manifest) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [Part::Gpt, Part::Speaker] {
        hasher.update(part.file().as_bytes());
        if let Some(record) = manifest.part(part) {
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
