//! One corpus folder: reading it, the built-in demo corpora, and where its cache is stored.

use super::CorpusError;
use myxtts_data::cache::names::INDEX_FILE;
use myxtts_data::dataset::{self, Corpus, ReadOptions};
use myxtts_demo::{self as demo, DemoOptions};
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;
use std::path::{Path, PathBuf};

/// Folder of the cache inside the corpus, unless `data.cache_dir` names another.
const CACHE_FOLDER: &str = ".myxtts-cache";
/// Folder of the demo corpus in the working directory.
pub const DEMO_FOLDER: &str = "demo";
/// Folder of the demo corpus that `train` uses.
pub const DEMO_VOICE_FOLDER: &str = "demo-voice";
/// Longest clip of the demo corpus that `train` uses, in seconds.
pub const DEMO_VOICE_SECONDS: f64 = 3.2;

/// Reads the one corpus that the settings name, or the demo corpus if they name none.
pub fn read(plan: &DataPlan, progress: &dyn Progress) -> Result<Corpus, CorpusError> {
    match &plan.train_data[..] {
        [] => read_demo(plan, progress),
        [root] => read_from(root, plan, progress),
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            Err(CorpusError::SeveralCorpora { count: several.len(), names: names.join(", ") })
        }
    }
}

/// Writes and reads the demo corpus.
pub fn read_demo(plan: &DataPlan, progress: &dyn Progress) -> Result<Corpus, CorpusError> {
    let root = Path::new(DEMO_FOLDER);
    progress.say(&format!("no corpus given: using the built-in demo corpus in {DEMO_FOLDER}/"));
    demo::write(root, &DemoOptions::default(), progress)?;
    read_from(root, plan, progress)
}

/// Writes and reads the demo corpus for training: two voices and one language, so that there is something to hear after
/// minutes.
pub(crate) fn read_demo_voice(plan: &DataPlan, progress: &dyn Progress) -> Result<Corpus, CorpusError> {
    let root = Path::new(DEMO_VOICE_FOLDER);
    progress.say(&format!("no corpus given: using the built-in demo corpus in {DEMO_VOICE_FOLDER}/"));
    let options = DemoOptions {
        utterances: 2400,
        speakers: 2,
        languages: vec![demo::Language::English],
        max_seconds: Some(DEMO_VOICE_SECONDS),
        ..DemoOptions::default()
    };
    demo::ensure(root, &options, progress)?;
    read_from(root, plan, progress)
}

/// Reads a corpus folder or metadata file, and reports which layout was detected.
pub fn read_from(root: &Path, plan: &DataPlan, progress: &dyn Progress) -> Result<Corpus, CorpusError> {
    let options = ReadOptions {
        format: match plan.format.as_str() {
            "auto" => None,
            name => Some(name.parse()?),
        },
        language: plan.language.clone(),
        speaker: plan.speaker.clone(),
    };
    let corpus = dataset::read(root, &options)?;
    progress.say(&corpus.why);
    corpus.notes.iter().for_each(|note| progress.say(note));
    Ok(corpus)
}

/// The cache folder of a corpus.
pub fn cache_of(corpus: &Corpus, plan: &DataPlan) -> PathBuf {
    plan.cache_dir.clone().unwrap_or_else(|| corpus.root.join(CACHE_FOLDER))
}

/// The cache folder that `folder` is, or that it has inside.
pub fn cache_in(folder: &Path) -> PathBuf {
    if is_cache(folder) { folder.to_owned() } else { folder.join(CACHE_FOLDER) }
}

/// Whether a folder is itself a cache.
pub fn is_cache(folder: &Path) -> bool {
    folder.join(INDEX_FILE).is_file()
}
