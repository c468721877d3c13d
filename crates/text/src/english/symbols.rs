//! Signs that are read aloud in English.

use crate::rewrite::{pattern, replace_signs, rewrite};

/// Signs that need the number behind them, before numbers are read.
pub fn before_numbers(text: &str) -> String {
    let text = rewrite(text, pattern!(r"#([0-9])"), |found| Some(format!("number {}", found.text(1))));
    rewrite(&text, pattern!(r"§ ?([0-9])"), |found| Some(format!("section {}", found.text(1))))
}

/// Signs as words. Numbers are words already.
pub fn read(text: &str) -> String {
    let text = rewrite(text, pattern!(r"#([\p{L}\p{M}_]+)"), |found| {
        Some(format!("hashtag {}", found.text(1).replace('_', " ")))
    });
    let text = rewrite(&text, pattern!(r"(?i)\band/or\b"), |_| Some("and or".into()));
    // A comparison stands between spaces; anything else in angle brackets is markup or a face.
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
