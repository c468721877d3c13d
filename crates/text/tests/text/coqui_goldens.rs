//! Tests the `coqui` cleaner against output of the real one: the goldens, token by token, and a file of generated
//! cases.

use std::path::{Path, PathBuf};

use myxtts_text::coqui;
use serde::Deserialize;
use tokenizers::Tokenizer;

#[derive(Deserialize)]
struct Case {
    language: String,
    raw: String,
    cleaned: String,
    ids: Vec<u32>,
}

/// A text on which the reference raises.
#[derive(Deserialize)]
struct Refused {
    language: String,
    raw: String,
}

/// `cleaned` is missing where the reference raises.
#[derive(Deserialize)]
struct Generated {
    language: String,
    raw: String,
    cleaned: Option<String>,
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn goldens() -> PathBuf {
    std::env::var_os("MYXTTS_GOLDENS")
        .map_or_else(|| testdata().join("goldens"), PathBuf::from)
        .join("tokenizer")
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Encodes like the reference: language tag, spaces as a token, no START or STOP.
fn encode(tokenizer: &Tokenizer, cleaned: &str, language: &str) -> Vec<u32> {
    let base = language.split('-').next().unwrap_or(language);
    let tag = if base == "zh" { "zh-cn" } else { base };
    let text = format!("[{tag}]{cleaned}").replace(' ', "[SPACE]");
    tokenizer.encode(text, false).expect("the vocabulary encodes any text").get_ids().to_vec()
}

#[test]
fn golden_cases_match_token_by_token() {
    let tokenizer = Tokenizer::from_file(goldens().join("vocab.json")).expect("vocab.json is a tokenizer");
    let cases: Vec<Case> = read(&goldens().join("cases.json"));
    assert!(!cases.is_empty());
    for case in cases {
        let cleaned = coqui::clean(&case.raw, &case.language).unwrap_or_else(|e| panic!("{}: {e}", case.raw));
        assert_eq!(cleaned, case.cleaned, "{} {:?}", case.language, case.raw);
        assert_eq!(
            encode(&tokenizer, &cleaned, &case.language),
            case.ids,
            "{} {:?}",
            case.language,
            case.raw
        );
    }
}

#[test]
fn texts_on_which_the_reference_raises_are_errors() {
    let refused: Vec<Refused> = read(&goldens().join("errors.json"));
    assert!(!refused.is_empty());
    for case in refused {
        let cleaned = coqui::clean(&case.raw, &case.language);
        assert!(cleaned.is_err(), "{} {:?} returned {cleaned:?}", case.language, case.raw);
    }
}

/// The reference was run on generated sentences with numbers, money, ordinals, abbreviations and symbols.
/// `MYXTTS_COQUI_CASES` selects another file of the same format.
#[test]
fn generated_cases_match() {
    let path = std::env::var_os("MYXTTS_COQUI_CASES")
        .map_or_else(|| testdata().join("text/coqui_cases.json"), PathBuf::from);
    let cases: Vec<Generated> = read(&path);
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for case in &cases {
        let ours = coqui::clean(&case.raw, &case.language);
        if ours.as_ref().ok() != case.cleaned.as_ref() {
            wrong.push(format!(
                "{} {:?}\n  reference {:?}\n  ours      {ours:?}",
                case.language, case.raw, case.cleaned
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n")
    );
}
