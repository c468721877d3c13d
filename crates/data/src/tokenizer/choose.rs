//! Which vocabulary a cache speaks: the one the user names, the one it was built with, or a new one.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use myxtts_text::{self as text, Cleaner};

use super::cleaner::has_phonemes;
use super::{CHARACTERS, Tokenizer, TokenizerError, TrainOptions, train};

/// A vocabulary and where it came from.
pub struct Chosen {
    /// The vocabulary.
    pub tokenizer: Tokenizer,
    /// The decision, to be said aloud.
    pub why: String,
    /// It is new: to be kept beside the cache before anything is built with it.
    pub is_new: bool,
}

/// Chooses the vocabulary for `texts` (language and transcript).
///
/// One that was kept is used again as long as it can say everything: training anew whenever a line of
/// the corpus changes would number every piece differently and make every record stale.
pub fn choose(
    given: Option<&Path>,
    kept: &Path,
    texts: &[(&str, &str)],
    options: &TrainOptions,
) -> Result<Chosen, TokenizerError> {
    if let Some(path) = given {
        let why = format!("vocabulary: {}", path.display());
        return Ok(Chosen { tokenizer: Tokenizer::load(path)?, why, is_new: false });
    }
    let reason = match kept_at(kept)? {
        Ok(tokenizer) => match shortcoming(&tokenizer, texts, options) {
            None => {
                let size = other_size(&tokenizer, texts, options).unwrap_or_default();
                let why = format!("vocabulary: {} as before{size}", name(kept));
                return Ok(Chosen { tokenizer, why, is_new: false });
            }
            Some(lack) => format!(", because the one before {lack}"),
        },
        Err(why) => why.to_owned(),
    };
    let tokenizer = trained(texts, options)?;
    let why = format!(
        "vocabulary: {} pieces trained on {} texts{reason}; kept as {}",
        tokenizer.vocabulary_size(),
        texts.len(),
        name(kept)
    );
    Ok(Chosen { tokenizer, why, is_new: true })
}

/// A text that cannot be cleaned is a problem of its utterance, and is reported there.
fn trained(texts: &[(&str, &str)], options: &TrainOptions) -> Result<Tokenizer, TokenizerError> {
    let readable =
        |(language, written): &(&str, &str)| text::clean(written, language, options.cleaner).is_ok();
    train(texts.iter().copied().filter(readable), options)
}

/// What to say of a vocabulary that was kept and is not of the size that is asked for. It stays: records, and models
/// trained on them, are numbered by it. A corpus that has no more pieces to give is not a vocabulary of another size.
fn other_size(kept: &Tokenizer, texts: &[(&str, &str)], options: &TrainOptions) -> Option<String> {
    let (has, asked) = (kept.vocabulary_size(), options.vocab_size);
    let other = match has.cmp(&asked) {
        _ if asked == CHARACTERS => false,
        Ordering::Equal => false,
        Ordering::Greater => true,
        Ordering::Less => trained(texts, options).is_ok_and(|new| new.vocabulary_size() > has),
    };
    other.then(|| {
        format!(
            "; it has {has} pieces, and data.vocab_size = {asked} is for a new one: remove it, or name another --cache-dir"
        )
    })
}

/// The vocabulary that was kept; or why it cannot be used, where there is one at all.
pub(super) fn kept_at(path: &Path) -> Result<Result<Tokenizer, &'static str>, TokenizerError> {
    match Tokenizer::load(path) {
        Ok(tokenizer) => Ok(Ok(tokenizer)),
        Err(TokenizerError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(Err(""))
        }
        Err(TokenizerError::Broken { .. }) => Ok(Err(", because the one before is damaged")),
        Err(error) => Err(error),
    }
}

fn name(path: &Path) -> String {
    path.file_name().map(PathBuf::from).unwrap_or_default().display().to_string()
}

/// What the vocabulary cannot say of these texts, in words.
fn shortcoming(tokenizer: &Tokenizer, texts: &[(&str, &str)], options: &TrainOptions) -> Option<String> {
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
    let sounds = text::alphabet("en", Cleaner::Phonemes).unwrap_or_default();
    let other_cleaner = match options.cleaner {
        Cleaner::Phonemes => !has_phonemes(tokenizer) && unknown.iter().any(|&c| sounds.contains(c)),
        Cleaner::Default | Cleaner::Coqui => has_phonemes(tokenizer),
    };
    Some(match other_cleaner {
        true => format!("was made with another data.cleaner than {}: records are made anew", options.cleaner),
        false => format!("cannot say {}", unknown.iter().collect::<String>()),
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
    fn a_kept_vocabulary_stays_until_it_cannot_say_something() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("tokenizer.json");
        let first = choose(None, &kept, &TEXTS, &options()).unwrap();
        assert!(first.is_new);
        std::fs::write(&kept, first.tokenizer.to_json()).unwrap();

        let more = [TEXTS[0], TEXTS[1], ("en", "Ten more words are here now.")];
        let again = choose(None, &kept, &more, &options()).unwrap();
        assert!(!again.is_new, "{}", again.why);
        assert_eq!(again.tokenizer.fingerprint(), first.tokenizer.fingerprint());

        let persian = [TEXTS[0], ("fa", "سلام")];
        let new = choose(None, &kept, &persian, &options()).unwrap();
        assert!(new.is_new && new.why.contains("[fa]"), "{}", new.why);
    }

    #[test]
    fn a_kept_vocabulary_of_another_size_is_named_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("tokenizer.json");
        let first = choose(None, &kept, &TEXTS, &options()).unwrap();
        std::fs::write(&kept, first.tokenizer.to_json()).unwrap();
        let said = |vocab_size| {
            let chosen = choose(None, &kept, &TEXTS, &TrainOptions { vocab_size, ..options() }).unwrap();
            assert!(!chosen.is_new);
            chosen.why
        };
        let fewer = first.tokenizer.vocabulary_size() - 1;
        assert!(said(fewer).contains(&format!("data.vocab_size = {fewer}")), "{}", said(fewer));
        assert!(!said(300).contains("vocab_size"), "{}", said(300));
        assert!(!said(3000).contains("vocab_size"), "the texts have no more pieces: {}", said(3000));
    }

    #[test]
    fn a_damaged_one_is_replaced_and_a_named_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("tokenizer.json");
        std::fs::write(&kept, b"{").unwrap();
        assert!(choose(None, &kept, &TEXTS, &options()).unwrap().why.contains("damaged"));
        assert!(choose(Some(&kept), &kept, &TEXTS, &options()).is_err());
    }
}
