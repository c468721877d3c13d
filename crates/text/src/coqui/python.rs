//! Where Python's idea of text differs from Rust's: words, digits and white space.

use std::sync::LazyLock;

use regex::Regex;

static WORD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}_]$").expect("a pattern of ours compiles"));
static DECIMAL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\p{Nd}$").expect("a pattern of ours compiles"));

fn matches(class: &Regex, c: char) -> bool {
    class.is_match(c.encode_utf8(&mut [0; 4]))
}

/// `\w`: letters, numbers and the underscore, but no combining marks.
pub(super) fn is_word(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() || c == '_' } else { matches(&WORD, c) }
}

/// `\d`: the decimal digits of every script.
pub(super) fn is_digit(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { c.is_numeric() && matches(&DECIMAL, c) }
}

/// `\s`: white space and the four separators of ASCII.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Is there a word boundary between two characters (or an end of text)?
pub(super) fn is_boundary(before: Option<char>, after: Option<char>) -> bool {
    before.is_some_and(is_word) != after.is_some_and(is_word)
}

/// Runs of white space to one blank, none at the ends.
pub(super) fn collapse_whitespace(text: &str) -> String {
    text.split(is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
