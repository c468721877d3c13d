//! Corpora: one file per layout, detected by their content, all turned into [`Utterance`]s.
//!
//! Nothing is dropped in silence: what a layout declares becomes an utterance or a [`Problem`]. Whether
//! the sound file is there and what it holds is the business of [`crate::check`] and of preparing.
//!
//! | layout | declared by | sound |
//! |---|---|---|
//! | [`Format::LjSpeech`] | `metadata.csv`: `id\|text` or `id\|text\|normalised`; optional `speakers.csv`: `id\|speaker\|language` | `wavs/ID.*` |
//! | [`Format::Vctk`] | `txt/p225/p225_001.txt` | `wav48_silence_trimmed/p225/p225_001_mic1.flac`, `wav48/...` |
//! | [`Format::LibriTts`] | `SPEAKER/CHAPTER/ID.normalized.txt` | beside it |
//! | [`Format::CommonVoice`] | `validated.tsv` or `train.tsv` with a header | `clips/` |
//! | [`Format::Coqui`] | `metadata_train.csv`, `metadata_eval.csv`: `audio_file\|text\|speaker_name` | as written |
//! | [`Format::Folder`] | a `.txt` or `.lab` beside each sound | anywhere below |
//! | [`Format::Jsonl`] | one object a line: `audio_filepath`, `text`, `duration`, `speaker`, `lang` | as written |

mod common_voice;
mod coqui;
mod detect;
mod folder;
mod jsonl;
mod language;
mod libritts;
pub mod list;
mod ljspeech;
mod metadata;
pub(crate) mod script;
mod sounds;
pub mod split;
mod table;
mod transcript;
mod vctk;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use myxtts_run::exit::Exit;

use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::{Origin, Utterance};

pub use metadata::{Entry, LONGEST_LINE, Parsed};

/// The layouts that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// `metadata.csv` with bars and a folder of sounds named by id.
    LjSpeech,
    /// One folder per speaker under `txt/` and under `wav48*/`.
    Vctk,
    /// Speaker and chapter folders with `.normalized.txt` files.
    LibriTts,
    /// Mozilla's tab-separated tables and `clips/`.
    CommonVoice,
    /// What the XTTS fine-tuning demo writes.
    Coqui,
    /// Sounds with a text file beside each.
    Folder,
    /// One JSON object per line.
    Jsonl,
}

impl Format {
    /// All of them, in the order in which detection tries them: the most telling first.
    pub const ALL: [Format; 7] = [
        Format::Coqui,
        Format::LjSpeech,
        Format::CommonVoice,
        Format::Jsonl,
        Format::Vctk,
        Format::LibriTts,
        Format::Folder,
    ];

    /// The name used in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::LjSpeech => "ljspeech",
            Format::Vctk => "vctk",
            Format::LibriTts => "libritts",
            Format::CommonVoice => "common_voice",
            Format::Coqui => "coqui",
            Format::Folder => "folder",
            Format::Jsonl => "jsonl",
        }
    }

    /// The name people know it by.
    pub fn title(self) -> &'static str {
        match self {
            Format::LjSpeech => "LJSpeech",
            Format::Vctk => "VCTK",
            Format::LibriTts => "LibriTTS",
            Format::CommonVoice => "Common Voice",
            Format::Coqui => "Coqui CSV",
            Format::Folder => "folder",
            Format::Jsonl => "JSONL manifest",
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no layout's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no corpus format; known are: ljspeech, vctk, libritts, common_voice, coqui, folder, jsonl")]
pub struct UnknownFormat(String);

impl std::str::FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// What the user said about a corpus; everything else is found out.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The layout, instead of detecting it.
    pub format: Option<Format>,
    /// Language of utterances whose metadata names none; guessed from the script where this is empty.
    pub language: Option<String>,
    /// Speaker of utterances whose metadata names none; the folder's name where this is empty.
    pub speaker: Option<String>,
}

