//! Tests the English cleaner against a reviewed table, and the dispatch by language.

use myxtts_text::{Cleaner, TextError, alphabet, canonical, clean};
use proptest::prelude::*;

use crate::table::{Case, property_config, table};

fn english(text: &str) -> String {
    clean(text, "en", Cleaner::Default).expect("English has a cleaner")
}

#[test]
fn every_english_case_of_the_table() {
    let cases = table("english.tsv");
    assert!(cases.len() >= 120, "{} cases", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|Case { line, input, expected }| {
            let cleaned = english(input);
            (&cleaned != expected)
                .then(|| format!("line {line}: {input}\n  want {expected}\n  got  {cleaned}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn cleaned_english_stays_in_its_alphabet() {
    let letters = alphabet("en", Cleaner::Default).unwrap();
    for Case { line, expected, .. } in table("english.tsv") {
        assert_eq!(english(&expected), expected, "line {line}");
        let strange: String =
            expected.chars().filter(|&c| !letters.contains(c) && !c.is_alphabetic()).collect();
        assert!(strange.is_empty(), "line {line}: {strange:?} in {expected}");
    }
}

#[test]
fn language_codes_are_normalised_and_bad_ones_rejected() {
    assert_eq!(canonical("fa-IR"), "fa");
    assert_eq!(canonical("zh"), "zh-cn");
    assert_eq!(canonical("en_US"), "en");
    assert_eq!(clean("سلام ۵", "fa_IR", Cleaner::Default).unwrap(), "سلام پنج");
    assert!(matches!(clean("a", "english", Cleaner::Default), Err(TextError::BadLanguage(_))));
    assert!(matches!(clean("a", "", Cleaner::Default), Err(TextError::BadLanguage(_))));
    assert!("foo".parse::<Cleaner>().unwrap_err().to_string().contains("\"coqui\""));
    assert_eq!("coqui".parse::<Cleaner>().unwrap().to_string(), "coqui");
}

#[test]
fn language_without_rules_keeps_letters_and_rejects_digits() {
    assert_eq!(clean("Sawubona , Mhlaba!", "zu", Cleaner::Default).unwrap(), "sawubona, mhlaba!");
    let error = clean("unyaka ka-1999", "zu", Cleaner::Default).unwrap_err().to_string();
    assert!(error.contains("\"1999\"") && error.contains("\"zu\""), "{error}");
}

#[test]
fn other_languages_share_the_last_steps() {
    for (language, text, expected) in [
        ("de", "Das kostet 20 € 😀 , oder ?", "das kostet zwanzig euro, oder?"),
        ("fr", "L’été « ici » – 5 %", "l'été ici — cinq pour cent"),
        ("ar", "هل هذا 5, نعم?", "هل هذا خمسة، نعم؟"),
    ] {
        assert_eq!(clean(text, language, Cleaner::Default).unwrap(), expected);
    }
}

/// Each text took quadratic time once or could. Pages of it must be cleaned in reasonable time, whatever the result.
#[test]
fn cleans_long_and_hostile_texts() {
    for fragment in [
        "9:00 ", "St. ", "1-", "(", "a.", "1/2 ", "ها ", "می ", "5kg ", "'", "$1 ", "0", "a@", "www.", "-",
        "«",
    ] {
        let text = fragment.repeat(4_000);
        for language in ["en", "fa"] {
            assert!(clean(&text, language, Cleaner::Default).unwrap().len() < 100 * text.len());
        }
    }
}

/// Fragments that trigger the rules, in any order.
fn fragments() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "Mr", "Mrs", "Dr", "St", "Ms", "MS", "No", "e.g", "U.S", "etc", "vs", "Co", "Gen", "Henry", "VIII",
        "May", "Sept", "in", "am", "pm", "a.m.", "th", "st", "s", "1999", "2005", "12", "3", "05", "0",
        "555", "0199", "/", "-", ":", ".", ",", "%", "$", "€", "US$", "million", "bn", "°C", "km", "km/h",
        "m", "²", "½", " ", " ", " ", "\"", "(", ")", "'", "…", "—", "&", "@", "#", "_", "a.com", "bb.it",
        "b@c.io", "😀", "\u{301}", "İ", "ß", "Σ", "X", "?", "!", "+", "=", "~", "BC", "w/",
    ]);
    prop::collection::vec(fragment, 0..14).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(property_config())]

    #[test]
    fn english_cleaning_is_idempotent(text in fragments()) {
        let once = english(&text);
        prop_assert_eq!(english(&once), once);
    }

    #[test]
    fn english_cleans_any_text(text in any::<String>()) {
        let once = english(&text);
        prop_assert_eq!(english(&once), once);
    }

    #[test]
    fn no_digit_is_left_in_english(text in "[0-9a-dmA-Z ./:,%$'#x-]{0,24}") {
        prop_assert!(!english(&text).contains(|c: char| c.is_numeric()));
    }

    #[test]
    fn no_letter_is_dropped(text in "[a-zéßüж ,.!]{0,24}") {
        let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
        prop_assume!(!["mr", "dr", "vs", "etc", "ltd", "ms", "w/", "jr", "sr", "lt", "mt", "ft"].iter().any(|a| text.contains(a)));
        let cleaned = english(&text);
        prop_assert!(letters(&cleaned).len() >= letters(&text).len(), "{} -> {}", text, cleaned);
    }

    #[test]
    fn cleaning_is_idempotent_in_every_language(text in prop_oneof![any::<String>(), fragments()], pick in 0..12usize) {
        let language = ["ar", "cs", "de", "es", "fr", "hu", "it", "nl", "pl", "pt", "ru", "tr"][pick];
        let once = clean(&text, language, Cleaner::Default).unwrap();
        prop_assert_eq!(clean(&once, language, Cleaner::Default).unwrap(), once);
    }

    #[test]
    fn every_language_cleans_any_text(text in any::<String>(), language in "[a-z]{2}") {
        if let Ok(once) = clean(&text, &language, Cleaner::Default) {
            prop_assert_eq!(clean(&once, &language, Cleaner::Default).unwrap(), once);
        }
    }
}
