//! Where the text comes from, and which language it is in.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::failure::UsageError;

/// A text to be read, and how many bytes it has where that is known.
pub struct Text {
    pub reader: Box<dyn Read>,
    pub bytes: Option<u64>,
    /// How it begins, to guess its language.
    pub beginning: String,
}

/// Bytes that a language is guessed by.
const GUESSED_BY: usize = 4096;

impl Text {
    /// The text of the argument, of a file, or of standard input, whichever is given.
    pub fn find(argument: Option<String>, file: Option<&Path>) -> anyhow::Result<Text> {
        match (argument, file) {
            (Some(text), None) if text == "-" => Text::stdin(),
            (Some(text), None) => {
                let bytes = Some(text.len() as u64);
                let beginning = text.chars().take(GUESSED_BY / 4).collect();
                Ok(Text { reader: Box::new(std::io::Cursor::new(text.into_bytes())), bytes, beginning })
            }
            (None, Some(path)) if path == Path::new("-") => Text::stdin(),
            (None, Some(path)) => {
                let file =
                    File::open(path).with_context(|| format!("cannot open the text {}", path.display()))?;
                let found = file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
                if found.is_dir() {
                    return Err(UsageError(format!(
                        "--file {} is a folder: name a text file",
                        path.display()
                    ))
                    .into());
                }
                Text::begun(Box::new(file), found.is_file().then_some(found.len()))
            }
            (None, None) if !std::io::stdin().is_terminal() => Text::stdin(),
            (None, None) => Err(UsageError(
                "there is no text: write it behind `speak`, name a file with --file, or pipe it in"
                    .to_owned(),
            )
            .into()),
            (Some(_), Some(_)) => Err(UsageError("give a text or --file, not both".to_owned()).into()),
        }
    }

    fn stdin() -> anyhow::Result<Text> {
        Text::begun(Box::new(std::io::stdin()), None)
    }

    /// Reads the beginning, and puts it in front again.
    fn begun(mut reader: Box<dyn Read>, bytes: Option<u64>) -> anyhow::Result<Text> {
        // What there is: whoever writes a text slowly is not waited for.
        let mut first = vec![0; GUESSED_BY];
        let read = reader.read(&mut first).context("cannot read the text")?;
        first.truncate(read);
        let beginning = String::from_utf8_lossy(&first).into_owned();
        Ok(Text { reader: Box::new(std::io::Cursor::new(first).chain(reader)), bytes, beginning })
    }
}

/// The language of a text, by its letters, among those that a model speaks; none where it speaks none.
pub fn guess_language(text: &str, spoken: &[String]) -> Option<String> {
    let speaks = |language: &&str| spoken.iter().any(|known| known == language);
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
    candidates.iter().copied().find(speaks).map(str::to_owned).or_else(|| spoken.first().cloned())
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

/// The script that most letters are of. One kana makes Han Japanese; a letter or the full stop that Arabic lacks makes it Persian.
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
    // The first of equals.
    let most = scripts.into_iter().rev().max_by_key(|&script| count(script)).unwrap_or(Other);
    match most {
        Arabic if text.contains(['پ', 'چ', 'ژ', 'گ', 'ک', 'ی', '\u{200c}']) => Persian,
        Han if count(Kana) > 0 => Kana,
        most => most,
    }
}

/// The first name that is free: `speech.wav`, `speech-2.wav`, ...
pub fn free_name(stem: &str, extension: &str) -> PathBuf {
    let name = |number: u64| match number {
        1 => PathBuf::from(format!("{stem}.{extension}")),
        number => PathBuf::from(format!("{stem}-{number}.{extension}")),
    };
    (1..).map(name).find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| name(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_guessed_by_letters_among_those_that_are_spoken() {
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
