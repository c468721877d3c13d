//! What every text gets, whatever its language: one spelling of characters on the way in, tidy blanks on the way out.

use unicode_normalization::UnicodeNormalization;

/// Composed characters, one kind of blank and of digit, no invisible characters, no quotation marks of ASCII.
pub(super) fn enter(text: &str) -> String {
    text.nfc().filter_map(character).collect()
}

fn character(c: char) -> Option<char> {
    Some(match c {
        // Invisible, or without a sound and without a piece in the XTTS vocabularies.
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
        // The blanks that group thousands stay until numbers are read.
        '\u{a0}' | '\u{202f}' | '\u{2009}' => '\u{a0}',
        c if c.is_whitespace() => ' ',
        c => c,
    })
}

fn ascii_digit(c: char, zero: char) -> char {
    char::from(b'0' + (c as u32 - zero as u32) as u8)
}

/// Characters that no rule has read and nobody can say go; blanks are single, and none stands before punctuation.
pub(super) fn leave(text: &str) -> String {
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
    fn blanks_and_marks() {
        assert_eq!(leave("  fünf prozent . ( ja ) !"), "fünf prozent. (ja)!");
        assert_eq!(enter("¡٣٫٥ \u{200e}e\u{301}\"!"), "3,5 é!");
    }
}
