//! Inputs for the tests of settings: a corpus of a few synthetic sentences, and generated records.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use myxtts_data::audio::wav;
use myxtts_data::record::{COLUMNS, Column, DVAE_MEL, Dtype, RecordError, RecordSource, TOKENS, WAVEFORM};
use myxtts_data::tokenizer::{self, Tokenizer, TrainOptions};
use myxtts_demo::{self as demo, Language, SAMPLE_RATE, VOICES};
use myxtts_run::config::{Flag, HostResources, Sources};
use myxtts_run::plan::Plan;
use myxtts_train::samples::Sentence;
use myxtts_train::training_data::Corpus;

/// Sentences of different lengths, one with numbers that cleaners expand differently.
const SENTENCES: [&str; 9] = [
    "Hello.",
    "A quiet morning.",
    "The sea is calm and the wind is warm.",
    "We walk home.",
    "On May 5, 1999 at 3:30 pm 2.5 km cost $5.50.",
    "The old stone bridge near the old mill is the oldest stone bridge near the river.",
    "Rain falls on the roof.",
    "Nobody knows the way.",
    "Red boats sail south.",
];

/// A folder with two corpora, and plans that write inside it.
pub struct TestFolder {
    folder: tempfile::TempDir,
    plans: Cell<usize>,
}

impl TestFolder {
    pub fn new() -> TestFolder {
        let test = TestFolder { folder: tempfile::tempdir().unwrap(), plans: Cell::new(0) };
        write_corpus(&test.path("corpus"), "a", &SENTENCES);
        write_corpus(&test.path("other"), "b", &SENTENCES[1..4]);
        // Listed in the metadata, but not audio.
        fs::write(test.path("corpus/wavs/a-broken.wav"), b"RIFF").unwrap();
        let metadata = fs::read_to_string(test.path("corpus/metadata.csv")).unwrap();
        fs::write(test.path("corpus/metadata.csv"), metadata + "a-broken|Nothing.|Nothing.\n").unwrap();
        let vocabulary =
            tokenizer::train([("en", "abcdefghijklmnopqrstuvwxyz,. 0123456789 hello")], &options(70));
        fs::write(test.path("vocab.json"), vocabulary.unwrap().to_json()).unwrap();
        test
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A plan with small defaults and the given settings; `@` stands for this folder. Every plan writes to folders of its own.
    pub fn plan(&self, set: &[&str]) -> Result<Plan, String> {
        self.plans.set(self.plans.get() + 1);
        let own = self.plans.get();
        let common = [
            "data.train_data=@/corpus".to_owned(),
            format!("data.cache_dir=@/cache-{own}"),
            format!("training.runs_dir=@/runs-{own}"),
            "data.auto_tune_performance=false".to_owned(),
            "data.failure_budget=0.5".to_owned(),
            "data.num_workers=1".to_owned(),
            "data.cache_columns=tokens, dvae_mel, conditioning_mel, speaker_mel, waveform".to_owned(),
            "data.batch_size=2".to_owned(),
            "data.dvae_batch_size=2".to_owned(),
            "model.preset=tiny".to_owned(),
            "training.dvae_steps=4".to_owned(),
            "training.gpt_steps=2".to_owned(),
            "training.validate_every=0".to_owned(),
            "training.sample_every=0".to_owned(),
            "training.checkpoint_every=0".to_owned(),
        ];
        let set = set.iter().map(|text| (*text).to_owned());
        let here = self.folder.path().display().to_string();
        let command_line =
            common.into_iter().chain(set).map(|text| Flag::Set(text.replace('@', &here))).collect();
        let machine = HostResources { cores: 4, memory_bytes: Some(4 << 30) };
        Plan::resolve(&Sources { command_line, ..Sources::for_host(machine) })
            .map_err(|error| error.to_string())
    }
}

fn options(vocab_size: usize) -> TrainOptions {
    TrainOptions { vocab_size, ..TrainOptions::default() }
}

/// Writes a corpus that names neither speakers nor languages, with silence around the speech.
fn write_corpus(root: &Path, name: &str, sentences: &[&str]) {
    fs::create_dir_all(root.join("wavs")).unwrap();
    let mut metadata = String::new();
    for (i, text) in sentences.iter().enumerate() {
        let silence = vec![0.0; SAMPLE_RATE as usize / 3];
        let speech = demo::speak(text, Language::English, &VOICES[0]);
        // A faint hum before the speech: whether it counts as silence depends on the threshold.
        let hum = (0..SAMPLE_RATE as usize / 3).map(|i| 0.01 * (i as f32 * 0.05).sin());
        let samples: Vec<f32> =
            silence.iter().copied().chain(hum).chain(speech).chain(silence.clone()).collect();
        let id = format!("{name}-{i}");
        fs::write(root.join(format!("wavs/{id}.wav")), wav::encode_pcm16(&samples, SAMPLE_RATE)).unwrap();
        metadata += &format!("{id}|{text}|{text}\n");
    }
    fs::write(root.join("metadata.csv"), metadata).unwrap();
}

/// Generated clips of many lengths by two speakers, one of them rare.
pub struct GeneratedRecords {
    pub mels: Mels,
}

/// The values of the DVAE mels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mels {
    Normal,
    /// One clip is far from all others.
    Outlier,
    Nan,
}

