//! Guesses the language of a text.

/// Guesses the language of a text by its letters, among the languages of a model; `None` if the model has none.
pub fn guess_language(text: &str, languages: &[String]) -> Option<String> {
    let is_known = |language: &&str| languages.iter().any(|known| known == language);
    let candidates: &[&str] = match script(text) {
        Script::Persian => &["fa", "ar"],
        Script::Arabic => &["ar", "fa"],
        Script::Cyrillic => &["ru"],
        Script::Han => &["zh-cn", "zh", "ja"],
        Script::Kana => &["ja"],
        Script::Hangul => &["ko"],
        Script::Devanagari => &["hi"],
        Script::Other => &["en"],
    };
    candidates.iter().copied().find(is_known).map(str::to_owned).or_else(|| languages.first().cloned())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Persian,
    Arabic,
    Cyrillic,
    Han,
    Kana,
    Hangul,
    Devanagari,
    Other,
}

/// The script of most letters. Han with any kana is Japanese; Arabic with a letter that only Persian has is Persian.
fn script(text: &str) -> Script {
    use Script::*;
    let of = |c: char| match c {
        '\u{600}'..='\u{6ff}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}' => Arabic,
        '\u{400}'..='\u{52f}' => Cyrillic,
        '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' => Han,
        '\u{3041}'..='\u{30ff}' => Kana,
        '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7af}' => Hangul,
        '\u{900}'..='\u{97f}' => Devanagari,
        _ => Other,
    };
    let count = |script: Script| text.chars().filter(|&c| c.is_alphabetic() && of(c) == script).count();
    let scripts = [Other, Arabic, Cyrillic, Han, Kana, Hangul, Devanagari];
    // `max_by_key` returns the last of equals; reversed, that is the first.
    let most = scripts.into_iter().rev().max_by_key(|&script| count(script)).unwrap_or(Other);
    match most {
        Arabic if text.contains(['پ', 'چ', 'ژ', 'گ', 'ک', 'ی', '\u{200c}']) => Persian,
        Han if count(Kana) > 0 => Kana,
        most => most,
    }
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
