//! From settings to a corpus, its cache folder and what computes its features: the beginning that
//! several commands share.

use std::path::{Path, PathBuf};

use myxtts_data::cache::names::INDEX_FILE;
use myxtts_data::cache::{CacheError, Fingerprint};
use myxtts_data::dataset::{self, Corpus, ReadOptions};
use myxtts_data::demo::{self, DemoOptions};
use myxtts_data::features::{Extractor, Recipe};
use myxtts_data::text::Cleaner;
use myxtts_data::tokenizer::{self, Adopted, Chosen, Tokenizer, TrainOptions, choose_cleaner};
use myxtts_run::durable::{self, Disk};
use myxtts_run::lock::FolderLock;
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;

use crate::failure::UsageError;

/// Where a cache is kept, inside the corpus, unless the user says otherwise.
const CACHE_FOLDER: &str = ".myxtts-cache";
/// The vocabulary a cache was built with, beside its shards.
const TOKENIZER_FILE: &str = "tokenizer.json";
/// Where the demo corpus is made when no corpus is named.
pub const DEMO_FOLDER: &str = "demo";
/// The same for training.
pub const DEMO_VOICE_FOLDER: &str = "demo-voice";
/// No clip of it is longer; the demonstration trains on clips up to that length.
pub const DEMO_VOICE_SECONDS: f64 = 3.2;

/// The corpus the settings name, or the demo corpus where they name none.
pub fn read(plan: &DataPlan, progress: &dyn Progress) -> anyhow::Result<Corpus> {
    match &plan.train_data[..] {
        [] => read_demo(plan, progress),
        [root] => read_from(root, plan, progress),
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            Err(UsageError(format!(
                "this command looks at one corpus at a time, and data.train_data names {}: {}",
                several.len(),
                names.join(", ")
            ))
            .into())
        }
    }
}

/// The demo corpus.
pub fn read_demo(plan: &DataPlan, progress: &dyn Progress) -> anyhow::Result<Corpus> {
    let root = Path::new(DEMO_FOLDER);
    progress.say(&format!("no corpus is named: taking the built-in demo corpus, in {DEMO_FOLDER}/"));
    demo::write(root, &DemoOptions::default(), progress)?;
    read_from(root, plan, progress)
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
        max_seconds: Some(DEMO_VOICE_SECONDS),
        ..DemoOptions::default()
    };
    demo::ensure(root, &options, progress)?;
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
    /// The folder of the cache they are kept in.
    pub cache: PathBuf,
    /// The file of the vocabulary.
    vocabulary: PathBuf,
    /// It is new: to be kept.
    is_new: bool,
    /// Pieces that were added to a model's.
    added: usize,
}

impl Computing {
    /// Keeps a vocabulary that is new, before anything is built with it; as the one writer of the cache.
    pub fn keep_vocabulary(&self, disk: &dyn Disk) -> Result<(), CacheError> {
        let written = self.extractor.tokenizer().to_json();
        // Another that was started at the same moment may have made the same: it need not be waited for.
        if !self.is_new || std::fs::read(&self.vocabulary).is_ok_and(|kept| kept == written) {
            return Ok(());
        }
        durable::create_folder(disk, &self.cache)?;
        let _lock = FolderLock::acquire(&self.cache)?;
        Ok(durable::write_with(disk, &self.vocabulary, &written)?)
    }

    /// The same for another cache, where the vocabulary is known already.
    pub fn in_cache(&self, cache: PathBuf) -> anyhow::Result<Computing> {
        let tokenizer = Tokenizer::from_bytes(&self.extractor.tokenizer().to_json(), &self.vocabulary)?;
        Ok(Computing {
            extractor: Extractor::new(self.extractor.recipe().clone(), tokenizer),
            cache,
            vocabulary: self.vocabulary.clone(),
            is_new: false,
            added: self.added,
        })
    }

    /// How its texts are cleaned.
    pub fn cleaner(&self) -> Cleaner {
        self.extractor.recipe().cleaner
    }

    /// The vocabulary as a stage of training: how many pieces, and where they are.
    pub fn described(&self) -> String {
        let (pieces, path) = (self.extractor.tokenizer().pieces(), self.vocabulary.display());
        let added = match self.added {
            0 => String::new(),
            added => format!(", {added} of them beyond the model's"),
        };
        format!("tokenizer    {pieces} pieces{added}, kept in {path}")
    }
}

/// What computes the records of `corpora`, with the vocabulary that belongs to `cache`.
pub fn extractor(
    corpora: &[&Corpus],
    cache: &Path,
    plan: &DataPlan,
    progress: &dyn Progress,
) -> anyhow::Result<Computing> {
    let kept = cache.join(TOKENIZER_FILE);
    let texts = texts_of(corpora);
    let plan = &with_cleaner(plan, None, &texts, progress)?;
    let chosen = tokenizer::choose(plan.tokenizer.as_deref(), &kept, &texts, &options_of(plan, &texts))?;
    Ok(computing(Adopted { chosen, added: 0 }, cache, plan, progress))
}