/// A corpus as declared: utterances sorted by id, and what could not become one.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The folder paths are relative to.
    pub root: PathBuf,
    /// Its layout.
    pub format: Format,
    /// Why this layout was chosen, to be said aloud.
    pub why: String,
    /// What else was decided without being asked, to be said aloud.
    pub notes: Vec<String>,
    /// In byte order of their ids, whatever order files and folders came in.
    pub utterances: Vec<Utterance>,
    /// What was declared but is no utterance, by file and line.
    pub problems: Vec<Problem>,
    /// Durations that the metadata declares, in seconds by id.
    pub declared_seconds: BTreeMap<String, f64>,
    /// Files beside the metadata that say something of its utterances: `speakers.csv`.
    pub beside: Vec<PathBuf>,
}

impl Corpus {
    /// What was declared and is no utterance: lines that cannot be read, ids that were taken. They count against the
    /// failure budget as utterances that cannot be used do.
    pub fn lost(&self) -> u64 {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error).count() as u64
    }

    /// Every file it was read from: metadata, transcripts and sounds, some of them more than once.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let declared =
            self.utterances.iter().flat_map(|one| [one.origin.file.as_path(), one.audio.as_path()]);
        let wrong = self.problems.iter().map(|problem| problem.origin.file.as_path());
        declared.chain(wrong).chain(self.beside.iter().map(PathBuf::as_path))
    }
}

/// Why a corpus could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The path names nothing.
    #[error("{path} does not exist; give the corpus folder or its metadata file")]
    NotFound {
        /// As given.
        path: PathBuf,
    },
    /// The path cannot be written down as text, and everything we store is text.
    #[error("{path} is not valid UTF-8; rename the folder")]
    PathNotUtf8 {
        /// As given.
        path: PathBuf,
    },
    /// No layout was recognised.
    #[error(
        "no corpus layout fits {root}; looked for:\n{looked_for}give --format to say what it is, or the metadata file itself"
    )]
    NothingFits {
        /// Where.
        root: PathBuf,
        /// One indented line per layout.
        looked_for: String,
    },
    /// The layout that was asked for is not there.
    #[error("{root} is not a {title} corpus: looked for {looked_for}")]
    NotThisFormat {
        /// Where.
        root: PathBuf,
        /// The layout's name.
        title: &'static str,
        /// What it needs.
        looked_for: &'static str,
    },
    /// A table without the header its layout needs.
    #[error("{file}: the first line is no header with the columns {wanted}: {found:?}")]
    NoHeader {
        /// The table.
        file: PathBuf,
        /// Columns that must be there.
        wanted: &'static str,
        /// What stands in the first line.
        found: String,
    },
    /// The metadata is in an encoding we do not read.
    #[error("{file} is {encoding}; save it as UTF-8 (iconv -f {encoding} -t UTF-8)")]
    Encoding {
        /// The file.
        file: PathBuf,
        /// What it is.
        encoding: &'static str,
    },
    /// A metadata file too large to be one.
    #[error("{file} has {bytes} bytes, more than the {limit} that metadata may have; split it")]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Its size.
        bytes: u64,
        /// The largest we read.
        limit: u64,
    },
    /// The system would not let us read.
    #[error("reading {path}: {source}")]
    Io {
        /// What was being read.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl DatasetError {
    /// The exit code a command ends with.
    pub fn exit(&self) -> Exit {
        match self {
            DatasetError::NotFound { .. } | DatasetError::PathNotUtf8 { .. } => Exit::Usage,
            DatasetError::Io { .. } => Exit::Io,
            DatasetError::NothingFits { .. }
            | DatasetError::NotThisFormat { .. }
            | DatasetError::NoHeader { .. }
            | DatasetError::Encoding { .. }
            | DatasetError::TooLarge { .. } => Exit::BadData,
        }
    }
}

/// What a layout declares, with its sound file looked up; ids may still repeat.
struct Draft {
    id: String,
    audio: PathBuf,
    text: String,
    speaker: Option<String>,
    language: Option<String>,
    seconds: Option<f64>,
    origin: Origin,
}

/// What a layout's reader hands over.
struct Reading {
    why: String,
    notes: Vec<String>,
    drafts: Vec<Draft>,
    problems: Vec<Problem>,
}

