//! Signs that are read aloud in English, and what is dropped.

use crate::text::normalize::is_letter;
use crate::text::rewrite::{pattern, rewrite};

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
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let word = match c {
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
            _ => {
                out.push(c);
                continue;
            }
        };
        out.push(' ');
        out.push_str(word);
        out.push(' ');
    }
    out
}

/// A space for everything that is neither letter nor pause: emoji, bullets, quotation marks. XTTS was
/// trained without quotation marks. Letters are kept, of whatever script.
pub fn sweep(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let before = out.chars().next_back();
        let inside = before.is_some_and(is_letter) && chars.peek().copied().is_some_and(is_letter);
        match c {
            '\'' if inside => out.push('\''),
            '\'' | '"' if !inside => {}
            '-' if inside => out.push('-'),
            // A hyphen with spaces around it is a dash; one at the edge of a word is nothing.
            '-' if before == Some(' ') && chars.peek() == Some(&' ') => out.push('—'),
            '،' | '、' => out.push(','),
            '؛' => out.push(';'),
            '؟' => out.push('?'),
            '。' | '۔' | '।' => out.push('.'),
            ',' | '.' | ';' | ':' | '!' | '?' | '…' | '—' | '(' | ')' | ' ' => out.push(c),
            _ if is_letter(c) => out.push(c),
            _ => out.push(' '),
        }
    }
    out
}
