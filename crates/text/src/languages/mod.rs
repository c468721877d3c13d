//! The default cleaners of the XTTS languages other than English and Persian.
//!
//! One engine (`engine`) reads a table per language: how numbers are written and spoken, names of symbols, abbreviations,
//! and rules for constructions specific to that language. `ARCHITECTURE.md` lists what a new
//! language needs.

mod arabic;
mod czech;
mod dutch;
mod engine;
mod french;
mod german;
mod hungarian;
mod italian;
mod number_format;
mod polish;
mod portuguese;
mod russian;
mod spanish;
mod tidy;
mod turkish;

use std::sync::LazyLock;

use engine::Engine;

static ALL: LazyLock<Vec<(&'static str, LazyLock<Engine>)>> = LazyLock::new(|| {
    vec![
        ("ar", LazyLock::new(|| Engine::new(&arabic::LANGUAGE))),
        ("cs", LazyLock::new(|| Engine::new(&czech::LANGUAGE))),
        ("de", LazyLock::new(|| Engine::new(&german::LANGUAGE))),
        ("es", LazyLock::new(|| Engine::new(&spanish::LANGUAGE))),
        ("fr", LazyLock::new(|| Engine::new(&french::LANGUAGE))),
        ("hu", LazyLock::new(|| Engine::new(&hungarian::LANGUAGE))),
        ("it", LazyLock::new(|| Engine::new(&italian::LANGUAGE))),
        ("nl", LazyLock::new(|| Engine::new(&dutch::LANGUAGE))),
        ("pl", LazyLock::new(|| Engine::new(&polish::LANGUAGE))),
        ("pt", LazyLock::new(|| Engine::new(&portuguese::LANGUAGE))),
        ("ru", LazyLock::new(|| Engine::new(&russian::LANGUAGE))),
        ("tr", LazyLock::new(|| Engine::new(&turkish::LANGUAGE))),
    ]
});

/// Returns `text` as it is spoken, in lower case. A region is ignored (`pt-br` is `pt`). `None` if the language has no table
/// here.
pub fn clean(text: &str, language: &str) -> Option<String> {
    let base = language.split('-').next().unwrap_or(language);
    let (_, engine) = ALL.iter().find(|(code, _)| *code == base)?;
    Some(engine.clean(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks what must hold for every cleaned text.
    fn check(text: &str, code: &str) {
        let cleaned = clean(text, code).expect("the language has a table");
        assert!(!cleaned.contains(|c: char| c.is_ascii_digit()), "{code} {text:?}: {cleaned:?}");
        assert!(
            !cleaned.contains(['"', '¡', '€', 'º', 'ª', '$', '£', '%', '°', '#', '@']),
            "{code} {text:?}: {cleaned:?}"
        );
        assert!(!cleaned.contains("  ") && cleaned.trim() == cleaned, "{code} {text:?}: {cleaned:?}");
        for mark in ['.', ',', '!', '?', ';', ':'] {
            assert!(!cleaned.contains(&format!(" {mark}")), "{code} {text:?}: {cleaned:?}");
        }
    }

    proptest! {
        #[test]
        fn no_unspeakable_character_is_left(text in r#"[0-9 .,:/°%€$£ºªa-zA-Zж¡"'&@#()+-]{0,40}"#) {
            for (code, _) in ALL.iter() {
                check(&text, code);
            }
        }

        #[test]
        fn cleans_any_text(text in any::<String>()) {
            for (code, engine) in ALL.iter() {
                let once = engine.clean(&text);
                prop_assert_eq!(once.trim(), once.as_str(), "{}", code);
            }
        }
    }

    #[test]
    fn unknown_languages_have_no_cleaner() {
        assert_eq!(clean("a", "xx"), None);
        assert_eq!(clean("A 2", "pt-br").as_deref(), Some("a dois"));
    }
}
