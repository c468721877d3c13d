//! The vocabulary of a corpus, and the extractor that computes its records with it.

use super::CorpusError;
use super::read::cache_of;
use myxtts_data::cache::{CacheError, Fingerprint};
use myxtts_data::dataset::Corpus;
use myxtts_data::features::{Extractor, Recipe};
use myxtts_data::tokenizer::{
    self, AdoptedVocabulary, Tokenizer, TrainOptions, VocabularyChoice, choose_cleaner,
};
use myxtts_run::durable::{self, Disk};
use myxtts_run::lock::FolderLock;
use myxtts_run::plan::DataPlan;
use myxtts_run::progress::Progress;
use myxtts_text::Cleaner;
use std::path::{Path, PathBuf};

/// File of the vocabulary that a cache was built with, next to its shards.
const TOKENIZER_FILE: &str = "tokenizer.json";

/// How the records of corpora are computed: an extractor with its vocabulary, and the cache they are stored in.
pub struct FeatureSetup {
    /// Computes the arrays of a record.
    pub extractor: Extractor,
    /// Folder of the cache.
    pub cache: PathBuf,
    vocabulary_file: PathBuf,
    /// Whether the vocabulary was just trained or extended and is not on disk yet.
    is_new: bool,
    /// Number of pieces added to the vocabulary of a model.
    added: usize,
}

impl FeatureSetup {
    /// The setup for `corpora`, with the vocabulary that belongs to `cache`: the saved one, or a new one.
    pub fn for_cache(
        corpora: &[&Corpus],
        cache: &Path,
        plan: &DataPlan,
        progress: &dyn Progress,
    ) -> Result<FeatureSetup, CorpusError> {
        let saved = cache.join(TOKENIZER_FILE);
        let texts = texts_of(corpora);
        let plan = &with_cleaner(plan, None, &texts, progress)?;
        let options = train_options(plan, &texts);
        let chosen = tokenizer::choose(plan.tokenizer.as_deref(), &saved, &texts, &options)?;
        Ok(FeatureSetup::new(AdoptedVocabulary { chosen, added: 0 }, cache, plan, progress))
    }

    /// The setup for a corpus and a model with the vocabulary `base`: that vocabulary, extended if it lacks a character
    /// or language.
    ///
    /// Its cache is a subfolder of the corpus cache: the same clips tokenised with another vocabulary are different records,
    /// and a cache prepared for training from scratch stays as it is. The two share one cache only if their vocabularies are
    /// equal.
    pub(crate) fn for_model(
        base: &Tokenizer,
        corpus: &Corpus,
        plan: &DataPlan,
        progress: &dyn Progress,
    ) -> Result<FeatureSetup, CorpusError> {
        let texts = texts_of(&[corpus]);
        let plan = &with_cleaner(plan, Some(base), &texts, progress)?;
        let options = train_options(plan, &texts);
        let home = cache_of(corpus, plan);
        let own = home.join(format!("from-{}", short(&base.fingerprint())));
        let given = plan.tokenizer.as_deref();
        let saved = home.join(TOKENIZER_FILE);
        if Tokenizer::load(&saved).is_ok_and(|saved| saved.fingerprint() == base.fingerprint()) {
            let adopted = tokenizer::adopt(base, given, &saved, &texts, &options)?;
            if adopted.added == 0 {
                return Ok(FeatureSetup::new(adopted, &home, plan, progress));
            }
        }
        let adopted = tokenizer::adopt(base, given, &own.join(TOKENIZER_FILE), &texts, &options)?;
        Ok(FeatureSetup::new(adopted, &own, plan, progress))
    }

    /// The setup for several corpora: one vocabulary for all of them, or that of a model. It is stored in `home`, in a folder
    /// named after the texts and options it was trained with, so that the same corpora find it again and others do not.
    pub(crate) fn for_several(
        base: Option<&Tokenizer>,
        corpora: &[&Corpus],
        home: &Path,
        plan: &DataPlan,
        progress: &dyn Progress,
    ) -> Result<FeatureSetup, CorpusError> {
        let mut texts = texts_of(corpora);
        let plan = &with_cleaner(plan, base, &texts, progress)?;
        let options = train_options(plan, &texts);
        // The order in which corpora are named must not change the vocabulary.
        texts.sort_unstable();
        let mut print = Fingerprint::new("vocabulary of several corpora")
            .bytes("base", &base.map(Tokenizer::fingerprint).unwrap_or_default())
            .number("size", options.vocab_size as u64)
            .text("cleaner", &options.cleaner.to_string());
        for (language, text) in &texts {
            print = print.text("language", language).text("text", text);
        }
        let own = home.join(format!("joint-{}", short(&print.finish())));
        let (given, saved) = (plan.tokenizer.as_deref(), own.join(TOKENIZER_FILE));
        let adopted = match base {
            Some(base) => tokenizer::adopt(base, given, &saved, &texts, &options)?,
            None => {
                AdoptedVocabulary { chosen: tokenizer::choose(given, &saved, &texts, &options)?, added: 0 }
            }
        };
        Ok(FeatureSetup::new(adopted, &own, plan, progress))
    }

