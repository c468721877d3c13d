//! The vocabulary of a model that is trained further: its own, because its tokens mean what it has learnt, and behind
//! them what a corpus needs that it cannot say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use myxtts_text as text;

use super::choose::{Chosen, kept_at};
use super::{ExtendOptions, Tokenizer, TokenizerError, TrainOptions, extend};

/// A model's vocabulary, and what was added to it.
pub struct Adopted {
    /// The vocabulary to use, and whether it is to be kept.
    pub chosen: Chosen,
    /// Pieces it has beyond the model's.
    pub added: usize,
}

/// The vocabulary for training a model with the vocabulary `base` on `texts` (language and transcript): the file `given`,
/// if it is the model's or an extension of it; else the one that was kept, or the model's, extended where it falls short.
///
/// A language that the model does not have gets pieces of its own, at most as many as a vocabulary was asked to have. One
/// that it has gets only the characters that are missing: new pieces would cut texts otherwise than it has learnt.
pub fn adopt(
    base: &Tokenizer,
    given: Option<&Path>,
    kept: &Path,
    texts: &[(&str, &str)],
    options: &TrainOptions,
) -> Result<Adopted, TokenizerError> {
    if let Some(path) = given {
        let tokenizer = Tokenizer::load(path)?;
        let broken = |reason| TokenizerError::Foreign { path: path.to_owned(), reason };
        tokenizer.extends(base).map_err(broken)?;
        let added = tokenizer.pieces() - base.pieces();
        let why = format!("vocabulary: {}, the model's and {added} pieces more", path.display());
        return Ok(Adopted { chosen: Chosen { tokenizer, why, is_new: false }, added });
    }
    // What was added for an earlier run stays: its records are cut with it.
    let kept = kept_at(kept)?.ok().filter(|kept| kept.extends(base).is_ok());
    let mut made: Option<Tokenizer> = None;
    for (language, is_known) in wanting(kept.as_ref().unwrap_or(base), texts, options) {
        let now = made.as_ref().or(kept.as_ref()).unwrap_or(base);
        let own = texts.iter().copied().filter(|(code, written)| {
            text::canonical(code) == language && text::clean(written, code, options.cleaner).is_ok()
        });
        let asked = ExtendOptions {
            new_tokens: if is_known { 0 } else { options.vocab_size },
            cleaner: options.cleaner,
            min_frequency: options.min_frequency,
            ..ExtendOptions::new(&language)
        };
        match extend(now, own, &asked) {
            // Nothing but marks, or nothing that can be read: there is nothing to learn from it either.
            Err(TokenizerError::NoText(_)) => continue,
            extended => made = Some(extended?.0),
        }
    }
    let is_new = made.is_some() || kept.is_none();
    let tokenizer = match made.or(kept) {
        Some(tokenizer) => tokenizer,
        None => Tokenizer::from_bytes(&base.to_json(), Path::new("the model's vocabulary"))?,
    };
    let added = tokenizer.pieces() - base.pieces();
    let why = match added {
        0 => "vocabulary: the model's own, which can say everything".to_owned(),
        added => format!("vocabulary: the model's own and {added} pieces more, for what it cannot say"),
    };
    Ok(Adopted { chosen: Chosen { tokenizer, why, is_new }, added })
}

/// Languages that the vocabulary cannot say, and whether it has them at all. A text that cannot be cleaned is a problem
/// of its utterance, and is reported there.
fn wanting(now: &Tokenizer, texts: &[(&str, &str)], options: &TrainOptions) -> BTreeMap<String, bool> {
    let mut wanting = BTreeMap::new();
    let mut fine: BTreeSet<char> = BTreeSet::new();
    for (code, written) in texts {
        let language = text::canonical(code);
        if wanting.contains_key(&language) {
            continue;
        }
        let Ok(cleaned) = text::clean(written, code, options.cleaner) else { continue };
        let is_known = now.language_id(&language).is_some();
        if !is_known || cleaned.chars().any(|c| !fine.contains(&c) && !now.knows(c)) {
            wanting.insert(language, is_known);
        } else {
            fine.extend(cleaned.chars());
        }
    }
    wanting
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
    fn what_a_model_can_say_stays_its_own_and_what_it_cannot_is_added_once() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("tokenizer.json");
        let base = train(ENGLISH, &options()).unwrap();
        let same = adopt(&base, None, &kept, &ENGLISH, &options()).unwrap();
        assert_eq!((same.added, same.chosen.is_new), (0, true));
        assert_eq!(same.chosen.tokenizer.fingerprint(), base.fingerprint());

        let more = adopt(&base, None, &kept, &PERSIAN, &options()).unwrap();
        let grown = &more.chosen.tokenizer;
        assert!(more.added > 20 && more.chosen.is_new, "{}", more.added);
        assert!(grown.extends(&base).is_ok() && base.extends(grown).is_err());
        for (language, written) in ENGLISH {
            let ids =
                |tokenizer: &Tokenizer| tokenizer.encode(written, language, options().cleaner).unwrap().ids;
            assert_eq!(ids(grown), ids(&base));
        }
        assert!(grown.encode(PERSIAN[0].1, "fa", options().cleaner).unwrap().unknown.is_empty());

        std::fs::write(&kept, grown.to_json()).unwrap();
        let again = adopt(&base, None, &kept, &PERSIAN, &options()).unwrap();
        assert_eq!((again.added, again.chosen.is_new), (more.added, false));
        // One that belongs to another model is not used.
        let other = train(PERSIAN, &options()).unwrap();
        let replaced = adopt(&other, None, &kept, &PERSIAN, &options()).unwrap();
        assert_eq!((replaced.added, replaced.chosen.is_new), (0, true));
    }

    #[test]
    fn a_known_language_gets_characters_and_no_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("tokenizer.json");
        let base = train(ENGLISH, &options()).unwrap();
        let odd = [("en", "A café, a café, a café in the morning.")];
        let adopted = adopt(&base, None, &kept, &odd, &options()).unwrap();
        let grown = &adopted.chosen.tokenizer;
        assert_eq!(grown.merges(), base.merges());
        assert!(grown.encode(odd[0].1, "en", options().cleaner).unwrap().unknown.is_empty());
    }

    #[test]
    fn a_file_of_another_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, given) = (folder.path().join("tokenizer.json"), folder.path().join("given.json"));
        let (base, other) = (train(ENGLISH, &options()).unwrap(), train(PERSIAN, &options()).unwrap());
        std::fs::write(&given, other.to_json()).unwrap();
        let refused = adopt(&base, Some(&given), &kept, &PERSIAN, &options());
        let words = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(words.contains("given.json") && words.contains("extend"), "{words}");
        let (extended, _) = extend(&base, PERSIAN, &ExtendOptions::new("fa")).unwrap();
        std::fs::write(&given, extended.to_json()).unwrap();
        assert!(adopt(&base, Some(&given), &kept, &PERSIAN, &options()).unwrap().added > 0);
    }
}
