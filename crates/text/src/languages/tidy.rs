//! Language-independent steps: unifies characters before cleaning and corrects spaces after it.

use unicode_normalization::UnicodeNormalization;

/// Composes characters (NFC), unifies spaces and digits, and removes invisible characters and ASCII quotation marks.
pub(super) fn unify(text: &str) -> String {
    text.nfc().filter_map(character).collect()
}

fn character(c: char) -> Option<char> {
    Some(match c {
        // Invisible, or silent and missing from the XTTS vocabularies.
        '"' | '¡' | '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2060}' | '\u{feff}' => {
            return None;
        }
        '\u{660}'..='\u{669}' => ascii_digit(c, '\u{660}'),
        '\u{6f0}'..='\u{6f9}' => ascii_digit(c, '\u{6f0}'),
        '\u{966}'..='\u{96f}' => ascii_digit(c, '\u{966}'),
        '\u{ff10}'..='\u{ff19}' => ascii_digit(c, '\u{ff10}'),
        '٫' => ',',
        '٬' => '.',
        '٪' => '%',
        '˚' => '°',
        // Spaces that group thousands stay until numbers are read.
        '\u{a0}' | '\u{202f}' | '\u{2009}' => '\u{a0}',
        c if c.is_whitespace() => ' ',
        c => c,
    })
}

fn ascii_digit(c: char, zero: char) -> char {
    char::from(b'0' + (c as u32 - zero as u32) as u8)
}

/// Removes characters that no rule has read and that cannot be spoken; collapses spaces and removes those before
/// punctuation.
pub(super) fn finish(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'º' | 'ª' => {}
            '*' | '~' | '^' | '|' | '\\' | '<' | '>' | '{' | '}' | '[' | ']' | '`' | '¨' => out.push(' '),
            c if c.is_whitespace() => out.push(' '),
            c => out.push(c),
        }
    }
    let mut tidy = String::with_capacity(out.len());
    for c in out.chars() {
        let closes = matches!(c, '.' | ',' | '!' | '?' | ';' | ':' | ')' | '،' | '؛' | '؟');
        if closes && tidy.ends_with(' ') {
            tidy.pop();
        }
        let blank_wanted = !(tidy.is_empty() || tidy.ends_with([' ', '(']));
        if c != ' ' || blank_wanted {
            tidy.push(c);
        }
    }
    tidy.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_punctuation_marks() {
        assert_eq!(finish("  fünf prozent . ( ja ) !"), "fünf prozent. (ja)!");
        assert_eq!(unify("¡٣٫٥ \u{200e}e\u{301}\"!"), "3,5 é!");
    }
}