    fn new(
        adopted: AdoptedVocabulary,
        cache: &Path,
        plan: &DataPlan,
        progress: &dyn Progress,
    ) -> FeatureSetup {
        let AdoptedVocabulary { chosen: VocabularyChoice { tokenizer, why, is_new }, added } = adopted;
        progress.say(&why);
        FeatureSetup {
            extractor: Extractor::new(Recipe::from_plan(plan), tokenizer),
            cache: cache.to_owned(),
            vocabulary_file: plan.tokenizer.clone().unwrap_or_else(|| cache.join(TOKENIZER_FILE)),
            is_new,
            added,
        }
    }

    /// Saves a new vocabulary under the lock of the cache, before any record is computed with it. Does nothing if it is
    /// on disk already.
    pub fn save_vocabulary(&self, disk: &dyn Disk) -> Result<(), CacheError> {
        let written = self.extractor.tokenizer().to_json();
        // Another process that was started at the same moment may have saved the same one: no need to wait for its lock.
        if !self.is_new || std::fs::read(&self.vocabulary_file).is_ok_and(|saved| saved == written) {
            return Ok(());
        }
        durable::create_folder(disk, &self.cache)?;
        let _lock = FolderLock::acquire(&self.cache)?;
        Ok(durable::write_with(disk, &self.vocabulary_file, &written)?)
    }

    /// The same setup for another cache; its vocabulary is saved already.
    pub(crate) fn with_cache(&self, cache: PathBuf) -> Result<FeatureSetup, CorpusError> {
        let tokenizer = Tokenizer::from_bytes(&self.extractor.tokenizer().to_json(), &self.vocabulary_file)?;
        Ok(FeatureSetup {
            extractor: Extractor::new(self.extractor.recipe().clone(), tokenizer),
            cache,
            vocabulary_file: self.vocabulary_file.clone(),
            is_new: false,
            added: self.added,
        })
    }

    /// The cleaner applied to the texts.
    pub fn cleaner(&self) -> Cleaner {
        self.extractor.recipe().cleaner
    }

    /// Size and file of the vocabulary, as one line of a report.
    pub fn description(&self) -> String {
        let (pieces, path) = (self.extractor.tokenizer().pieces(), self.vocabulary_file.display());
        let added = match self.added {
            0 => String::new(),
            added => format!(", {added} of them added to the model's"),
        };
        format!("tokenizer    {pieces} pieces{added}, stored in {path}")
    }
}

/// The cache folder of a corpus for records tokenised with the vocabulary of another corpus: a subfolder of the corpus
/// cache, unless both have the same vocabulary.
pub(crate) fn cache_for(home: &Path, vocabulary: &Tokenizer) -> PathBuf {
    match Tokenizer::load(&home.join(TOKENIZER_FILE)) {
        Ok(saved) if saved.fingerprint() == vocabulary.fingerprint() => home.to_owned(),
        _ => home.join(format!("from-{}", short(&vocabulary.fingerprint()))),
    }
}

/// The vocabulary that a cache was prepared with; `None` where the folder has none that can be read, such as with a vocabulary
/// from a file of `data.tokenizer`.
pub fn vocabulary_of(cache: &Path) -> Option<Tokenizer> {
    Tokenizer::load(&cache.join(TOKENIZER_FILE)).ok()
}

/// The first bytes of a hash, as part of a folder name.
fn short(hash: &[u8; 32]) -> String {
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The settings with a cleaner: the one they name, else the one that suits the texts, which is reported. `vocabulary` is that
/// of a model, or of the file that is given.
pub fn with_cleaner(
    plan: &DataPlan,
    vocabulary: Option<&Tokenizer>,
    texts: &[(&str, &str)],
    progress: &dyn Progress,
) -> Result<DataPlan, CorpusError> {
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

fn train_options(plan: &DataPlan, texts: &[(&str, &str)]) -> TrainOptions {
    let characters = texts.iter().map(|(_, text)| text.chars().count()).sum();
    let vocab_size = plan.vocab_size.unwrap_or_else(|| tokenizer::default_vocab_size(characters));
    TrainOptions { vocab_size, cleaner: Recipe::from_plan(plan).cleaner, ..TrainOptions::default() }
}
