//! A folder of synthetic speech in LJSpeech's layout:
//!
//! | file | content |
//! |---|---|
//! | `metadata.csv` | `id\|text\|normalised text`, one utterance per line |
//! | `wavs/ID.wav` | 22,050 Hz, mono, 16-bit |
//! | `speakers.csv` | `id\|speaker\|language` |
//! | `demo-corpus.json`, `synthetic-corpus.json` | the options; this marker identifies a folder as ours |
//!
//! The marker is written first and `metadata.csv` last: a killed run leaves a folder that no reader mistakes for a corpus
//! and that the next run completes.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use myxtts_data::audio::wav::encode_pcm16;
use myxtts_run::progress::Progress;
use myxtts_run::seed::Seed;
use rayon::prelude::*;

use super::sentences::Sentence;
use super::voice::Voice;
use super::{Language, SAMPLE_RATE, synthesise};

/// Description of a written corpus.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoReport {
    /// The corpus folder.
    pub dir: PathBuf,
    /// Number of utterances.
    pub utterances: usize,
    /// Total length in seconds.
    pub seconds: f64,
    /// Names of the speakers.
    pub speakers: Vec<&'static str>,
    /// Codes of the languages.
    pub languages: Vec<&'static str>,
}

/// Errors of writing a corpus.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Options out of range.
    #[error("{0}")]
    Options(String),
    /// The folder has other content.
    #[error("{} is not empty and contains no synthetic speech: choose another folder, or overwrite it (--force)", dir.display())]
    NotEmpty {
        /// The folder.
        dir: PathBuf,
    },
    /// Reading or writing failed.
    #[error("{doing} {}", path.display())]
    Io {
        /// The operation, such as "reading".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
}

/// A marker with this text identifies a folder as ours.
const MADE_BY: &str = "\"made_by\": \"myxtts ";
const METADATA: &str = "metadata.csv";
const SPEAKERS: &str = "speakers.csv";
const AUDIO_FOLDER: &str = "wavs";
/// Suffix of a partially written file.
const UNFINISHED: &str = ".unfinished";
/// Size of a WAV header in bytes.
const WAV_HEADER: u64 = 44;

/// The file with the options of a corpus.
pub(crate) struct Marker {
    /// File name.
    file: &'static str,
    content: String,
}

impl Marker {
    /// `fields` are lines of JSON, without the trailing comma.
    pub fn new(file: &'static str, command: &str, fields: &[String]) -> Self {
        let made_by = format!("{MADE_BY}{command}\"");
        let note = "\"note\": \"synthetic speech, no recording of a person\"";
        let lines: Vec<&str> =
            [&made_by, note].into_iter().chain(fields.iter().map(String::as_str)).collect();
        Marker { file, content: format!("{{\n  {}\n}}\n", lines.join(",\n  ")) }
    }

    fn read(&self, dir: &Path) -> Result<Option<Vec<u8>>, DemoError> {
        let path = dir.join(self.file);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(io("reading", &path, source)),
        }
    }
}

/// One utterance to synthesise.
pub(crate) struct Item {
    pub id: String,
    pub sentence: Sentence,
    pub voice: &'static Voice,
    pub seed: Seed,
}

impl Item {
    /// The `n`-th utterance of a corpus.
    pub fn new(n: usize, sentence: Sentence, voice: &'static Voice, seed: Seed) -> Self {
        let id = format!("{}_{}_{:05}", sentence.language.code(), voice.name, n + 1);
        Item { id, sentence, voice, seed: seed.derive("utterance").with(n as u64) }
    }
}

/// Writes a corpus of `items` to `dir`, on all cores. Existing synthetic speech is replaced; with the same marker nothing
/// changes. Returns the seconds of speech.
pub(crate) fn write_corpus(
    dir: &Path,
    items: &[Item],
    marker: &Marker,
    overwrite: bool,
    progress: &dyn Progress,
) -> Result<f64, DemoError> {
    let wavs = dir.join(AUDIO_FOLDER);
    claim_folder(dir, marker, overwrite)?;
    make_dir(&wavs)?;

    progress.start("speaking", items.len() as u64);
    let lengths: Result<Vec<usize>, DemoError> = items
        .par_iter()
        .map(|item| {
            let (samples, _) =
                synthesise(&item.sentence.normalised, item.sentence.language, item.voice, item.seed);
            store(&wavs.join(format!("{}.wav", item.id)), &encode_pcm16(&samples, SAMPLE_RATE))?;
            progress.advance(1);
            Ok(samples.len())
        })
        .collect();
    progress.finish();
    let samples: usize = lengths?.iter().sum();

    remove_stale(&wavs, items)?;
    sync_dir(&wavs)?;
    let lines = |line: &dyn Fn(&Item) -> String| items.iter().map(line).collect::<String>();
    let speakers =
        lines(&|item| format!("{}|{}|{}\n", item.id, item.voice.name, item.sentence.language.code()));
    store(&dir.join(SPEAKERS), speakers.as_bytes())?;
    let metadata =
        lines(&|item| format!("{}|{}|{}\n", item.id, item.sentence.text, item.sentence.normalised));
    store(&dir.join(METADATA), metadata.as_bytes())?;
    sync_dir(dir)?;
    Ok(samples as f64 / f64::from(SAMPLE_RATE))
}

