//! Chooses the vocabulary of a cache: the user's, the one it was built with, or a new one.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use myxtts_text::{self as text, Cleaner};

use super::cleaner::has_phonemes;
use super::{CHARACTERS, Tokenizer, TokenizerError, TrainOptions, train};

/// A vocabulary and its origin.
pub struct VocabularyChoice {
    /// The vocabulary.
    pub tokenizer: Tokenizer,
    /// The reason for the choice, for display.
    pub why: String,
    /// Whether it is new and must be saved next to the cache before anything is built with it.
    pub is_new: bool,
}

/// Chooses the vocabulary for `texts` (language and transcript).
///
/// A saved vocabulary is reused as long as it covers all texts: training a new one whenever a line of the corpus changes
/// would renumber every piece and invalidate every record.
pub fn choose(
    given: Option<&Path>,
    saved: &Path,
    texts: &[(&str, &str)],
    options: &TrainOptions,
) -> Result<VocabularyChoice, TokenizerError> {
    if let Some(path) = given {
        let why = format!("vocabulary: {}", path.display());
        return Ok(VocabularyChoice { tokenizer: Tokenizer::load(path)?, why, is_new: false });
    }
    let reason = match load_saved(saved)? {
        Ok(tokenizer) => match missing_coverage(&tokenizer, texts, options) {
            None => {
                let size = other_size(&tokenizer, texts, options).unwrap_or_default();
                let why = format!("vocabulary: the saved {}{size}", file_name(saved));
                return Ok(VocabularyChoice { tokenizer, why, is_new: false });
            }
            Some(lack) => format!(", because the saved one {lack}"),
        },
        Err(why) => why.to_owned(),
    };
    let tokenizer = train_vocabulary(texts, options)?;
    let why = format!(
        "vocabulary: {} pieces trained on {} texts{reason}; to be saved as {}",
        tokenizer.vocabulary_size(),
        texts.len(),
        file_name(saved)
    );
    Ok(VocabularyChoice { tokenizer, why, is_new: true })
}

/// Trains a vocabulary. Texts that cannot be cleaned are skipped here and reported as problems of their utterances.
fn train_vocabulary(texts: &[(&str, &str)], options: &TrainOptions) -> Result<Tokenizer, TokenizerError> {
    let readable =
        |(language, written): &(&str, &str)| text::clean(written, language, options.cleaner).is_ok();
    train(texts.iter().copied().filter(readable), options)
}

/// Returns a note if the saved vocabulary does not have the requested size. It is saved anyway: records, and models trained
/// on them, use its ids. A corpus without enough pieces for the requested size does not count.
fn other_size(saved: &Tokenizer, texts: &[(&str, &str)], options: &TrainOptions) -> Option<String> {
    let (has, requested) = (saved.vocabulary_size(), options.vocab_size);
    let differs = match has.cmp(&requested) {
        _ if requested == CHARACTERS => false,
        Ordering::Equal => false,
        Ordering::Greater => true,
        Ordering::Less => train_vocabulary(texts, options).is_ok_and(|new| new.vocabulary_size() > has),
    };
    differs.then(|| {
        format!(
            "; it has {has} pieces; data.vocab_size = {requested} only applies to a new one: remove the file or use another --cache-dir"
        )
    })
}

/// Loads the saved vocabulary; the inner error is why it cannot be used, empty if there is none.
pub(super) fn load_saved(path: &Path) -> Result<Result<Tokenizer, &'static str>, TokenizerError> {
    match Tokenizer::load(path) {
        Ok(tokenizer) => Ok(Ok(tokenizer)),
        Err(TokenizerError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(Err(""))
        }
        Err(TokenizerError::Broken { .. }) => Ok(Err(", because the saved one is damaged")),
        Err(error) => Err(error),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(PathBuf::from).unwrap_or_default().display().to_string()
}

/// Returns what the vocabulary lacks for these texts, for display.
fn missing_coverage(tokenizer: &Tokenizer, texts: &[(&str, &str)], options: &TrainOptions) -> Option<String> {
    let languages: BTreeSet<&str> = texts.iter().map(|(language, _)| *language).collect();
    if let Some(language) = languages.into_iter().find(|code| tokenizer.language_id(code).is_none()) {
        return Some(format!("has no [{language}] token"));
    }
    let mut unknown = BTreeSet::new();
    for (language, written) in texts {
        if let Ok(encoded) = tokenizer.encode(written, language, options.cleaner) {
            unknown.extend(encoded.unknown);
        }
    }
    if unknown.is_empty() {
        return None;
    }
    let phonemes = text::alphabet("en", Cleaner::Phonemes).unwrap_or_default();
    let other_cleaner = match options.cleaner {
        Cleaner::Phonemes => !has_phonemes(tokenizer) && unknown.iter().any(|&c| phonemes.contains(c)),
        Cleaner::Default | Cleaner::Coqui => has_phonemes(tokenizer),
    };
    Some(match other_cleaner {
        true => format!("was made with another data.cleaner than {}: records are rebuilt", options.cleaner),
        false => format!("has no token for {}", unknown.iter().collect::<String>()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [(&str, &str); 2] = [("en", "A quiet morning."), ("en", "The morning is quiet.")];

    fn options() -> TrainOptions {
        TrainOptions { vocab_size: 300, ..TrainOptions::default() }
    }

    #[test]
    fn a_saved_vocabulary_stays_until_it_lacks_something() {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("tokenizer.json");
        let first = choose(None, &saved, &TEXTS, &options()).unwrap();
        assert!(first.is_new);
        std::fs::write(&saved, first.tokenizer.to_json()).unwrap();

        let more = [TEXTS[0], TEXTS[1], ("en", "Ten more words are here now.")];
        let again = choose(None, &saved, &more, &options()).unwrap();
        assert!(!again.is_new, "{}", again.why);
        assert_eq!(again.tokenizer.fingerprint(), first.tokenizer.fingerprint());

        let persian = [TEXTS[0], ("fa", "سلام")];
        let new = choose(None, &saved, &persian, &options()).unwrap();
        assert!(new.is_new && new.why.contains("[fa]"), "{}", new.why);
    }

    #[test]
    fn a_saved_vocabulary_of_another_size_is_reported_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("tokenizer.json");
        let first = choose(None, &saved, &TEXTS, &options()).unwrap();
        std::fs::write(&saved, first.tokenizer.to_json()).unwrap();
        let why = |vocab_size| {
            let chosen = choose(None, &saved, &TEXTS, &TrainOptions { vocab_size, ..options() }).unwrap();
            assert!(!chosen.is_new);
            chosen.why
        };
        let fewer = first.tokenizer.vocabulary_size() - 1;
        assert!(why(fewer).contains(&format!("data.vocab_size = {fewer}")), "{}", why(fewer));
        assert!(!why(300).contains("vocab_size"), "{}", why(300));
        assert!(!why(3000).contains("vocab_size"), "the texts have no more pieces: {}", why(3000));
    }

    #[test]
    fn a_damaged_saved_vocabulary_is_replaced_but_a_given_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("tokenizer.json");
        std::fs::write(&saved, b"{").unwrap();
        assert!(choose(None, &saved, &TEXTS, &options()).unwrap().why.contains("damaged"));
        assert!(choose(Some(&saved), &saved, &TEXTS, &options()).is_err());
    }
}
