//! Corpora: one file per layout, detected by content, all converted into [`Utterance`]s.
//!
//! Nothing is dropped silently: each declared item becomes an utterance or a [`Problem`]. Whether the audio file exists and
//! decodes is tested later, by [`crate::check`] and by cache preparation.
//!
//! | layout | declared by | audio |
//! |---|---|---|
//! | [`Format::LjSpeech`] | `metadata.csv`: `id\|text` or `id\|text\|normalised`; optional `speakers.csv`: `id\|speaker\|language` | `wavs/ID.*` |
//! | [`Format::Vctk`] | `txt/p225/p225_001.txt` | `wav48_silence_trimmed/p225/p225_001_mic1.flac`, `wav48/...` |
//! | [`Format::LibriTts`] | `SPEAKER/CHAPTER/ID.normalized.txt` | next to the transcript |
//! | [`Format::CommonVoice`] | `validated.tsv` or `train.tsv` with a header | `clips/` |
//! | [`Format::Coqui`] | `metadata_train.csv`, `metadata_eval.csv`: `audio_file\|text\|speaker_name` | path as written |
//! | [`Format::Folder`] | a `.txt` or `.lab` next to each audio file | anywhere below the root |
//! | [`Format::Jsonl`] | one object per line: `audio_filepath`, `text`, `duration`, `speaker`, `lang` | path as written |

mod audio_files;
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
pub mod split;
mod table;
mod transcript;
mod vctk;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use myxtts_run::exit::Exit;

use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::{Origin, Utterance};

pub use metadata::{Entry, MAX_LINE_BYTES, Parsed};

/// Supported corpus layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// `metadata.csv` separated by bars, and a folder of audio files named by id.
    LjSpeech,
    /// One folder per speaker under `txt/` and under `wav48*/`.
    Vctk,
    /// Speaker and chapter folders with `.normalized.txt` files.
    LibriTts,
    /// Mozilla's tab-separated tables and `clips/`.
    CommonVoice,
    /// CSV files written by the XTTS fine-tuning demo.
    Coqui,
    /// Audio files, each with a text file of the same name next to it.
    Folder,
    /// One JSON object per line.
    Jsonl,
}

impl Format {
    /// All layouts in the order in which detection tries them, the most specific first.
    pub const ALL: [Format; 7] = [
        Format::Coqui,
        Format::LjSpeech,
        Format::CommonVoice,
        Format::Jsonl,
        Format::Vctk,
        Format::LibriTts,
        Format::Folder,
    ];

    /// The name used in configuration files and on the command line.
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

    /// The display name.
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

/// Error for a name that is not a corpus format.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a corpus format; expected one of {names}", names = Format::ALL.map(Format::name).join(", "))]
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

/// User-supplied settings for reading a corpus; unset values are detected.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Layout; `None` detects it.
    pub format: Option<Format>,
    /// Default language for utterances whose metadata has none; `None` guesses it from the script.
    pub language: Option<String>,
    /// Default speaker for utterances whose metadata has none; `None` uses the folder's name.
    pub speaker: Option<String>,
}

/// A corpus as declared: utterances sorted by id, and the declarations that could not become utterances.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// Folder that relative paths refer to.
    pub root: PathBuf,
    /// Detected or requested layout.
    pub format: Format,
    /// Why this layout was chosen, for display.
    pub why: String,
    /// Other decisions made by default, for display.
    pub notes: Vec<String>,
    /// Utterances in byte order of their ids, independent of the order of files and folders.
    pub utterances: Vec<Utterance>,
    /// Declarations that did not become utterances, sorted by file and line.
    pub problems: Vec<Problem>,
    /// Durations declared by the metadata, in seconds by id.
    pub declared_seconds: BTreeMap<String, f64>,
    /// Files next to the metadata that add to it: `speakers.csv`.
    pub side_files: Vec<PathBuf>,
}

impl Corpus {
    /// Number of declarations that did not become utterances: malformed lines and duplicate ids. They count against the
    /// failure budget like unusable utterances.
    pub fn rejected(&self) -> u64 {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error).count() as u64
    }

    /// Every file the corpus was read from: metadata, transcripts and audio. May repeat paths.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let declared = self
            .utterances
            .iter()
            .flat_map(|utterance| [utterance.origin.file.as_path(), utterance.audio.as_path()]);
        let faulty = self.problems.iter().map(|problem| problem.origin.file.as_path());
        declared.chain(faulty).chain(self.side_files.iter().map(PathBuf::as_path))
    }
}

