//! Signs that are read aloud in English.

use crate::rewrite::{pattern, replace_signs, rewrite};

/// Reads signs that need the number after them. Runs before numbers are read.
pub fn before_numbers(text: &str) -> String {
    let text = rewrite(text, pattern!(r"#([0-9])"), |found| Some(format!("number {}", found.text(1))));
    rewrite(&text, pattern!(r"§ ?([0-9])"), |found| Some(format!("section {}", found.text(1))))
}

/// Replaces signs by words. Runs after numbers are read.
pub fn read(text: &str) -> String {
    let text = rewrite(text, pattern!(r"#([\p{L}\p{M}_]+)"), |found| {
        Some(format!("hashtag {}", found.text(1).replace('_', " ")))
    });
    let text = rewrite(&text, pattern!(r"(?i)\band/or\b"), |_| Some("and or".into()));
    // A comparison has spaces around it; anything else in angle brackets is markup or an emoticon.
    let text = text.replace(" < ", " is less than ").replace(" > ", " is greater than ");
    replace_signs(&text, |sign| {
        Some(match sign {
            '&' => "and",
            '@' => "at",
            '#' => "hash",
            '+' => "plus",
            '=' => "equals",
            '×' => "times",
            '÷' => "divided by",
            '±' => "plus or minus",
            '/' => "slash",
            '§' => "section",
            'ª' | 'º' => "",
            _ => return None,
        })
    })
}
