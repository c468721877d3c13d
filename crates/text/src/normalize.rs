//! Unifies characters that look the same: Unicode forms, invisible characters, quotes, dashes, digits.
//!
//! Every default cleaner starts here. The text stays NFC. Compatibility forms (NFKC) are applied only where they are pure
//! typography: Arabic presentation forms, full-width and half-width forms, ligatures, squared units, mathematical alphabets.
//! Superscripts and vulgar fractions are left, because NFKC would turn "m²" into "m2" and "2½" into "21⁄2".

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// How the zero-width non-joiner is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joiner {
    /// Kept: in Persian it separates the parts of a word.
    Keep,
    /// Dropped: in every other language it is an invisible accident.
    Drop,
}

/// The zero-width non-joiner, U+200C.
pub const ZWNJ: char = '\u{200c}';

/// Normalises `text` as described in the module documentation. Idempotent; the output is at most a small factor longer than
/// the input.
pub fn normalize(text: &str, joiner: Joiner) -> String {
    let mut mapped = String::with_capacity(text.len());
    for c in text.nfc() {
        map(c, joiner, &mut mapped);
    }
    let composed: String = mapped.nfc().collect();
    collapse(&composed)
}

/// Appends the normalised form of `c`.
fn map(c: char, joiner: Joiner, out: &mut String) {
    match c {
        ZWNJ => {
            if joiner == Joiner::Keep {
                out.push(ZWNJ);
            }
        }
        _ if is_invisible(c) => {}
        _ if c.is_whitespace() => out.push(' '),
        _ if c.is_control() => {}
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' | '\u{2035}' | '\u{00b4}' | '`'
        | '\u{02bc}' | '\u{02b9}' | '\u{2039}' | '\u{203a}' => out.push('\''),
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{2033}' | '\u{2036}' => out.push('"'),
        '\u{2010}' | '\u{2011}' | '\u{2212}' | '\u{fe63}' | '\u{ff0d}' => out.push('-'),
        '\u{2012}'..='\u{2015}' | '\u{2e3a}' | '\u{2e3b}' | '\u{fe58}' => out.push('—'),
        // Other brackets would be read as a language tag of the vocabulary ("[en]") or not at all.
        '[' | '{' | '\u{fd3e}' | '\u{2983}' => out.push('('),
        ']' | '}' | '\u{fd3f}' | '\u{2984}' => out.push(')'),
        _ => match decimal_digit(c) {
            Some(digit) => out.push(digit),
            None if is_typographic(c) => {
                for part in std::iter::once(c).nfkc() {
                    // NFKC of a typographic form may itself be a space, a dash or a bracket.
                    if part == c { out.push(c) } else { map(part, joiner, out) }
                }
            }
            None => out.push(c),
        },
    }
}

/// Characters without width or sound: byte-order marks, joiners, bidirectional controls, variation selectors, soft hyphens,
/// enclosing keycaps.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}' | '\u{200d}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{20dd}'..='\u{20e4}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffc}'
        | '\u{e0000}'..='\u{e01ef}')
}

/// Forms that differ from their compatibility equivalent only in appearance.
fn is_typographic(c: char) -> bool {
    matches!(c,
        // Single-character Roman numerals and circled digits; letter-like unit signs.
        '\u{2103}' | '\u{2109}' | '\u{2160}'..='\u{217f}' | '\u{2460}'..='\u{2473}'
        // Squared units, ligatures, Arabic presentation forms, full- and half-width forms.
        | '\u{3371}'..='\u{337a}' | '\u{3380}'..='\u{33df}' | '\u{fb00}'..='\u{fb06}'
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{ff01}'..='\u{ffe6}'
        | '\u{1d400}'..='\u{1d7ff}')
}

/// Converts a digit of any script whose digits are contiguous to ASCII, so that the cleaners handle only one kind.
fn decimal_digit(c: char) -> Option<char> {
    const ZEROS: [u32; 18] = [
        0x0660, 0x06f0, 0x07c0, 0x0966, 0x09e6, 0x0a66, 0x0ae6, 0x0b66, 0x0be6, 0x0c66, 0x0ce6, 0x0d66,
        0x0e50, 0x0ed0, 0x0f20, 0x1040, 0x17e0, 0x1810,
    ];
    let code = u32::from(c);
    let zero = ZEROS.iter().find(|&&zero| (zero..zero + 10).contains(&code))?;
    char::from_digit(code - zero, 10)
}

/// Collapses spaces, trims the ends, writes ellipses and double hyphens as one character, and turns a dash between digits (a
/// range) into a plain hyphen.
fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' => {
                if !out.is_empty() && !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            '.' => {
                let mut dots = 1;
                while chars.next_if_eq(&'.').is_some() {
                    dots += 1;
                }
                match dots {
                    1 => out.push('.'),
                    // Two dots are a typing slip for one or three; both are a pause, so an ellipsis is written.
                    _ => push_once(&mut out, '…'),
                }
            }
            '…' => {
                while chars.next_if(|&c| c == '…' || c == '.').is_some() {}
                push_once(&mut out, '…');
            }
            '-' | '—' => {
                let mut long = c == '—';
                while let Some(next) = chars.next_if(|&c| c == '-' || c == '—') {
                    long = long || next == '—' || next == '-';
                }
                let in_range = out.ends_with(|c: char| c.is_ascii_digit())
                    && chars.peek().is_some_and(char::is_ascii_digit);
                out.push(if long && !in_range { '—' } else { '-' });
            }
            _ => out.push(c),
        }
    }
    out.truncate(out.trim_end_matches(' ').len());
    out
}

fn push_once(out: &mut String, c: char) {
    if !out.ends_with(c) {
        out.push(c);
    }
}

/// Returns whether `c` is part of a written word: a letter or a combining mark.
pub(crate) fn is_letter(c: char) -> bool {
    c.is_alphabetic() || is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn normalisation_is_idempotent(text in any::<String>()) {
            for joiner in [Joiner::Keep, Joiner::Drop] {
                let once = normalize(&text, joiner);
                prop_assert_eq!(normalize(&once, joiner), once);
            }
        }
    }

    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(normalize(input, Joiner::Drop), expected);
        assert_eq!(normalize(expected, Joiner::Drop), expected, "not a fixed point");
    }

    #[test]
    fn removes_invisible_characters() {
        check("\u{feff}a\u{200b}b\u{200e}c\u{00ad}d\u{2066}e\u{2069}", "abcde");
        check("می\u{200c}روم", "میروم");
        assert_eq!(normalize("می\u{200c}روم", Joiner::Keep), "می\u{200c}روم");
    }

    #[test]
    fn typography_is_unified() {
        check("“Hi” ‘there’", "\"Hi\" 'there'");
        check("1914–1918 – so — it", "1914-1918 — so — it");
        check("a -- b", "a — b");
        check("wait... what.. now…", "wait… what… now…");
        check("[a] {b}", "(a) (b)");
        check("ﬁne ＡＢＣ１２３ ㎏ 21℃", "fine ABC123 kg 21°C");
        check("ﻻ ﷼", "لا ریال");
        check("𝐡𝐞𝐥𝐥𝐨", "hello");
    }

    #[test]
    fn composes_letters_and_keeps_superscripts() {
        check("cafe\u{301}", "café");
        check("m² and 2½", "m² and 2½");
    }

    #[test]
    fn converts_digits_of_every_script_to_ascii() {
        check("٠١٢٣ ۴۵۶ ७८९", "0123 456 789");
    }

    #[test]
    fn collapses_whitespace_and_drops_controls() {
        check("\t a\u{a0}\u{3000}b\r\n\u{7}c ", "a b c");
    }
}
