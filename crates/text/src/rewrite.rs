//! Regular-expression rewriting that can look around: the `regex` crate matches in linear time and
//! therefore has no look-behind, so a rule gets the text before and after its match instead.

use regex::{Captures, Regex};

/// A match and its surroundings.
pub(crate) struct Found<'t> {
    captures: Captures<'t>,
    /// Everything before the match.
    pub before: &'t str,
    /// Everything after the match.
    pub after: &'t str,
}

impl<'t> Found<'t> {
    /// The text of a numbered group, where it took part.
    pub fn get(&self, group: usize) -> Option<&'t str> {
        self.captures.get(group).map(|found| found.as_str())
    }

    /// The text of a group, empty where it took no part.
    pub fn text(&self, group: usize) -> &'t str {
        self.get(group).unwrap_or("")
    }

    /// The character before the match.
    pub fn previous(&self) -> Option<char> {
        self.before.chars().next_back()
    }

    /// The character after the match.
    pub fn next(&self) -> Option<char> {
        self.after.chars().next()
    }

    /// No letter, digit or mark touches the match.
    pub fn is_separate(&self) -> bool {
        !self.previous().is_some_and(is_wordy) && !self.next().is_some_and(is_wordy)
    }

    /// The match is not a part of a longer number: `1.2` in `1.2.3`, `3/4` in `2/3/4`.
    pub fn is_whole_number(&self) -> bool {
        let mut before = self.before.chars().rev();
        let last = before.next();
        let cut_before = last.is_some_and(|c| c.is_ascii_digit())
            || (last.is_some_and(is_number_punctuation) && before.next().is_some_and(|c| c.is_ascii_digit()));
        let mut after = self.after.chars();
        let first = after.next();
        let cut_after = first.is_some_and(|c| c.is_ascii_digit())
            || (first.is_some_and(is_number_punctuation) && after.next().is_some_and(|c| c.is_ascii_digit()));
        !cut_before && !cut_after
    }

    /// The last word before the match, in lower case, where only spaces stand between.
    pub fn word_before(&self) -> String {
        let before = self.before.trim_end();
        let start = before
            .rfind(|c: char| !is_wordy(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        before[start..].to_lowercase()
    }
}

fn is_wordy(c: char) -> bool {
    c.is_alphanumeric() || super::normalize::is_letter(c)
}

fn is_number_punctuation(c: char) -> bool {
    matches!(c, '.' | ',' | '/' | ':' | '-')
}

/// Replaces each match of `pattern` by what `rule` makes of it; `None` leaves the match as it stands.
/// A replacement never grows into its neighbours: a space is put between letters that would touch.
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
        if first != was_first && touch(out.chars().next_back(), first) {
            out.push(' ');
        }
        out.push_str(&replacement);
        if last != was_last && touch(last, found.next()) {
            out.push(' ');
        }
        copied = whole.end();
    }
    out.push_str(&text[copied..]);
    out
}

/// Replaces each character that has a word by the word, with a space on both sides.
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

/// Repeats `pass` until it changes nothing. Reading one thing aloud can uncover another that was hidden by
/// its neighbours ("site.com1403"); a cleaned text costs one pass, a written one two, a hostile one eight.
pub(crate) fn settle(text: &str, pass: impl Fn(&str) -> String) -> String {
    let mut settled = pass(text);
    for _ in 0..7 {
        let next = pass(&settled);
        if next == settled {
            break;
        }
        settled = next;
    }
    settled
}

/// Two words would run together. Digits may: a rule that only rewrites a sign must not cut a number.
fn touch(a: Option<char>, b: Option<char>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => is_wordy(a) && is_wordy(b) && !(a.is_ascii_digit() && b.is_ascii_digit()),
        _ => false,
    }
}

/// A pattern written by us, compiled at first use.
macro_rules! pattern {
    ($($source:expr),+ $(,)?) => {{
        static PATTERN: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
            regex::Regex::new(concat!($($source),+)).expect("patterns are constants and tested")
        });
        &*PATTERN
    }};
}
pub(crate) use pattern;
