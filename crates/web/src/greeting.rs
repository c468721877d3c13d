//! Texts for the first speech of a model, which is spoken before the server reports that it is ready.

use myxtts_data::tokenizer::Tokenizer;

/// One text for each of these languages, in the order in which they are tried.
const GREETINGS: [(&str, &str); 8] = [
    ("en", "Hello."),
    ("fa", "سلام."),
    ("ar", "مرحبا."),
    ("ru", "Привет."),
    ("zh-cn", "你好。"),
    ("ja", "こんにちは。"),
    ("ko", "안녕하세요."),
    ("hi", "नमस्ते।"),
];

/// Characters of a text that is built from the vocabulary: enough for a short word.
const LETTERS: usize = 6;

/// Language and text of each candidate, best first. After the greetings come texts built from the vocabulary's own letters,
/// because a model may know none of the greetings' languages. A caller tries them in turn until the model can say one.
pub(crate) fn candidates(tokenizer: &Tokenizer) -> Vec<(String, String)> {
    let languages = tokenizer.languages();
    let greetings = GREETINGS.iter().filter(|(code, _)| languages.iter().any(|one| one == code));
    let mut all: Vec<(String, String)> =
        greetings.map(|(code, text)| ((*code).to_owned(), (*text).to_owned())).collect();
    let letters = letters(tokenizer);
    for language in languages {
        // A cleaner may drop letters of other languages: several words, each of other letters.
        all.extend(letters.chunks(LETTERS).map(|word| (language.clone(), word.iter().collect())));
    }
    all
}

/// Letters and digits that have a token of their own, letters first.
fn letters(tokenizer: &Tokenizer) -> Vec<char> {
    let pieces = (0..tokenizer.vocabulary_size()).filter_map(|id| i32::try_from(id).ok());
    let single = |id| {
        let mut chars = tokenizer.piece(id).chars();
        chars.next().filter(|c| chars.next().is_none() && c.is_alphanumeric())
    };
    let mut found: Vec<char> = pieces.filter_map(single).collect();
    found.sort_by_key(|c| !c.is_alphabetic());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use myxtts_data::tokenizer::{TrainOptions, train};

    #[test]
    fn a_known_language_is_greeted_and_others_get_letters_of_the_vocabulary() {
        let both = train([("de", "guten tag"), ("fa", "سلام دنیا")], &TrainOptions::default()).unwrap();
        let first = &candidates(&both)[0];
        assert_eq!((first.0.as_str(), first.1.as_str()), ("fa", "سلام."));
        let german = train([("de", "guten tag")], &TrainOptions::default()).unwrap();
        let all = candidates(&german);
        assert!(!all.is_empty() && all.iter().all(|(language, _)| language == "de"), "{all:?}");
        for (_, text) in all {
            assert!(text.chars().all(|c| german.knows(c)), "{text}");
        }
    }
}
