//! The corpus as a folder in LJSpeech's layout:
//!
//! | file | content |
//! |---|---|
//! | `metadata.csv` | `id\|text\|normalised text`, one utterance a line |
//! | `wavs/ID.wav` | 22,050 Hz, mono, 16-bit |
//! | `speakers.csv` | `id\|speaker\|language` |
//! | `demo-corpus.json` | what it was made from; by this file a folder is known to be ours |
//!
//! `demo-corpus.json` is written first and `metadata.csv` last: a run that was killed leaves a folder
//! that no reader takes for a corpus and that the next run completes.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use myxtts_run::progress::Progress;
use myxtts_run::seed::Seed;
use rayon::prelude::*;

use super::sentences::{Sentence, sentences};
use super::voice::{VOICES, Voice};
use super::{Language, SAMPLE_RATE, spoken};
use crate::audio::wav::encode_pcm16;

/// What to make.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// How many utterances, dealt evenly to languages and speakers.
    pub utterances: usize,
    /// The same seed gives the same corpus, byte for byte.
    pub seed: u64,
    /// How many of [`VOICES`] speak, from the first on.
    pub speakers: usize,
    /// The languages, each once.
    pub languages: Vec<Language>,
    /// Write into a folder that holds something else, replacing files of the same names.
    pub overwrite: bool,
}

impl Default for DemoOptions {
    fn default() -> Self {
        let languages = Language::ALL.to_vec();
        DemoOptions { utterances: 300, seed: 1, speakers: VOICES.len(), languages, overwrite: false }
    }
}

/// What was made.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoReport {
    /// The folder.
    pub dir: PathBuf,
    /// How many utterances it holds.
    pub utterances: usize,
    /// Their length together, in seconds.
    pub seconds: f64,
    /// Who speaks.
    pub speakers: Vec<&'static str>,
    /// In which languages, as codes.
    pub languages: Vec<&'static str>,
}

/// Why a corpus was not made.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Options out of range.
    #[error("{0}")]
    Options(String),
    /// The folder holds something else.
    #[error("{} is not empty and is no demo corpus: name another folder, or overwrite it (--force)", dir.display())]
    NotEmpty {
        /// The folder.
        dir: PathBuf,
    },
    /// Reading or writing failed.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

const MARKER: &str = "demo-corpus.json";
/// By this line of it.
const MADE_BY: &str = "\"made_by\": \"myxtts demo-corpus\"";
/// Raised whenever the same options begin to give other sentences or other sound.
const EDITION: u32 = 1;
const METADATA: &str = "metadata.csv";
const SPEAKERS: &str = "speakers.csv";
/// The end of the name of a file that is not finished.
const UNFINISHED: &str = ".unfinished";

/// One utterance to be made.
struct Item {
    id: String,
    sentence: Sentence,
    voice: &'static Voice,
    seed: Seed,
}

/// Makes the corpus in `dir`, which is created where it does not exist. A folder that holds a demo
/// corpus already is brought to these options; with the same options nothing in it changes.
pub fn write(dir: &Path, options: &DemoOptions, progress: &dyn Progress) -> Result<DemoReport, DemoError> {
    let items = plan(options)?;
    let marker = marker(options);
    let wavs = dir.join("wavs");
    open(dir, &marker, options.overwrite)?;
    make_dir(&wavs)?;

    progress.start("speaking", items.len() as u64);
    let lengths: Result<Vec<usize>, DemoError> = items
        .par_iter()
        .map(|item| {
            let (samples, _) = spoken(&item.sentence.text, item.sentence.language, item.voice, item.seed);
            store(&wavs.join(format!("{}.wav", item.id)), &encode_pcm16(&samples, SAMPLE_RATE))?;
            progress.advance(1);
            Ok(samples.len())
        })
        .collect();
    progress.finish();
    let samples: usize = lengths?.iter().sum();

    remove_stale(&wavs, &items)?;
    sync_dir(&wavs)?;
    let lines = |line: &dyn Fn(&Item) -> String| items.iter().map(line).collect::<String>();
    let speakers =
        lines(&|item| format!("{}|{}|{}\n", item.id, item.voice.name, item.sentence.language.code()));
    store(&dir.join(SPEAKERS), speakers.as_bytes())?;
    let metadata =
        lines(&|item| format!("{}|{}|{}\n", item.id, item.sentence.text, item.sentence.normalised));
    store(&dir.join(METADATA), metadata.as_bytes())?;
    sync_dir(dir)?;

    Ok(DemoReport {
        dir: dir.to_owned(),
        utterances: items.len(),
        seconds: samples as f64 / f64::from(SAMPLE_RATE),
        speakers: VOICES[..options.speakers].iter().map(|voice| voice.name).collect(),
        languages: options.languages.iter().map(|language| language.code()).collect(),
    })
}

