//! Resolves the values of `--voice`: stored voices, voices included in the model, recordings, and mixes of those.
//!
//! | written | means |
//! |---|---|
//! | `anna` | the stored voice of this name, else one included in the model, else a recording |
//! | `./anna.wav` | a recording |
//! | `anna(2)+ben(1)` | a weighted mix, here 2:1; each term is any of the above |
//! | several recordings | one voice, encoded from all of them |

use super::{VoiceError, Voices, all_names, built_in};
use crate::error::SpeakError;
use crate::reference::{Reference, ReferenceReport};
use crate::synthesizer::Synthesizer;
use crate::voice::Voice;
use myxtts_model::weights::ModelFolder;
use std::path::{Path, PathBuf};

/// Largest number of voices in a mix.
const MAX_TERMS: usize = 16;

/// A requested voice.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedVoice {
    /// The voice.
    pub voice: Voice,
    /// Quality reports, one for each voice that was encoded from recordings.
    pub reports: Vec<ReferenceReport>,
}

/// Finds a stored voice, one included in the model, or a mix of those. Never reads a recording, whatever the name looks like.
pub fn find_stored(folder: &ModelFolder, named: &str) -> Result<Voice, SpeakError> {
    if let Some(voice) = stored(folder, named)? {
        return Ok(voice);
    }
    let unknown = |name: &str| Ok::<_, SpeakError>(VoiceError::unknown(name, all_names(folder)?).into());
    let Some(terms) = terms(named)? else {
        return Err(unknown(named)?);
    };
    let mut parts = Vec::new();
    for (name, weight) in terms {
        let Some(voice) = stored(folder, name)? else { return Err(unknown(name)?) };
        parts.push((voice, weight));
    }
    mixed(named, &parts)
}

/// Finds a voice, or encodes it from recordings.
pub fn resolve_voice(
    synthesizer: &mut Synthesizer,
    folder: &ModelFolder,
    named: &[PathBuf],
) -> Result<ResolvedVoice, SpeakError> {
    let [one] = named else {
        return encode(synthesizer, named);
    };
    if let Some(found) = single(synthesizer, folder, one)? {
        return Ok(found);
    }
    let text = one.to_str().unwrap_or_default();
    let Some(terms) = terms(text)? else {
        return Err(missing(folder, one)?);
    };
    let (mut parts, mut reports) = (Vec::new(), Vec::new());
    for (name, weight) in terms {
        let path = Path::new(name);
        let Some(found) = single(synthesizer, folder, path)? else { return Err(missing(folder, path)?) };
        reports.extend(found.reports);
        parts.push((found.voice, weight));
    }
    Ok(ResolvedVoice { voice: mixed(text, &parts)?, reports })
}

fn mixed(text: &str, parts: &[(Voice, f32)]) -> Result<Voice, SpeakError> {
    let why = || "its voices have different sizes".to_owned();
    Ok(Voice::mix(parts).ok_or_else(|| VoiceError::Mix { text: text.to_owned(), why: why() })?)
}

/// A stored voice, or one included in the model.
fn stored(folder: &ModelFolder, name: &str) -> Result<Option<Voice>, SpeakError> {
    Ok(match Voices::from_folder(folder).own(name)? {
        Some(stored) => Some(stored.voice),
        None => built_in(folder, name),
    })
}

/// Resolves a single name; `None` if there is no such voice and no such file.
fn single(
    synthesizer: &mut Synthesizer,
    folder: &ModelFolder,
    named: &Path,
) -> Result<Option<ResolvedVoice>, SpeakError> {
    if let Some(name) = named.to_str()
        && let Some(voice) = stored(folder, name)?
    {
        return Ok(Some(ResolvedVoice { voice, reports: Vec::new() }));
    }
    match named.exists() {
        true => encode(synthesizer, &[named.to_owned()]).map(Some),
        false => Ok(None),
    }
}

fn encode(synthesizer: &mut Synthesizer, paths: &[PathBuf]) -> Result<ResolvedVoice, SpeakError> {
    let references = paths.iter().map(|path| Reference::read(path)).collect::<Result<Vec<_>, _>>()?;
    let voice = synthesizer.encode_references(&references)?;
    Ok(ResolvedVoice { voice, reports: vec![ReferenceReport::new(&references, &[])] })
}

/// The error for a missing voice. Names that look like files are reported as missing files.
fn missing(folder: &ModelFolder, named: &Path) -> Result<SpeakError, SpeakError> {
    if named.extension().is_some() || named.components().count() != 1 {
        return Ok(SpeakError::NoReference { path: named.to_owned() });
    }
    let name = named.to_string_lossy().into_owned();
    Ok(VoiceError::NeitherVoiceNorFile { name, names: all_names(folder)? }.into())
}

/// Parses a mix into terms and weights; `None` if the text is not a mix.
fn terms(text: &str) -> Result<Option<Vec<(&str, f32)>>, VoiceError> {
    let wrong = |why: String| VoiceError::Mix { text: text.to_owned(), why };
    let parts: Vec<&str> = text.split('+').map(str::trim).collect();
    if parts.len() == 1 && !text.ends_with(')') {
        return Ok(None);
    }
    if parts.len() > MAX_TERMS {
        return Err(wrong(format!("it has {} voices, but at most {MAX_TERMS} can be mixed", parts.len())));
    }
    let mut terms = Vec::with_capacity(parts.len());
    for part in parts {
        let (name, weight) = match part.strip_suffix(')').and_then(|part| part.rsplit_once('(')) {
            None => (part, 1.0),
            Some((name, weight)) => {
                let weight: Option<f32> = weight.trim().parse().ok();
                let weight = weight.filter(|weight| weight.is_finite() && *weight > 0.0);
                (
                    name.trim(),
                    weight.ok_or_else(|| wrong(format!("the weight of {part:?} is not a number above 0")))?,
                )
            }
        };
        if name.is_empty() {
            return Err(wrong("a voice has no name".to_owned()));
        }
        terms.push((name, weight));
    }
    Ok(Some(terms))
}

#[cfg(test)]
mod tests {
    use super::terms;

    #[test]
    fn mixes_are_parsed() {
        let read = |text: &'static str| terms(text).map(|terms| terms.unwrap_or_default());
        assert_eq!(terms("anna").unwrap(), None);
        assert_eq!(read("anna(2)+ben(1)").unwrap(), [("anna", 2.0), ("ben", 1.0)]);
        assert_eq!(
            read(" anna ( 0.5 ) + Claribel Dervla").unwrap(),
            [("anna", 0.5), ("Claribel Dervla", 1.0)]
        );
        assert_eq!(read("a (copy).wav(3)").unwrap(), [("a (copy).wav", 3.0)]);
        for wrong in
            ["anna(x)+ben", "anna(0)", "anna(-1)+ben(2)", "anna(inf)", "+ben", "anna+", "(2)", "anna(nan)"]
        {
            let error = terms(wrong).unwrap_err().to_string();
            assert!(error.contains("anna(2)+ben(1)") && error.contains(wrong), "{wrong}: {error}");
        }
        assert!(terms(&["a"; 17].join("+")).is_err());
    }
}
