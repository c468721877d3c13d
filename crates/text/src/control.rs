//! Removes terminal control sequences, so that a colour code in a pasted log line is not read aloud as "thirty one m".
//!
//! This module handles the sequences that start with an escape character, including their printable parameters. Single
//! control characters are handled by [`super::normalize`].

use std::borrow::Cow;

/// Starts a sequence. The 8-bit equivalents that some terminals accept are left alone: in practice they are letters of
/// text decoded with the wrong encoding.
const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';

/// Returns `text` without ANSI (ECMA-48) escape sequences: colours, cursor movements, window titles, hyperlinks.
pub fn strip_escape_sequences(text: &str) -> Cow<'_, str> {
    let Some(mut at) = text.find(ESCAPE) else { return Cow::Borrowed(text) };
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        out.push_str(&rest[..at]);
        rest = after_sequence(&rest[at + ESCAPE.len_utf8()..]);
        match rest.find(ESCAPE) {
            Some(next) => at = next,
            None => break,
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the text after a sequence whose escape character is already consumed.
fn after_sequence(text: &str) -> &str {
    let skip = |text: &'_ str, from: char, to: char| {
        text.len() - text.trim_start_matches(|c| (from..=to).contains(&c)).len()
    };
    let last = |text: &'_ str, from: char, to: char| {
        text.chars().next().filter(|c| (from..=to).contains(c)).map_or(0, char::len_utf8)
    };
    match text.chars().next() {
        // Parameters, intermediates, one final character. Any other character ends the sequence early and is text
        // again.
        Some('[') => {
            let rest = &text[1..];
            let rest = &rest[skip(rest, ' ', '?')..];
            &rest[last(rest, '@', '~')..]
        }
        // A string up to its terminator. An unterminated one is cut at the end of the line, so that a stray byte costs
        // at most one line.
        Some('P' | 'X' | ']' | '^' | '_') => {
            let rest = &text[text.find([BELL, ESCAPE, '\n', '\r']).unwrap_or(text.len())..];
            rest.strip_prefix(BELL).or_else(|| rest.strip_prefix("\u{1b}\\")).unwrap_or(rest)
        }
        // Intermediates and one final character, for example a change of character set.
        Some(_) => {
            let rest = &text[skip(text, ' ', '/')..];
            &rest[last(rest, '0', '~')..]
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn removes_sequences_and_keeps_text() {
        for (given, wanted) in [
            ("Hello.", "Hello."),
            ("\u{1b}[31mred\u{1b}[0m alert", "red alert"),
            ("\u{1b}[1;38;5;196mbold\u{1b}[m", "bold"),
            ("a\u{1b}]0;a title\u{7}b", "ab"),
            ("\u{1b}]8;;http://x.org\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("a\u{1b}(Bb\u{1b}7c", "abc"),
            ("\u{1b}Pq#0;2;0\u{1b}\\end", "end"),
            ("ma\u{17e} \u{9e}ena", "ma\u{17e} \u{9e}ena"),
            ("tail\u{1b}", "tail"),
            ("tail\u{1b}[", "tail"),
            ("\u{1b}[31سلام", "سلام"),
            ("\u{1b}]0;never ended\nnext line", "\nnext line"),
        ] {
            assert_eq!(strip_escape_sequences(given), wanted, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn output_is_a_subsequence_of_the_input(text in "[\\x1b\\[\\]0-9;mHa\\\\\\x07é \n]{0,40}") {
            let left = strip_escape_sequences(&text);
            prop_assert!(!left.contains(ESCAPE) && left.len() <= text.len());
            let mut chars = text.chars();
            prop_assert!(left.chars().all(|c| chars.any(|d| d == c)), "{left:?} is not a subsequence of {text:?}");
        }

        #[test]
        fn text_without_sequences_is_unchanged(text in "[^\\x1b]*") {
            prop_assert!(matches!(strip_escape_sequences(&text), Cow::Borrowed(same) if same == text));
        }
    }
}