/// Deals sentences to languages and speakers. The first n utterances do not depend on how many follow.
fn plan(options: &DemoOptions) -> Result<Vec<Item>, DemoError> {
    let DemoOptions { utterances, seed, speakers, ref languages, .. } = *options;
    let wrong = |message: String| Err(DemoError::Options(message));
    if !(1..=VOICES.len()).contains(&speakers) {
        return wrong(format!("{speakers} speakers were asked for: there are 1 to {}", VOICES.len()));
    }
    let distinct: HashSet<Language> = languages.iter().copied().collect();
    if languages.is_empty() || distinct.len() < languages.len() {
        return wrong("name each language once: en, fa, or both".to_owned());
    }
    if utterances == 0 {
        return wrong("0 utterances were asked for: at least 1".to_owned());
    }
    let seed = Seed::new(seed).derive("demo corpus");
    let each = utterances.div_ceil(languages.len());
    let mut texts: Vec<_> =
        languages.iter().map(|&language| sentences(language, seed, each).into_iter()).collect();
    let mut items = Vec::new();
    for i in 0..utterances {
        let language = i % languages.len();
        let Some(sentence) = texts[language].next() else {
            return wrong(format!(
                "{utterances} utterances were asked for, but after {i} there is no sentence left that was not said: ask for fewer"
            ));
        };
        let voice = &VOICES[i / languages.len() % speakers];
        let id = format!("{}_{}_{:05}", sentence.language.code(), voice.name, i + 1);
        items.push(Item { id, sentence, voice, seed: seed.derive("utterance").with(i as u64) });
    }
    Ok(items)
}

fn marker(options: &DemoOptions) -> String {
    let languages: Vec<String> =
        options.languages.iter().map(|language| format!("\"{}\"", language.code())).collect();
    format!(
        "{{\n  {MADE_BY},\n  \"note\": \"synthetic speech, no recording of a person\",\n  \
         \"edition\": {EDITION},\n  \"utterances\": {},\n  \"seed\": {},\n  \
         \"speakers\": {},\n  \"languages\": [{}]\n}}\n",
        options.utterances,
        options.seed,
        options.speakers,
        languages.join(", ")
    )
}

/// Makes the folder ours: refuses one that holds something else, and takes back the word of an older
/// corpus in it before the first of its sounds is replaced.
fn open(dir: &Path, marker: &str, overwrite: bool) -> Result<(), DemoError> {
    make_dir(dir)?;
    let path = dir.join(MARKER);
    let found = match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(source) => return Err(io("reading", &path, source)),
    };
    match found {
        Some(bytes) if bytes == marker.as_bytes() => return Ok(()),
        Some(bytes) if String::from_utf8_lossy(&bytes).contains(MADE_BY) => {}
        _ => {
            let entries = std::fs::read_dir(dir).map_err(|source| io("listing", dir, source))?;
            // A run killed at its very first file leaves only the beginning of that.
            let own = format!("{MARKER}{UNFINISHED}");
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
    store(&path, marker.as_bytes())
}

/// Removes sounds of an older demo corpus that this one does not have; nothing else.
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
        && speaker.and_then(Voice::named).is_some()
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

/// Writes a file beside its place and moves it there; leaves one alone that has the content already.
fn store(path: &Path, bytes: &[u8]) -> Result<(), DemoError> {
    if std::fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(UNFINISHED);
    let beside = PathBuf::from(beside);
    let written = (|| {
        use std::io::Write;
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    written.map_err(|source| {
        _ = std::fs::remove_file(&beside); // the error that matters is the first
        io("writing", path, source)
    })
}

/// Makes renames in a folder durable, where the system can.
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
    fn only_names_of_our_own_making_are_ours() {
        assert!(is_our_id("en_mina_00001") && is_our_id("fa_kian_123456"));
        for other in ["LJ001-0001", "en_mina_1", "en_mina_00001_x", "de_mina_00001", "en_anna_00001", ""] {
            assert!(!is_our_id(other), "{other}");
        }
    }

    #[test]
    fn utterances_are_dealt_evenly() {
        let options = DemoOptions { utterances: 60, ..DemoOptions::default() };
        let items = plan(&options).expect("the defaults are in range");
        for language in Language::ALL {
            for voice in &VOICES {
                let of_both = |item: &&Item| item.sentence.language == language && item.voice == voice;
                assert_eq!(items.iter().filter(of_both).count(), 10, "{language:?} {}", voice.name);
            }
        }
        let more = plan(&DemoOptions { utterances: 90, ..DemoOptions::default() }).expect("in range");
        assert!(items.iter().zip(&more).all(|(a, b)| a.id == b.id && a.sentence == b.sentence));
    }
}
