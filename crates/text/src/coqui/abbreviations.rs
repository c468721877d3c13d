//! The reference's abbreviations per language, in its order.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

use super::python::is_boundary;

/// (language, abbreviation without its dot, reading). The order matters: "dr" must come before "drs".
const TABLE: &[(&str, &[(&str, &str)])] = &[
    (
        "en",
        &[
            ("mrs", "misess"),
            ("mr", "mister"),
            ("dr", "doctor"),
            ("st", "saint"),
            ("co", "company"),
            ("jr", "junior"),
            ("maj", "major"),
            ("gen", "general"),
            ("drs", "doctors"),
            ("rev", "reverend"),
            ("lt", "lieutenant"),
            ("hon", "honorable"),
            ("sgt", "sergeant"),
            ("capt", "captain"),
            ("esq", "esquire"),
            ("ltd", "limited"),
            ("col", "colonel"),
            ("ft", "fort"),
        ],
    ),
    (
        "es",
        &[
            ("sra", "señora"),
            ("sr", "señor"),
            ("dr", "doctor"),
            ("dra", "doctora"),
            ("st", "santo"),
            ("co", "compañía"),
            ("jr", "junior"),
            ("ltd", "limitada"),
        ],
    ),
    (
        "fr",
        &[
            ("mme", "madame"),
            ("mr", "monsieur"),
            ("dr", "docteur"),
            ("st", "saint"),
            ("co", "compagnie"),
            ("jr", "junior"),
            ("ltd", "limitée"),
        ],
    ),
    ("de", &[("fr", "frau"), ("dr", "doktor"), ("st", "sankt"), ("co", "firma"), ("jr", "junior")]),
    (
        "pt",
        &[
            ("sra", "senhora"),
            ("sr", "senhor"),
            ("dr", "doutor"),
            ("dra", "doutora"),
            ("st", "santo"),
            ("co", "companhia"),
            ("jr", "júnior"),
            ("ltd", "limitada"),
        ],
    ),
    (
        "it",
        &[
            ("sig", "signore"),
            ("dr", "dottore"),
            ("st", "santo"),
            ("co", "compagnia"),
            ("jr", "junior"),
            ("ltd", "limitata"),
        ],
    ),
    ("pl", &[("p", "pani"), ("m", "pan"), ("dr", "doktor"), ("sw", "święty"), ("jr", "junior")]),
    ("cs", &[("dr", "doktor"), ("ing", "inženýr"), ("p", "pan")]),
    ("ru", &[("г-жа", "госпожа"), ("г-н", "господин"), ("д-р", "доктор")]),
    ("nl", &[("dhr", "de heer"), ("mevr", "mevrouw"), ("dr", "dokter"), ("jhr", "jonkheer")]),
    ("tr", &[("b", "bay"), ("byk", "büyük"), ("dr", "doktor")]),
    ("hu", &[("dr", "doktor"), ("b", "bácsi"), ("nőv", "nővér")]),
];

type Rules = Vec<(Regex, &'static str)>;

static RULES: LazyLock<HashMap<&'static str, Rules>> = LazyLock::new(|| {
    TABLE
        .iter()
        .map(|(language, entries)| {
            // The Russian entries contain a hyphen and have no dot.
            let dot = if *language == "ru" { "" } else { "." };
            let rules = entries.iter().map(|(short, long)| {
                let pattern = regex::escape(&format!("{short}{dot}"));
                let pattern = RegexBuilder::new(&pattern).case_insensitive(true).build();
                (pattern.expect("an escaped word is a valid pattern"), *long)
            });
            (*language, rules.collect())
        })
        .collect()
});

pub(super) fn expand(mut text: String, language: &str) -> String {
    for (pattern, long) in RULES.get(language).into_iter().flatten() {
        text = replace_words(&text, pattern, long, language == "ru");
    }
    text
}

/// Replaces matches that start (and, without a dot, end) at a word boundary in Python's sense.
fn replace_words(text: &str, pattern: &Regex, long: &str, whole: bool) -> String {
    let (mut out, mut copied, mut from) = (String::new(), 0, 0);
    while let Some(found) = pattern.find_at(text, from) {
        let before = text[..found.start()].chars().next_back();
        let first = found.as_str().chars().next();
        let last = found.as_str().chars().next_back();
        let after = text[found.end()..].chars().next();
        if is_boundary(before, first) && (!whole || is_boundary(last, after)) {
            out += &text[copied..found.start()];
            out += long;
            copied = found.end();
            from = found.end();
        } else {
            from = found.start() + first.map_or(1, char::len_utf8);
        }
    }
    out + &text[copied..]
}
