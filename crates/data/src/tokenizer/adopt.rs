//! The vocabulary for further training of a model: the model's own, because it has learnt the meaning of these tokens,
//! followed by tokens for what the corpus needs and the model lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use myxtts_text as text;

use super::choose::{VocabularyChoice, load_saved};
use super::{ExtendOptions, Tokenizer, TokenizerError, TrainOptions, extend};

/// A model's vocabulary with additions.
pub struct AdoptedVocabulary {
    /// The vocabulary to use, and whether it must be saved.
    pub chosen: VocabularyChoice,
    /// Number of pieces beyond the model's.
    pub added: usize,
}

/// Returns the vocabulary for training a model with the vocabulary `base` on `texts` (language and transcript): the file
/// `given`, which must be the model's or an extension of it; otherwise the saved one or the model's, extended if it does not
/// cover the texts.
///
/// A language that the model does not have gets its own pieces, at most the requested vocabulary size. A language that it
/// has gets only its missing characters: new pieces would split texts differently from what the model has learnt.
pub fn adopt(
    base: &Tokenizer,
    given: Option<&Path>,
    saved: &Path,
    texts: &[(&str, &str)],
    options: &TrainOptions,
) -> Result<AdoptedVocabulary, TokenizerError> {
    if let Some(path) = given {
        let tokenizer = Tokenizer::load(path)?;
        let foreign = |reason| TokenizerError::Foreign { path: path.to_owned(), reason };
        tokenizer.extends(base).map_err(foreign)?;
        let added = tokenizer.pieces() - base.pieces();
        let why = format!("vocabulary: {}, the model's with {added} additional pieces", path.display());
        return Ok(AdoptedVocabulary { chosen: VocabularyChoice { tokenizer, why, is_new: false }, added });
    }
    // Additions of an earlier run are saved: its records were tokenised with them.
    let saved = load_saved(saved)?.ok().filter(|saved| saved.extends(base).is_ok());
    let mut extended: Option<Tokenizer> = None;
    for (language, is_known) in uncovered(saved.as_ref().unwrap_or(base), texts, options) {
        let current = extended.as_ref().or(saved.as_ref()).unwrap_or(base);
        let own = texts.iter().copied().filter(|(code, written)| {
            text::canonical(code) == language && text::clean(written, code, options.cleaner).is_ok()
        });
        let extend_options = ExtendOptions {
            new_tokens: if is_known { 0 } else { options.vocab_size },
            cleaner: options.cleaner,
            min_frequency: options.min_frequency,
            ..ExtendOptions::new(&language)
        };
        match extend(current, own, &extend_options) {
            // Only punctuation, or no readable text: there is nothing to learn.
            Err(TokenizerError::NoText(_)) => continue,
            result => extended = Some(result?.0),
        }
    }
    let is_new = extended.is_some() || saved.is_none();
    let tokenizer = match extended.or(saved) {
        Some(tokenizer) => tokenizer,
        None => Tokenizer::from_bytes(&base.to_json(), Path::new("the model's vocabulary"))?,
    };
    let added = tokenizer.pieces() - base.pieces();
    let why = match added {
        0 => "vocabulary: the model's, which covers all texts".to_owned(),
        added => format!("vocabulary: the model's with {added} additional pieces for what it lacks"),
    };
    Ok(AdoptedVocabulary { chosen: VocabularyChoice { tokenizer, why, is_new }, added })
}

/// Returns the languages that the vocabulary does not cover, and whether it has them at all. Texts that cannot be cleaned
/// are reported as problems of their utterances.
fn uncovered(
    vocabulary: &Tokenizer,
    texts: &[(&str, &str)],
    options: &TrainOptions,
) -> BTreeMap<String, bool> {
    let mut uncovered = BTreeMap::new();
    let mut covered: BTreeSet<char> = BTreeSet::new();
    for (code, written) in texts {
        let language = text::canonical(code);
        if uncovered.contains_key(&language) {
            continue;
        }
        let Ok(cleaned) = text::clean(written, code, options.cleaner) else { continue };
        let is_known = vocabulary.language_id(&language).is_some();
        if !is_known || cleaned.chars().any(|c| !covered.contains(&c) && !vocabulary.knows(c)) {
            uncovered.insert(language, is_known);
        } else {
            covered.extend(cleaned.chars());
        }
    }
    uncovered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::train;

    const ENGLISH: [(&str, &str); 2] = [("en", "A quiet morning."), ("en", "The morning is quiet.")];
    const PERSIAN: [(&str, &str); 2] = [("fa", "سلام، صبح بخیر."), ("fa", "صبح آرامی است، سلام.")];

    fn options() -> TrainOptions {
        TrainOptions { vocab_size: 300, ..TrainOptions::default() }
    }

    #[test]
    fn missing_pieces_are_added_once_and_old_texts_keep_their_ids() {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("tokenizer.json");
        let base = train(ENGLISH, &options()).unwrap();
        let same = adopt(&base, None, &saved, &ENGLISH, &options()).unwrap();
        assert_eq!((same.added, same.chosen.is_new), (0, true));
        assert_eq!(same.chosen.tokenizer.fingerprint(), base.fingerprint());

        let more = adopt(&base, None, &saved, &PERSIAN, &options()).unwrap();
        let grown = &more.chosen.tokenizer;
        assert!(more.added > 20 && more.chosen.is_new, "{}", more.added);
        assert!(grown.extends(&base).is_ok() && base.extends(grown).is_err());
        for (language, written) in ENGLISH {
            let ids =
                |tokenizer: &Tokenizer| tokenizer.encode(written, language, options().cleaner).unwrap().ids;
            assert_eq!(ids(grown), ids(&base));
        }
        assert!(grown.encode(PERSIAN[0].1, "fa", options().cleaner).unwrap().unknown.is_empty());

        std::fs::write(&saved, grown.to_json()).unwrap();
        let again = adopt(&base, None, &saved, &PERSIAN, &options()).unwrap();
        assert_eq!((again.added, again.chosen.is_new), (more.added, false));
        // The saved vocabulary of another model is not used.
        let other = train(PERSIAN, &options()).unwrap();
        let replaced = adopt(&other, None, &saved, &PERSIAN, &options()).unwrap();
        assert_eq!((replaced.added, replaced.chosen.is_new), (0, true));
    }

    #[test]
    fn a_known_language_gets_characters_but_no_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("tokenizer.json");
        let base = train(ENGLISH, &options()).unwrap();
        let odd = [("en", "A café, a café, a café in the morning.")];
        let adopted = adopt(&base, None, &saved, &odd, &options()).unwrap();
        let grown = &adopted.chosen.tokenizer;
        assert_eq!(grown.merges(), base.merges());
        assert!(grown.encode(odd[0].1, "en", options().cleaner).unwrap().unknown.is_empty());
    }

    #[test]
    fn a_vocabulary_of_another_model_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let (saved, given) = (folder.path().join("tokenizer.json"), folder.path().join("given.json"));
        let (base, other) = (train(ENGLISH, &options()).unwrap(), train(PERSIAN, &options()).unwrap());
        std::fs::write(&given, other.to_json()).unwrap();
        let rejected = adopt(&base, Some(&given), &saved, &PERSIAN, &options());
        let message = rejected.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("given.json") && message.contains("extend"), "{message}");
        let (extended, _) = extend(&base, PERSIAN, &ExtendOptions::new("fa")).unwrap();
        std::fs::write(&given, extended.to_json()).unwrap();
        assert!(adopt(&base, Some(&given), &saved, &PERSIAN, &options()).unwrap().added > 0);
    }
}