/// Errors that prevent a corpus from being read at all.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The path does not exist.
    #[error("{path} does not exist; give the corpus folder or its metadata file")]
    NotFound {
        /// Path as given.
        path: PathBuf,
    },
    /// The path is not UTF-8; paths are stored as text in JSON files.
    #[error("{path} is not valid UTF-8; rename the folder")]
    PathNotUtf8 {
        /// Path as given.
        path: PathBuf,
    },
    /// No layout was recognised.
    #[error(
        "{root} matches no corpus layout; looked for:\n{expected}set --format, or pass the metadata file itself"
    )]
    UnknownLayout {
        /// Folder or file that was inspected.
        root: PathBuf,
        /// One indented line per layout.
        expected: String,
    },
    /// The folder does not have the requested layout.
    #[error("{root} is not a {title} corpus: looked for {expected}")]
    FormatMismatch {
        /// Folder or file that was inspected.
        root: PathBuf,
        /// Display name of the layout.
        title: &'static str,
        /// Files the layout requires.
        expected: &'static str,
    },
    /// A table without the header its layout needs.
    #[error("{file}: expected a header with the columns {wanted} in the first line, found {found:?}")]
    NoHeader {
        /// The table.
        file: PathBuf,
        /// Required columns.
        wanted: &'static str,
        /// The first line of the file.
        found: String,
    },
    /// The metadata is in an unsupported encoding.
    #[error("{file} is {encoding}; save it as UTF-8 (iconv -f {encoding} -t UTF-8)")]
    Encoding {
        /// The metadata file.
        file: PathBuf,
        /// Name of the detected encoding, as `iconv` spells it.
        encoding: &'static str,
    },
    /// A metadata file over the size limit.
    #[error("{file} has {bytes} bytes, more than the {limit} that metadata may have; split it")]
    TooLarge {
        /// The metadata file.
        file: PathBuf,
        /// Size in bytes.
        bytes: u64,
        /// Largest accepted size in bytes.
        limit: u64,
    },
    /// An operating system error.
    #[error("reading {path}: {source}")]
    Io {
        /// File or folder being read.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
}

impl DatasetError {
    /// The exit code a command ends with.
    pub fn exit(&self) -> Exit {
        match self {
            DatasetError::NotFound { .. } | DatasetError::PathNotUtf8 { .. } => Exit::Usage,
            DatasetError::Io { .. } => Exit::Io,
            DatasetError::UnknownLayout { .. }
            | DatasetError::FormatMismatch { .. }
            | DatasetError::NoHeader { .. }
            | DatasetError::Encoding { .. }
            | DatasetError::TooLarge { .. } => Exit::BadData,
        }
    }
}

/// One declared utterance with its audio path resolved; ids are not yet unique.
struct Draft {
    id: String,
    audio: PathBuf,
    text: String,
    speaker: Option<String>,
    language: Option<String>,
    seconds: Option<f64>,
    origin: Origin,
}

/// Output of a layout's reader.
struct RawCorpus {
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
    let location = &found.location;
    let raw = match found.format {
        Format::LjSpeech => ljspeech::read(location),
        Format::Vctk => vctk::read(location),
        Format::LibriTts => libritts::read(location),
        Format::CommonVoice => common_voice::read(location),
        Format::Coqui => coqui::read(location),
        Format::Folder => folder::read(location),
        Format::Jsonl => jsonl::read(location),
    }?;
    Ok(finish(found, raw, options))
}

/// Parses metadata without touching the disk: any bytes in, one entry or problem per line out.
///
/// Layouts without a metadata file ([`Format::Vctk`], [`Format::LibriTts`], [`Format::Folder`]) parse one transcript file,
/// which counts as one line.
pub fn parse_metadata(format: Format, bytes: &[u8], file: &Path) -> Parsed {
    match format {
        Format::LjSpeech => ljspeech::parse(bytes, file),
        Format::CommonVoice => common_voice::parse(bytes, file),
        Format::Coqui => coqui::parse(bytes, file),
        Format::Jsonl => jsonl::parse(bytes, file),
        Format::Vctk | Format::LibriTts | Format::Folder => transcript::parse(bytes, file),
    }
}

/// Converts drafts to utterances: rejects duplicate ids, fills in speakers and languages, sorts.
fn finish(found: detect::Found, raw: RawCorpus, options: &ReadOptions) -> Corpus {
    let RawCorpus { why, mut notes, drafts, mut problems } = raw;
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
                    "the id was already declared at {origin} and that declaration is used; give this utterance a different id"
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
    let note = language::fill_in(&mut kept, options.language.as_deref());
    notes.extend(note);
    notes.extend(found.others);
    let speaker = options.speaker.clone().unwrap_or_else(|| folder_name(&found.location.root));
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
    let side_files = vec![found.location.root.join(ljspeech::SPEAKERS)];
    Corpus {
        side_files: side_files
            .into_iter()
            .filter(|file| found.format == Format::LjSpeech && file.is_file())
            .collect(),
        root: found.location.root,
        format: found.format,
        why: format!("{}: {why}", found.format.title()),
        notes,
        utterances,
        problems,
        declared_seconds,
    }
}

/// Name of the corpus folder, used as the default speaker.
fn folder_name(root: &Path) -> String {
    let absolute;
    let name = match root.file_name() {
        Some(name) => Some(name),
        // `.` and `..` have no file name; the canonical path does.
        None => {
            absolute = root.canonicalize().unwrap_or_default();
            absolute.file_name()
        }
    };
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| "speaker".to_owned())
}