/// What computes the records of a corpus for a model with the vocabulary `base`: with that one, extended where it cannot
/// say something.
///
/// Its cache is one of its own, inside the corpus's: the same records cut by another vocabulary are other records, and
/// what was prepared for training from nothing stays as it is. Only where both have the same vocabulary, they share one.
pub fn extractor_of_model(
    base: &Tokenizer,
    corpus: &Corpus,
    plan: &DataPlan,
    progress: &dyn Progress,
) -> anyhow::Result<Computing> {
    let texts = texts_of(&[corpus]);
    let plan = &with_cleaner(plan, Some(base), &texts, progress)?;
    let options = options_of(plan, &texts);
    let home = cache_of(corpus, plan);
    let own = home.join(format!("from-{}", short(&base.fingerprint())));
    let given = plan.tokenizer.as_deref();
    if Tokenizer::load(&home.join(TOKENIZER_FILE)).is_ok_and(|kept| kept.fingerprint() == base.fingerprint())
    {
        let adopted = tokenizer::adopt(base, given, &home.join(TOKENIZER_FILE), &texts, &options)?;
        if adopted.added == 0 {
            return Ok(computing(adopted, &home, plan, progress));
        }
    }
    let adopted = tokenizer::adopt(base, given, &own.join(TOKENIZER_FILE), &texts, &options)?;
    Ok(computing(adopted, &own, plan, progress))
}

/// What computes the records of several corpora: with one vocabulary of all of them, or a model's. It is kept in `home`, in a
/// folder named by what it was made of, so that the same corpora find it again and others do not take it for theirs.
pub fn extractor_of_several(
    base: Option<&Tokenizer>,
    corpora: &[&Corpus],
    home: &Path,
    plan: &DataPlan,
    progress: &dyn Progress,
) -> anyhow::Result<Computing> {
    let mut texts = texts_of(corpora);
    let plan = &with_cleaner(plan, base, &texts, progress)?;
    let options = options_of(plan, &texts);
    // The order in which corpora are named makes no other vocabulary.
    texts.sort_unstable();
    let mut print = Fingerprint::new("vocabulary of several corpora")
        .bytes("base", &base.map(Tokenizer::fingerprint).unwrap_or_default())
        .number("size", options.vocab_size as u64)
        .text("cleaner", &options.cleaner.to_string());
    for (language, text) in &texts {
        print = print.text("language", language).text("text", text);
    }
    let own = home.join(format!("joint-{}", short(&print.finish())));
    let (given, kept) = (plan.tokenizer.as_deref(), own.join(TOKENIZER_FILE));
    let adopted = match base {
        Some(base) => tokenizer::adopt(base, given, &kept, &texts, &options)?,
        None => Adopted { chosen: tokenizer::choose(given, &kept, &texts, &options)?, added: 0 },
    };
    Ok(computing(adopted, &own, plan, progress))
}

/// The cache of a corpus for records that are cut by a vocabulary of another corpus: inside the corpus's own, unless both have
/// the same.
pub fn cache_for(home: &Path, vocabulary: &Tokenizer) -> PathBuf {
    match Tokenizer::load(&home.join(TOKENIZER_FILE)) {
        Ok(kept) if kept.fingerprint() == vocabulary.fingerprint() => home.to_owned(),
        _ => home.join(format!("from-{}", short(&vocabulary.fingerprint()))),
    }
}

/// The beginning of an identity, as a part of a folder's name.
fn short(hash: &[u8; 32]) -> String {
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The settings with a cleaner: the one they name, else the one that suits the texts, which is said. `vocabulary` is that of a
/// model, or of the file that is given.
pub fn with_cleaner(
    plan: &DataPlan,
    vocabulary: Option<&Tokenizer>,
    texts: &[(&str, &str)],
    progress: &dyn Progress,
) -> anyhow::Result<DataPlan> {
    let written = plan.cleaner.as_deref().map(str::parse).transpose()?;
    let given = match &plan.tokenizer {
        Some(file) if vocabulary.is_none() && written.is_none() => Some(Tokenizer::load(file)?),
        _ => None,
    };
    let chosen = choose_cleaner(written, vocabulary.or(given.as_ref()), texts);
    chosen.line().iter().for_each(|line| progress.say(line));
    Ok(DataPlan { cleaner: Some(chosen.cleaner.to_string()), ..plan.clone() })
}

/// Language and transcript of every utterance.
pub fn texts_of<'a>(corpora: &[&'a Corpus]) -> Vec<(&'a str, &'a str)> {
    let utterances = corpora.iter().flat_map(|corpus| &corpus.utterances);
    utterances.map(|utterance| (utterance.language.as_str(), utterance.text.as_str())).collect()
}

fn options_of(plan: &DataPlan, texts: &[(&str, &str)]) -> TrainOptions {
    let characters = texts.iter().map(|(_, text)| text.chars().count()).sum();
    let vocab_size = plan.vocab_size.unwrap_or_else(|| tokenizer::size_for(characters));
    TrainOptions { vocab_size, cleaner: Recipe::of(plan).cleaner, ..TrainOptions::default() }
}

fn computing(adopted: Adopted, cache: &Path, plan: &DataPlan, progress: &dyn Progress) -> Computing {
    let Adopted { chosen: Chosen { tokenizer, why, is_new }, added } = adopted;
    progress.say(&why);
    Computing {
        extractor: Extractor::new(Recipe::of(plan), tokenizer),
        cache: cache.to_owned(),
        vocabulary: plan.tokenizer.clone().unwrap_or_else(|| cache.join(TOKENIZER_FILE)),
        is_new,
        added,
    }
}