pub const CLIPS: u32 = 14;

impl RecordSource for GeneratedRecords {
    fn columns(&self) -> &[Column] {
        &COLUMNS
    }
    fn len(&self) -> usize {
        CLIPS as usize
    }
    fn rows(&self, record: usize, column: usize) -> u32 {
        let frames = 40 + 16 * (record as u32 * 5 % CLIPS / 2);
        match COLUMNS[column] {
            TOKENS => 4 + (record as u32 * 5) % 9,
            WAVEFORM => frames * 256,
            _ => frames,
        }
    }
    fn speaker(&self, record: usize) -> u32 {
        u32::from(record.is_multiple_of(5))
    }
    fn language(&self, _: usize) -> u32 {
        0
    }
    fn speakers(&self) -> &[String] {
        static NAMES: OnceLock<Vec<String>> = OnceLock::new();
        NAMES.get_or_init(|| vec!["often".into(), "rarely".into()])
    }
    fn languages(&self) -> &[String] {
        &self.speakers()[..1]
    }
    fn id(&self, record: usize) -> String {
        format!("clip-{record}")
    }
    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let described = COLUMNS[column];
        let there = self.rows(record, column).saturating_sub(first) as usize;
        let rows = (out.len() / described.row_bytes()).min(there);
        let numbers = out[..rows * described.row_bytes()].chunks_exact_mut(described.dtype.size());
        for (i, bytes) in numbers.enumerate() {
            let at = first as usize * described.width as usize + i;
            let wave = (at as f32 * 0.37 + record as f32).sin();
            match described.dtype {
                Dtype::I16 => bytes.copy_from_slice(&((wave * 9000.0) as i16).to_le_bytes()),
                Dtype::I32 => bytes.copy_from_slice(&token(at, record).to_le_bytes()),
                Dtype::F32 => {
                    let x = match self.mels {
                        Mels::Nan if described == DVAE_MEL => f32::NAN,
                        Mels::Outlier if described == DVAE_MEL && record == 3 => 40.0 + 40.0 * wave,
                        _ => -6.0 + 3.0 * wave,
                    };
                    bytes.copy_from_slice(&x.to_le_bytes());
                }
            }
        }
        Ok(rows as u32)
    }
    fn fingerprint(&self) -> [u8; 32] {
        [self.mels as u8; 32]
    }
}

fn vocabulary() -> Tokenizer {
    tokenizer::train([("en", "hello world, this is a voice")], &options(64)).unwrap()
}

/// The token at a position of a clip: words of two letters.
fn token(at: usize, record: usize) -> i32 {
    static LETTERS: OnceLock<(i32, Vec<i32>)> = OnceLock::new();
    let (space, letters) = LETTERS.get_or_init(|| {
        let vocabulary = vocabulary();
        let is_letter = |id: &i32| {
            let mut piece = vocabulary.piece(*id).chars();
            piece.next().is_some_and(char::is_alphabetic) && piece.next().is_none()
        };
        (vocabulary.space_id(), (0..vocabulary.pieces() as i32).filter(is_letter).collect())
    });
    if at % 3 == 2 { *space } else { letters[(at + record) % letters.len()] }
}

/// A clip of the validation set that is sampled.
pub fn sentence() -> Sentence {
    Sentence {
        name: "clip".to_owned(),
        text: "hello".to_owned(),
        language: "en".to_owned(),
        record: CLIPS - 1,
        recording: PathBuf::new(),
        reference: PathBuf::new(),
    }
}

/// The generated clips as a corpus; the last two are the validation set.
pub fn generated_corpus(mels: Mels) -> Corpus {
    Corpus {
        source: Arc::new(GeneratedRecords { mels }),
        train: (0..CLIPS - 2).collect(),
        validation: (CLIPS - 2..CLIPS).collect(),
        tokenizer: vocabulary(),
        sentences: Vec::new(),
        data_side: None,
    }
}