/// Returns the seconds of speech if the folder already has what [`write_corpus`] would write; `None` otherwise.
pub(crate) fn existing_seconds(
    dir: &Path,
    items: &[Item],
    marker: &Marker,
) -> Result<Option<f64>, DemoError> {
    // The metadata is written last: if it exists, the audio files were written.
    if marker.read(dir)?.is_none_or(|found| found != marker.content.as_bytes())
        || !dir.join(METADATA).is_file()
    {
        return Ok(None);
    }
    let mut samples = 0;
    for item in items {
        let Ok(file) = std::fs::metadata(dir.join(AUDIO_FOLDER).join(format!("{}.wav", item.id))) else {
            return Ok(None);
        };
        samples += file.len().saturating_sub(WAV_HEADER) / 2;
    }
    Ok(Some(samples as f64 / f64::from(SAMPLE_RATE)))
}

/// Claims the folder: rejects one with other content, and removes the metadata of an older corpus before its first audio
/// file is replaced.
fn claim_folder(dir: &Path, marker: &Marker, overwrite: bool) -> Result<(), DemoError> {
    make_dir(dir)?;
    let path = dir.join(marker.file);
    match marker.read(dir)? {
        Some(bytes) if bytes == marker.content.as_bytes() => return Ok(()),
        Some(bytes) if String::from_utf8_lossy(&bytes).contains(MADE_BY) => {}
        _ => {
            let entries = std::fs::read_dir(dir).map_err(|source| io("listing", dir, source))?;
            // A run killed while writing its first file leaves only that partial file.
            let own = format!("{}{UNFINISHED}", marker.file);
            let foreign = |entry: std::io::Result<std::fs::DirEntry>| {
                entry.map_or(true, |entry| entry.file_name() != own.as_str())
            };
            if entries.into_iter().any(foreign) && !overwrite {
                return Err(DemoError::NotEmpty { dir: dir.to_owned() });
            }
        }
    }
    remove(&dir.join(METADATA))?;
    remove(&dir.join(SPEAKERS))?;
    store(&path, marker.content.as_bytes())
}

/// Removes audio files of an older synthetic corpus that are not part of this one, and nothing else.
fn remove_stale(wavs: &Path, items: &[Item]) -> Result<(), DemoError> {
    let wanted: HashSet<&str> = items.iter().map(|item| item.id.as_str()).collect();
    for found in std::fs::read_dir(wavs).map_err(|source| io("listing", wavs, source))? {
        let path = found.map_err(|source| io("listing", wavs, source))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
        let unfinished = path.extension().is_some_and(|extension| extension == &UNFINISHED[1..]);
        if let Some(id) = name.strip_suffix(".wav")
            && is_our_id(id)
            && (unfinished || !wanted.contains(id))
        {
            remove(&path)?;
        }
    }
    Ok(())
}

fn is_our_id(id: &str) -> bool {
    let mut parts = id.split('_');
    let (language, speaker, number) = (parts.next(), parts.next(), parts.next());
    parts.next().is_none()
        && language.and_then(Language::from_code).is_some()
        && speaker.and_then(Voice::from_name).is_some()
        && number.is_some_and(|number| number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn io(doing: &'static str, path: &Path, source: std::io::Error) -> DemoError {
    DemoError::Io { doing, path: path.to_owned(), source }
}

fn make_dir(dir: &Path) -> Result<(), DemoError> {
    std::fs::create_dir_all(dir).map_err(|source| io("creating", dir, source))
}

fn remove(path: &Path) -> Result<(), DemoError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(io("removing", path, source)),
        _ => Ok(()),
    }
}

/// Writes a temporary file and renames it; skips a file that already has this content.
fn store(path: &Path, bytes: &[u8]) -> Result<(), DemoError> {
    if std::fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(UNFINISHED);
    let temporary = PathBuf::from(temporary);
    let written = (|| {
        use std::io::Write;
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    })();
    written.map_err(|source| {
        _ = std::fs::remove_file(&temporary); // the error that matters is the first
        io("writing", path, source)
    })
}

/// Makes renames in a folder durable, if the system supports it.
fn sync_dir(dir: &Path) -> Result<(), DemoError> {
    if cfg!(unix) {
        let synced = std::fs::File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| io("syncing", dir, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_ids_are_recognised() {
        assert!(
            is_our_id("en_mina_00001") && is_our_id("fa_kian_123456") && is_our_id("en_voice-0300_00001")
        );
        for other in ["LJ001-0001", "en_mina_1", "en_mina_00001_x", "de_mina_00001", "en_anna_00001", ""] {
            assert!(!is_our_id(other), "{other}");
        }
    }
}
