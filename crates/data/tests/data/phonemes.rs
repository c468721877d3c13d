//! The `phonemes` cleaner with everything that uses cleaned texts: vocabularies, coverage, `check`.

use myxtts_data::check::{CorpusExaminer, Examiner};
use myxtts_data::tokenizer::{CHARACTERS, TrainOptions, adopt, choose, coverage, train};
use myxtts_text::compare::{NumeralReading, comparable};
use myxtts_text::{Cleaner, alphabet, clean};

use crate::table::table;

const OPTIONS: fn(Cleaner) -> TrainOptions =
    |cleaner| TrainOptions { vocab_size: CHARACTERS, cleaner, ..TrainOptions::default() };

#[test]
fn the_cleaner_parses_from_its_name() {
    assert_eq!("phonemes".parse::<Cleaner>().unwrap(), Cleaner::Phonemes);
    assert_eq!(Cleaner::Phonemes.to_string(), "phonemes");
    assert!("foo".parse::<Cleaner>().unwrap_err().to_string().contains("\"phonemes\""));
}

#[test]
fn other_languages_are_cleaned_as_by_the_default() {
    for (language, text) in [("fa", "سلام ۵"), ("de", "Das kostet 20 €"), ("zu", "Sawubona, Mhlaba!")]
    {
        let [default, phonemes] =
            [Cleaner::Default, Cleaner::Phonemes].map(|cleaner| clean(text, language, cleaner).unwrap());
        assert_eq!(default, phonemes);
    }
    assert!(clean("unyaka ka-1999", "zu", Cleaner::Phonemes).is_err());
    assert_eq!(clean("3 cats", "en-GB", Cleaner::Phonemes).unwrap(), "θɹȋ kæts");
}

/// Every case of the English table: inside the alphabet, a fixed point, and one token per phoneme with a vocabulary that was
/// trained on a single other sentence.
#[test]
fn a_character_vocabulary_has_a_token_for_every_phoneme() {
    let trained = train([("en", "A quiet morning.")], &OPTIONS(Cleaner::Phonemes)).unwrap();
    let letters = alphabet("en", Cleaner::Phonemes).unwrap();
    assert!(letters.chars().all(|c| trained.knows(c)));
    for case in table("english.tsv") {
        let encoded = trained.encode(&case.input, "en", Cleaner::Phonemes).unwrap();
        let outside: String = encoded.cleaned.chars().filter(|&c| !letters.contains(c)).collect();
        assert!(outside.chars().all(|c| !c.is_ascii()), "line {}: {}", case.line, encoded.cleaned);
        if outside.is_empty() {
            assert!(encoded.unknown.is_empty() && !encoded.ids[1..].contains(&trained.unk_id()));
            assert_eq!(encoded.ids.len(), 1 + encoded.cleaned.chars().count(), "line {}", case.line);
        }
        assert_eq!(
            clean(&encoded.cleaned, "en", Cleaner::Phonemes).unwrap(),
            encoded.cleaned,
            "line {}",
            case.line
        );
    }
    let covered =
        coverage(&trained, [("x", "en", "The judge's thirsty boys enjoyed measuring.")], Cleaner::Phonemes);
    assert_eq!((covered.unknown, covered.uncleanable), (0, 0));
}

#[test]
fn a_letter_vocabulary_is_replaced_or_extended() {
    let texts = [("en", "A quiet morning."), ("en", "The morning is quiet.")];
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("tokenizer.json");
    for cleaner in [Cleaner::Default, Cleaner::Phonemes, Cleaner::Default] {
        let chosen = choose(None, &kept, &texts, &OPTIONS(cleaner)).unwrap();
        assert!(chosen.is_new, "{cleaner}: {}", chosen.why);
        let replaced = chosen.why.contains(&format!("another data.cleaner than {cleaner}"));
        assert_eq!(replaced, kept.exists(), "{}", chosen.why);
        std::fs::write(&kept, chosen.tokenizer.to_json()).unwrap();
        assert!(!choose(None, &kept, &texts, &OPTIONS(cleaner)).unwrap().is_new, "{cleaner}");
    }
    let letters = train(texts, &OPTIONS(Cleaner::Default)).unwrap();
    let none = folder.path().join("none.json");
    let adopted = adopt(&letters, None, &none, &texts, &OPTIONS(Cleaner::Phonemes)).unwrap();
    let both = adopted.chosen.tokenizer;
    assert!(both.extends(&letters).is_ok() && adopted.added >= 30, "{}", adopted.added);
    assert!(both.encode("Any other words?", "en", Cleaner::Phonemes).unwrap().unknown.is_empty());
}

#[test]
fn the_check_knows_phonemes_and_comparisons_use_words() {
    let examiner = CorpusExaminer::new(None, Cleaner::Phonemes);
    let read = examiner.examine_text("A quiet morning in 1999.", "en").unwrap();
    assert_eq!(read.unknown, []);
    assert_eq!(examiner.examine_text("мир", "en").unwrap().unknown, ['м', 'и', 'р']);
    assert_eq!(comparable("3 cats", "en", NumeralReading::Numbers), "three cats");
}
