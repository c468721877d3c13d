//! Normalises language codes and guesses missing languages from the script; guesses are reported.

use std::collections::BTreeMap;

use myxtts_text as text;
use myxtts_text::script::{Script, is_persian};
use rayon::prelude::*;

use super::Draft;

/// A guessed language with less than this share of the utterances is taken for foreign words within the main language.
const MIN_SHARE: f64 = 0.02;

/// Normalises a language code to the one the text cleaners use: `EN_us` -> `en`, `zh` -> `zh-cn`, `Persian` -> `fa`.
pub(super) fn code(written: &str) -> String {
    let code = text::canonical(written);
    match code.as_str() {
        "farsi" | "persian" => "fa".to_owned(),
        "english" | "eng" => "en".to_owned(),
        _ => code,
    }
}

/// Assigns every draft a language: its own, else `default`, else one guessed from its script. Returns a note on the guesses.
pub(super) fn fill_in(drafts: &mut [Draft], default: Option<&str>) -> Option<String> {
    let default = default.map(code).filter(|code| !code.is_empty());
    for draft in drafts.iter_mut() {
        draft.language = draft.language.take().map(|written| code(&written)).filter(|code| !code.is_empty());
        if draft.language.is_none() {
            draft.language.clone_from(&default);
        }
    }
    let unlabelled: Vec<usize> = (0..drafts.len()).filter(|&i| drafts[i].language.is_none()).collect();
    if unlabelled.is_empty() {
        return None;
    }
    let scripts: Vec<Option<Script>> =
        unlabelled.par_iter().map(|&i| Script::of_text(&drafts[i].text)).collect();
    let in_arabic = unlabelled.iter().zip(&scripts).filter(|(_, script)| **script == Some(Script::Arabic));
    let arabic = if is_persian(in_arabic.map(|(&i, _)| drafts[i].text.as_str())) { "fa" } else { "ar" };
    let kana = scripts.iter().filter(|script| **script == Some(Script::Kana)).count();
    let han = scripts.iter().filter(|script| **script == Some(Script::Han)).count();
    let language = |script| match script {
        Script::Latin => "en",
        Script::Cyrillic => "ru",
        Script::Arabic => arabic,
        Script::Devanagari => "hi",
        Script::Hangul => "ko",
        Script::Kana => "ja",
        // Japanese corpora contain sentences without kana.
        Script::Han if kana > han => "ja",
        Script::Han => "zh-cn",
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for &script in scripts.iter().flatten() {
        *counts.entry(language(script)).or_default() += 1;
    }
    let most = counts.iter().max_by_key(|&(code, &n)| (n, std::cmp::Reverse(*code)));
    let usual = most.map_or("en", |(&code, _)| code);
    let stray =
        |code: &str| (counts.get(code).copied().unwrap_or(0) as f64) < MIN_SHARE * unlabelled.len() as f64;
    let mut assigned: BTreeMap<&str, usize> = BTreeMap::new();
    for (&i, script) in unlabelled.iter().zip(&scripts) {
        let guess = script.map(language).filter(|code| !stray(code)).unwrap_or(usual);
        *assigned.entry(guess).or_default() += 1;
        drafts[i].language = Some(guess.to_owned());
    }
    let parts: Vec<String> = assigned.iter().map(|(code, n)| format!("{code} for {n} utterances")).collect();
    Some(format!(
        "language: guessed from the script of the texts: {}; override with --language",
        parts.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::utterance::Origin;

    fn draft(text: &str, language: Option<&str>) -> Draft {
        Draft {
            id: String::new(),
            audio: "a.wav".into(),
            text: text.to_owned(),
            speaker: None,
            language: language.map(str::to_owned),
            seconds: None,
            origin: Origin { file: "m".into(), line: None },
        }
    }

    fn guessed(texts: &[&str]) -> Vec<String> {
        let mut drafts: Vec<_> = texts.iter().map(|text| draft(text, None)).collect();
        assert!(fill_in(&mut drafts, None).unwrap().contains("guessed"));
        drafts.into_iter().map(|draft| draft.language.unwrap()).collect()
    }

    #[test]
    fn codes_are_normalised() {
        for (written, wanted) in [
            ("EN_us", "en"),
            ("fa-IR", "fa"),
            ("zh", "zh-cn"),
            ("zh-TW", "zh-cn"),
            ("Farsi", "fa"),
            ("de", "de"),
        ] {
            assert_eq!(code(written), wanted);
        }
    }

    #[test]
    fn persian_and_arabic_are_distinguished() {
        assert_eq!(guessed(&["سلام دنیا", "پدرم آمد"]), ["fa", "fa"]);
        assert_eq!(guessed(&["ذهب الولد إلى المدرسة", "قرأت كتابا في البيت"]), ["ar", "ar"]);
        // Typed with the Arabic yeh and kaf, as much of the Persian web is.
        assert_eq!(guessed(&["كتاب هاي پدربزرگ من روي ميز است"]), ["fa"]);
    }

    #[test]
    fn each_text_gets_the_language_of_its_script() {
        assert_eq!(
            guessed(&["hello", "Привет", "한국어", "東京へ", "行きます", "12"]),
            ["en", "ru", "ko", "ja", "ja", "ja"]
        );
        assert_eq!(guessed(&["我们", "天气"]), ["zh-cn", "zh-cn"]);
    }

    #[test]
    fn a_stray_foreign_line_gets_the_main_language() {
        let mut texts = vec!["سلام دنیا"; 99];
        texts.push("Windows");
        assert!(guessed(&texts).iter().all(|code| code == "fa"));
    }

    #[test]
    fn declared_languages_are_not_guessed() {
        let mut drafts = [draft("سلام", Some("AR")), draft("hello", None)];
        assert_eq!(fill_in(&mut drafts, Some("de-DE")), None);
        assert_eq!(drafts[0].language.as_deref(), Some("ar"));
        assert_eq!(drafts[1].language.as_deref(), Some("de"));
    }
}
