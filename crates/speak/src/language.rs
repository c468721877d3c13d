//! Guesses the language of a text.

use myxtts_text::script::{Script, is_persian};

/// Guesses the language of a text by its letters, among the languages of a model; `None` if the model has none.
pub fn guess_language(text: &str, languages: &[String]) -> Option<String> {
    let is_known = |language: &&str| languages.iter().any(|known| known == language);
    let candidates: &[&str] = match Script::of_text(text) {
        Some(Script::Arabic) if is_persian([text].into_iter()) => &["fa", "ar"],
        Some(Script::Arabic) => &["ar", "fa"],
        Some(Script::Cyrillic) => &["ru"],
        Some(Script::Han) => &["zh-cn", "zh", "ja"],
        Some(Script::Kana) => &["ja"],
        Some(Script::Hangul) => &["ko"],
        Some(Script::Devanagari) => &["hi"],
        Some(Script::Latin) | None => &["en"],
    };
    candidates.iter().copied().find(is_known).map(str::to_owned).or_else(|| languages.first().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_guessed_by_letters_among_those_of_the_model() {
        let all = ["en", "fa", "ar", "ru", "zh-cn", "ja", "ko", "hi"].map(str::to_owned);
        for (text, language) in [
            ("Hello, 3 قهوه", "en"),
            ("سلام، حال شما چطور است؟", "fa"),
            ("این یک آزمایش است", "fa"),
            ("مرحبا", "ar"),
            ("Привет", "ru"),
            ("今天天气很好", "zh-cn"),
            ("今日は天気がいい", "ja"),
            ("我们今天去北京の公园看樱花", "zh-cn"),
            ("안녕하세요", "ko"),
            ("नमस्ते", "hi"),
            ("123", "en"),
            ("", "en"),
        ] {
            assert_eq!(guess_language(text, &all).as_deref(), Some(language), "{text}");
        }
        let persian = ["fa".to_owned()];
        assert_eq!(guess_language("Hello", &persian).as_deref(), Some("fa"));
        assert_eq!(guess_language("سلام", &persian).as_deref(), Some("fa"));
        assert_eq!(guess_language("Hello", &[]), None);
    }
}
