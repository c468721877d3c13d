//! From settings to a corpus, its cache folder and what computes its features: the beginning that
//! several commands share.

use std::path::{Path, PathBuf};

use anyhow::Context;
use myxtts_data::cache::CacheError;
use myxtts_data::cache::names::INDEX_FILE;
use myxtts_data::dataset::split::split;
use myxtts_data::dataset::{self, Corpus, ReadOptions};
use myxtts_data::demo::{self, DemoOptions};
use myxtts_data::features::{Extractor, Recipe};
use myxtts_data::tokenizer::{self, TrainOptions};
use myxtts_data::utterance::Utterance;
use myxtts_run::durable::{self, Disk};
use myxtts_run::lock::FolderLock;
use myxtts_run::plan::{DataPlan, Plan};
use myxtts_run::progress::Progress;

/// Where a cache is kept, inside the corpus, unless the user says otherwise.
const CACHE_FOLDER: &str = ".myxtts-cache";
/// The vocabulary a cache was built with, beside its shards.
const TOKENIZER_FILE: &str = "tokenizer.json";
/// Where the demo corpus is made when no corpus is named.
const DEMO_FOLDER: &str = "demo";
/// The same for training.
const DEMO_VOICE_FOLDER: &str = "demo-voice";

/// The corpus the settings name, or the demo corpus where they name none.
pub fn read(plan: &DataPlan, progress: &dyn Progress) -> anyhow::Result<Corpus> {
    match &plan.train_data {
        Some(root) => read_from(root, plan, progress),
        None => {
            let root = Path::new(DEMO_FOLDER);
            progress.say(&format!("no corpus is named: taking the built-in demo corpus, in {DEMO_FOLDER}/"));
            demo::write(root, &DemoOptions::default(), progress)?;
            read_from(root, plan, progress)
        }
    }
}

/// The demo corpus that a voice is trained on where no corpus is named: two voices and one language, so that there is
/// something to hear after minutes.
pub fn read_demo_voice(plan: &DataPlan, progress: &dyn Progress) -> anyhow::Result<Corpus> {
    let root = Path::new(DEMO_VOICE_FOLDER);
    progress.say(&format!("no corpus is named: taking a built-in demo corpus, in {DEMO_VOICE_FOLDER}/"));
    let options = DemoOptions {
        utterances: 2400,
        speakers: 2,
        languages: vec![demo::Language::English],
        ..DemoOptions::default()
    };
    // The list is written last: where it is, the sounds are too.
    if !root.join("metadata.csv").is_file() {
        demo::write(root, &options, progress)?;
    }
    read_from(root, plan, progress)
}

/// A corpus; how it was understood is said aloud.
pub fn read_from(root: &Path, plan: &DataPlan, progress: &dyn Progress) -> anyhow::Result<Corpus> {
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

/// The utterances that training holds out and those it learns from.
pub fn sides<'a>(corpus: &'a Corpus, plan: &Plan) -> (Vec<&'a Utterance>, Vec<&'a Utterance>) {
    let ids = corpus.utterances.iter().map(|utterance| utterance.id.as_str());
    let split = split(ids, plan.data.val_fraction, plan.training.seed);
    let of = |side: Vec<usize>| side.into_iter().map(|i| &corpus.utterances[i]).collect();
    (of(split.validation), of(split.train))
}

/// The cache of a corpus.
pub fn cache_of(corpus: &Corpus, plan: &DataPlan) -> PathBuf {
    plan.cache_dir.clone().unwrap_or_else(|| corpus.root.join(CACHE_FOLDER))
}

/// The cache that a folder is or has inside.
pub fn cache_in(folder: &Path) -> PathBuf {
    if is_cache(folder) { folder.to_owned() } else { folder.join(CACHE_FOLDER) }
}

/// Whether a folder is itself a cache.
pub fn is_cache(folder: &Path) -> bool {
    folder.join(INDEX_FILE).is_file()
}

/// What computes the records of corpora, and the vocabulary it speaks.
pub struct Computing {
    /// The features.
    pub extractor: Extractor,
    /// Where a vocabulary that had to be trained is to be kept.
    keep_in: Option<PathBuf>,
}

impl Computing {
    /// Keeps a vocabulary that is new, before anything is built with it; as the one writer of the cache.
    pub fn keep_vocabulary(&self, disk: &dyn Disk) -> anyhow::Result<()> {
        let Some(cache) = &self.keep_in else { return Ok(()) };
        let keep = || -> Result<(), CacheError> {
            durable::create_folder(disk, cache)?;
            let _lock = FolderLock::acquire(cache)?;
            Ok(durable::write_with(disk, &cache.join(TOKENIZER_FILE), &self.extractor.tokenizer().to_json())?)
        };
        keep().context("keeping the vocabulary")
    }
}

/// What computes the records of `corpora`, with the vocabulary that belongs to `cache`.
pub fn extractor(
    corpora: &[&Corpus],
    cache: &Path,
    plan: &DataPlan,
    progress: &dyn Progress,
) -> anyhow::Result<Computing> {
    let recipe = Recipe::of(plan);
    let texts: Vec<(&str, &str)> = corpora
        .iter()
        .flat_map(|corpus| &corpus.utterances)
        .map(|utterance| (utterance.language.as_str(), utterance.text.as_str()))
        .collect();
    let options =
        TrainOptions { vocab_size: plan.vocab_size, cleaner: recipe.cleaner, ..TrainOptions::default() };
    let kept = cache.join(TOKENIZER_FILE);
    let chosen = tokenizer::choose(plan.tokenizer.as_deref(), &kept, &texts, &options)?;
    progress.say(&chosen.why);
    let keep_in = chosen.is_new.then(|| cache.to_owned());
    Ok(Computing { extractor: Extractor::new(recipe, chosen.tokenizer), keep_in })
}
