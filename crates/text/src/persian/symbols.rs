//! Persian signs that are read aloud, abbreviations, punctuation, and characters that are dropped.

use super::letters::is_arabic;
use crate::normalize::{ZWNJ, is_letter};
use crate::rewrite::{pattern, replace_signs, rewrite};

/// Expands abbreviations with full stops. Runs before numbers are read.
pub fn abbreviations(text: &str) -> String {
    let text = rewrite(text, pattern!(r"#([0-9])"), |found| Some(format!("شماره {}", found.text(1))));
    let text = rewrite(&text, pattern!(r"№ ?"), |_| Some("شماره ".into()));
    let text = rewrite(&text, pattern!(r"\b(صص|ص|ج|ش)\.? ?([0-9])"), |found| {
        let word = match found.text(1) {
            "ص" => "صفحه",
            "صص" => "صفحات",
            "ج" => "جلد",
            _ => "شماره",
        };
        Some(format!("{word} {}", found.text(2)))
    });
    let text = rewrite(&text, pattern!(r"([^0-9 ]) (ق|ب)\.ظ\b"), |found| {
        let half = if found.text(2) == "ق" { "قبل از ظهر" } else { "بعد از ظهر" };
        Some(format!("{} {half}", found.text(1)))
    });
    rewrite(&text, pattern!(r"\((ص|ع|س|ره|عج)\)"), |found| {
        Some(match found.text(1) {
            "ص" => "صلی الله علیه و آله".into(),
            "ع" => "علیه السلام".into(),
            "س" => "سلام الله علیها".into(),
            "ره" => "رحمت الله علیه".into(),
            _ => "عجل الله تعالی فرجه".into(),
        })
    })
}

/// Replaces signs by words. Runs after numbers are read.
pub fn read(text: &str) -> String {
    let text = rewrite(text, pattern!(r"#([\p{L}\p{M}_\x{200c}]+)"), |found| {
        Some(format!("هشتگ {}", found.text(1).replace('_', " ")))
    });
    replace_signs(&text, |sign| {
        Some(match sign {
            '&' => "و",
            '@' => "ات",
            '+' => "به علاوه",
            '=' => "مساوی",
            '×' => "ضربدر",
            '÷' => "تقسیم بر",
            '±' => "مثبت منفی",
            '§' => "بند",
            _ => return None,
        })
    })
}

/// Unifies punctuation and replaces everything that is neither letter nor pause by a space: emoji, bullets, mathematical
/// signs. Letters of every script are kept.
pub fn drop_unspeakable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let before = out.chars().next_back();
        let after = chars.peek().copied();
        match c {
            ',' | '،' | '٬' | '、' | '，' | '\u{066b}' => out.push('،'),
            ';' | '؛' | '⁏' => out.push('؛'),
            '?' | '؟' | '⸮' => out.push('؟'),
            '۔' | '。' => out.push('.'),
            '"' => {
                // Straight quotes alternate between opening and closing.
                out.push_str(if quoted { "» " } else { " «" });
                quoted = !quoted;
            }
            '\'' if before.is_some_and(is_latin) && after.is_some_and(is_latin) => out.push(c),
            '-' if before.is_some_and(is_letter) && after.is_some_and(is_letter) => out.push(c),
            // A hyphen between spaces is a dash; one at the edge of a word is dropped.
            '-' if before == Some(' ') && after == Some(' ') => out.push('—'),
            '«' | '»' | '(' | ')' | '.' | ':' | '!' | '…' | '—' | ZWNJ | ' ' => out.push(c),
            '¡' | '¿' | '\'' => {}
            _ if is_letter(c) => out.push(c),
            _ => out.push(' '),
        }
    }
    out
}

fn is_latin(c: char) -> bool {
    c.is_alphabetic() && !is_arabic(c)
}