/// Reads a corpus. `root` is its folder or one of its metadata files.
pub fn read(root: &Path, options: &ReadOptions) -> Result<Corpus, DatasetError> {
    if root.to_str().is_none() {
        return Err(DatasetError::PathNotUtf8 { path: root.to_owned() });
    }
    let found = detect::detect(root, options.format)?;
    let place = &found.place;
    let reading = match found.format {
        Format::LjSpeech => ljspeech::read(place),
        Format::Vctk => vctk::read(place),
        Format::LibriTts => libritts::read(place),
        Format::CommonVoice => common_voice::read(place),
        Format::Coqui => coqui::read(place),
        Format::Folder => folder::read(place),
        Format::Jsonl => jsonl::read(place),
    }?;
    Ok(finish(found, reading, options))
}

/// The parsers by themselves, without a disk: any bytes in, every line an entry or a problem out.
///
/// Layouts without a metadata file ([`Format::Vctk`], [`Format::LibriTts`], [`Format::Folder`]) parse
/// one transcript file, which counts as one line.
pub fn parse_metadata(format: Format, bytes: &[u8], file: &Path) -> Parsed {
    match format {
        Format::LjSpeech => ljspeech::parse(bytes, file),
        Format::CommonVoice => common_voice::parse(bytes, file),
        Format::Coqui => coqui::parse(bytes, file),
        Format::Jsonl => jsonl::parse(bytes, file),
        Format::Vctk | Format::LibriTts | Format::Folder => transcript::parse(bytes, file),
    }
}

/// From drafts to utterances: ids made unique, speakers and languages filled in, order made canonical.
fn finish(found: detect::Found, reading: Reading, options: &ReadOptions) -> Corpus {
    let Reading { why, mut notes, drafts, mut problems } = reading;
    let mut first: HashMap<String, Origin> = HashMap::with_capacity(drafts.len());
    let mut kept = Vec::with_capacity(drafts.len());
    for draft in drafts {
        match first.get(&draft.id) {
            None => {
                first.insert(draft.id.clone(), draft.origin.clone());
                kept.push(draft);
            }
            Some(origin) => {
                let detail = format!(
                    "the id was declared before, at {origin}; that one counts, give this one an id of its own"
                );
                problems.push(Problem {
                    kind: ProblemKind::DuplicateId,
                    severity: Severity::Error,
                    id: Some(draft.id),
                    origin: draft.origin,
                    detail,
                });
            }
        }
    }
    let guess = language::fill_in(&mut kept, options.language.as_deref());
    notes.extend(guess);
    notes.extend(found.others);
    let speaker = options.speaker.clone().unwrap_or_else(|| name_of(&found.place.root));
    let mut declared_seconds = BTreeMap::new();
    let mut utterances: Vec<Utterance> = kept
        .into_iter()
        .map(|draft| {
            if let Some(seconds) = draft.seconds {
                declared_seconds.insert(draft.id.clone(), seconds);
            }
            Utterance {
                id: draft.id,
                audio: draft.audio,
                text: draft.text,
                speaker: draft.speaker.unwrap_or_else(|| speaker.clone()),
                language: draft.language.unwrap_or_else(|| "en".to_owned()),
                origin: draft.origin,
            }
        })
        .collect();
    utterances.sort_by(|a, b| a.id.cmp(&b.id));
    problems.sort_by(|a, b| {
        let key = |p: &Problem| (p.origin.file.clone(), p.origin.line, p.kind, p.id.clone());
        key(a).cmp(&key(b))
    });
    let beside = vec![found.place.root.join(ljspeech::SPEAKERS)];
    Corpus {
        beside: beside
            .into_iter()
            .filter(|file| found.format == Format::LjSpeech && file.is_file())
            .collect(),
        root: found.place.root,
        format: found.format,
        why: format!("{}: {why}", found.format.title()),
        notes,
        utterances,
        problems,
        declared_seconds,
    }
}

/// The name of a corpus: its folder's.
fn name_of(root: &Path) -> String {
    let whole;
    let name = match root.file_name() {
        Some(name) => Some(name),
        // `.` and `..` have no name of their own.
        None => {
            whole = root.canonicalize().unwrap_or_default();
            whole.file_name()
        }
    };
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| "speaker".to_owned())
}
