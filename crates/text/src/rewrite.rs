//! Regular-expression rewriting with look-around. The `regex` crate matches in linear time and therefore has no
//! look-behind, so a rule receives the text before and after its match instead.

use regex::{Captures, Regex};

/// A match and its surroundings.
pub(crate) struct Found<'t> {
    captures: Captures<'t>,
    /// All text before the match.
    pub before: &'t str,
    /// All text after the match.
    pub after: &'t str,
}

impl<'t> Found<'t> {
    /// Text of a numbered group; `None` if the group did not participate.
    pub fn get(&self, group: usize) -> Option<&'t str> {
        self.captures.get(group).map(|found| found.as_str())
    }

    /// Text of a numbered group; empty if the group did not participate.
    pub fn text(&self, group: usize) -> &'t str {
        self.get(group).unwrap_or("")
    }

    /// Character directly before the match.
    pub fn previous(&self) -> Option<char> {
        self.before.chars().next_back()
    }

    /// Character directly after the match.
    pub fn next(&self) -> Option<char> {
        self.after.chars().next()
    }

    /// Whether no letter, digit or mark touches the match.
    pub fn is_separate(&self) -> bool {
        !self.previous().is_some_and(is_word_char) && !self.next().is_some_and(is_word_char)
    }

    /// Whether the match is not part of a longer number: `1.2` in `1.2.3`, `3/4` in `2/3/4`.
    pub fn is_whole_number(&self) -> bool {
        let mut before = self.before.chars().rev();
        let last = before.next();
        let continues_before = last.is_some_and(|c| c.is_ascii_digit())
            || (last.is_some_and(is_number_punctuation) && before.next().is_some_and(|c| c.is_ascii_digit()));
        let mut after = self.after.chars();
        let first = after.next();
        let continues_after = first.is_some_and(|c| c.is_ascii_digit())
            || (first.is_some_and(is_number_punctuation) && after.next().is_some_and(|c| c.is_ascii_digit()));
        !continues_before && !continues_after
    }

    /// Last word before the match, in lower case, if only spaces are in between; otherwise empty.
    pub fn word_before(&self) -> String {
        let before = self.before.trim_end();
        let start = before
            .rfind(|c: char| !is_word_char(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        before[start..].to_lowercase()
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || super::normalize::is_letter(c)
}

fn is_number_punctuation(c: char) -> bool {
    matches!(c, '.' | ',' | '/' | ':' | '-')
}

/// Replaces each match of `pattern` by the result of `rule`; `None` leaves the match unchanged. A space is inserted
/// where a replacement would otherwise touch a neighbouring letter.
pub(crate) fn rewrite(text: &str, pattern: &Regex, mut rule: impl FnMut(&Found) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 2);
    let mut copied = 0;
    for captures in pattern.captures_iter(text) {
        let Some(whole) = captures.get(0) else { continue };
        let found = Found { captures, before: &text[..whole.start()], after: &text[whole.end()..] };
        let Some(replacement) = rule(&found) else { continue };
        out.push_str(&text[copied..whole.start()]);
        let (first, last) = (replacement.chars().next(), replacement.chars().next_back());
        let (was_first, was_last) = (whole.as_str().chars().next(), whole.as_str().chars().next_back());
        if first != was_first && would_join(out.chars().next_back(), first) {
            out.push(' ');
        }
        out.push_str(&replacement);
        if last != was_last && would_join(last, found.next()) {
            out.push(' ');
        }
        copied = whole.end();
    }
    out.push_str(&text[copied..]);
    out
}

/// Replaces each character for which `word` returns a word, and puts a space on both sides of it.
pub(crate) fn replace_signs(text: &str, word: impl Fn(char) -> Option<&'static str>) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match word(c) {
            Some(word) => {
                out.push(' ');
                out.push_str(word);
                out.push(' ');
            }
            None => out.push(c),
        }
    }
    out
}

/// Repeats `pass` until it changes nothing: replacing one item can expose another next to it ("site.com1403"). Clean
/// text takes one pass, ordinary text two, hostile text at most eight.
pub(crate) fn until_stable(text: &str, pass: impl Fn(&str) -> String) -> String {
    let mut current = pass(text);
    for _ in 0..7 {
        let next = pass(&current);
        if next == current {
            break;
        }
        current = next;
    }
    current
}

/// Whether two words would run together. Digits may touch: a rule that only rewrites a sign must not split a number.
fn would_join(a: Option<char>, b: Option<char>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            is_word_char(a) && is_word_char(b) && !(a.is_ascii_digit() && b.is_ascii_digit())
        }
        _ => false,
    }
}

/// A constant pattern, compiled on first use.
macro_rules! pattern {
    ($($source:expr),+ $(,)?) => {{
        static PATTERN: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
            regex::Regex::new(concat!($($source),+)).expect("constant patterns are valid")
        });
        &*PATTERN
    }};
}
pub(crate) use pattern;
