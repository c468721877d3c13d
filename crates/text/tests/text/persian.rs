//! Tests the Persian cleaner against a reviewed table and with properties that every text must satisfy.

use myxtts_text::{Cleaner, alphabet, clean};
use proptest::prelude::*;

use crate::table::{Case, property_config, table};

fn persian(text: &str) -> String {
    clean(text, "fa", Cleaner::Default).expect("Persian has a cleaner")
}

#[test]
fn every_case_of_the_table() {
    let cases = table("persian.tsv");
    assert!(cases.len() >= 120, "{} cases", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|Case { line, input, expected }| {
            let cleaned = persian(input);
            (&cleaned != expected)
                .then(|| format!("line {line}: {input}\n  want {expected}\n  got  {cleaned}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn cleaned_cases_are_stable_and_within_the_alphabet() {
    let letters = alphabet("fa", Cleaner::Default).unwrap();
    for Case { line, expected, .. } in table("persian.tsv") {
        assert_eq!(persian(&expected), expected, "line {line}");
        let strange: String = expected
            .chars()
            .filter(|&c| !letters.contains(c) && !c.is_ascii_lowercase() && c != '\'')
            .collect();
        assert!(strange.is_empty(), "line {line}: {strange:?} in {expected}");
    }
}

/// Fragments that trigger the rules, in any order.
fn fragments() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "می",
        "نمی",
        "ها",
        "های",
        "ترین",
        "ام",
        "م",
        "ی",
        "ه",
        "ۀ",
        "هٔ",
        "کتاب",
        "رفته",
        "میشود",
        "از",
        "ق.م",
        "ه.ش",
        "ساعت",
        "بهمن",
        "درصد",
        "هزار",
        "میلیون",
        "۱۴۰۳",
        "12",
        "۳",
        "05",
        "0",
        "/",
        "-",
        ":",
        ".",
        "،",
        ",",
        "٬",
        "٫",
        "٪",
        "%",
        "$",
        "€",
        "°C",
        "km",
        "²",
        "½",
        "\u{200c}",
        " ",
        " ",
        "\"",
        "«",
        "»",
        "(",
        ")",
        "'",
        "…",
        "—",
        "&",
        "@",
        "#",
        "_",
        "a.com",
        "b@c.ir",
        "😀",
        "\u{64b}",
        "\u{654}",
        "أ",
        "ي",
        "X",
        "İ",
        "؟",
        "!",
        "+",
        "=",
        "~",
    ]);
    prop::collection::vec(fragment, 0..14).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(property_config())]

    #[test]
    fn cleaning_is_idempotent(text in fragments()) {
        let once = persian(&text);
        prop_assert_eq!(persian(&once), once);
    }

    #[test]
    fn cleans_any_text(text in any::<String>()) {
        let once = persian(&text);
        prop_assert_eq!(persian(&once), once);
    }

    #[test]
    fn no_digit_is_left(text in "[0-9۰-۹٠-٩ ./:,٪$-]{0,24}") {
        prop_assert!(!persian(&text).contains(|c: char| c.is_numeric()));
    }
}
