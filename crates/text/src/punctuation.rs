//! Last step of a default cleaner: pauses in one spelling, attached to the word they follow.

use std::collections::HashSet;

use super::normalize::is_letter;

/// Punctuation marks of a script.
pub(crate) struct Marks {
    /// Comma.
    pub comma: char,
    /// Semicolon.
    pub semicolon: char,
    /// Question mark.
    pub question: char,
    /// Opening and closing quotation marks; `None` if quotes are dropped.
    pub quotes: Option<(char, char)>,
    /// Whether a full stop or colon without a following space is treated as a missing space, except inside Latin words.
    pub stops_separate: bool,
}

/// Latin script. No quotation marks, as XTTS was trained.
pub(crate) const LATIN: Marks =
    Marks { comma: ',', semicolon: ';', question: '?', quotes: None, stops_separate: false };
/// Arabic.
pub(crate) const ARABIC: Marks =
    Marks { comma: '،', semicolon: '؛', question: '؟', quotes: None, stops_separate: true };
/// Persian.
pub(crate) const PERSIAN: Marks = Marks { quotes: Some(('«', '»')), ..ARABIC };

impl Marks {
    /// Strength of a pause; the strongest of several in a row is kept. `None` if `c` is not a pause.
    fn strength(&self, c: char) -> Option<u8> {
        Some(match c {
            _ if c == self.comma => 1,
            ':' => 2,
            _ if c == self.semicolon => 3,
            '—' => 4,
            '.' => 5,
            '…' => 6,
            '!' => 7,
            _ if c == self.question => 8,
            _ => return None,
        })
    }

    /// Returns the stronger of two pauses, or the first if they are equal.
    fn stronger(&self, a: Option<char>, b: Option<char>) -> Option<char> {
        let strength = |pause: Option<char>| pause.and_then(|c| self.strength(c));
        if strength(b) > strength(a) { b } else { a }
    }

    fn is_opener(&self, c: char) -> bool {
        c == '(' || self.quotes.is_some_and(|(open, _)| c == open)
    }

    /// Returns the character that opens the bracket or quotation closed by `c`.
    fn opener(&self, c: char) -> Option<char> {
        match self.quotes {
            _ if c == ')' => Some('('),
            Some((open, close)) if c == close => Some(open),
            _ => None,
        }
    }
}

/// Writes pauses in the spelling of the script and replaces everything that is neither letter nor pause by a space: emoji,
/// bullets, quotation marks, signs that no rule has read. Letters of every script are kept.
pub(crate) fn drop_unspeakable(text: &str, marks: &Marks) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let before = out.chars().next_back();
        let inside = before.is_some_and(is_letter) && chars.peek().copied().is_some_and(is_letter);
        match c {
            '\'' | '-' if inside => out.push(c),
            // A hyphen between spaces is a dash; one at the edge of a word is dropped.
            '-' if before == Some(' ') && chars.peek() == Some(&' ') => out.push('—'),
            '\'' | '"' if !inside => {}
            ',' | '،' | '、' => out.push(marks.comma),
            ';' | '؛' => out.push(marks.semicolon),
            '?' | '؟' => out.push(marks.question),
            '。' | '۔' => out.push('.'),
            '.' | ':' | '!' | '…' | '—' | '(' | ')' | ' ' | '¿' | '।' => out.push(c),
            _ if is_letter(c) => out.push(c),
            _ => out.push(' '),
        }
    }
    out
}

/// Keeps one pause out of several in a row, without a space before it and with one after it; removes leading pauses and
/// empty or unbalanced brackets. Everything that is neither a pause, a bracket nor a space is content.
pub(crate) fn tidy(text: &str, marks: &Marks) -> String {
    let text = balanced(text, marks);
    let mut out = String::with_capacity(text.len() + 8);
    // Between the last content and the next: the pause, and whether a space separates them.
    let mut pause: Option<char> = None;
    let mut space = false;
    for c in text.chars() {
        if c == ' ' {
            space = true;
        } else if marks.strength(c).is_some() {
            pause = marks.stronger(pause, Some(c));
            // A full stop or colon may be inside a word: "d.h.", "node.js".
            space |= !matches!(c, '.' | ':');
        } else if let Some(opener) = marks.opener(c) {
            if out.ends_with(opener) {
                // The bracket encloses nothing speakable: cut back to before it.
                out.pop();
                out.truncate(out.trim_end_matches(' ').len());
                if let Some(written) = out.chars().next_back().filter(|&last| marks.strength(last).is_some())
                {
                    out.pop();
                    out.truncate(out.trim_end_matches(' ').len());
                    pause = marks.stronger(Some(written), pause);
                }
                space = true;
            } else {
                // Drop a weak pause before a closing bracket: "(so, )".
                out.extend(pause.take().filter(|&kept| marks.strength(kept) >= marks.strength('.')));
                out.push(c);
                space = false;
            }
        } else {
            let first = out.is_empty() || out.ends_with(|last| marks.is_opener(last));
            let apart = space || marks.is_opener(c) || out.ends_with(|last| marks.opener(last).is_some());
            let inside =
                !marks.stops_separate || (c.is_ascii() && out.ends_with(|last: char| last.is_ascii()));
            match pause.take() {
                _ if first => {}
                Some('—') => out.push_str(" — "),
                Some(kept) => {
                    out.push(kept);
                    out.extend((apart || !inside).then_some(' '));
                }
                None => out.extend(apart.then_some(' ')),
            }
            space = false;
            out.push(c);
        }
    }
    // A dash at the end separates nothing.
    out.extend(pause.filter(|&kept| kept != '—' && !out.is_empty()));
    out
}

/// Removes brackets and quotation marks without a counterpart.
fn balanced(text: &str, marks: &Marks) -> String {
    let mut dropped = HashSet::new();
    let mut open: Vec<(usize, char)> = Vec::new();
    for (at, c) in text.char_indices() {
        if marks.is_opener(c) {
            open.push((at, c));
        } else if let Some(opener) = marks.opener(c) {
            // Unclosed brackets inside this pair are dropped as well.
            loop {
                match open.pop() {
                    Some((_, last)) if last == opener => break,
                    Some((inner, _)) => {
                        dropped.insert(inner);
                    }
                    None => {
                        dropped.insert(at);
                        break;
                    }
                }
            }
        }
    }
    dropped.extend(open.into_iter().map(|(at, _)| at));
    text.char_indices().map(|(at, c)| if dropped.contains(&at) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(tidy(input, &LATIN), expected);
        assert_eq!(tidy(expected, &LATIN), expected, "not a fixed point");
    }

    #[test]
    fn pauses_are_attached_and_single() {
        check("five percent .", "five percent.");
        check("a ,b", "a, b");
        check("what?!?", "what?");
        check("so.,then", "so. then");
        check(", a —", "a");
        check("a—b", "a — b");
        check("d.h. so", "d.h. so");
    }

    #[test]
    fn brackets_are_balanced_and_never_empty() {
        check("a () b", "a b");
        check("a, ( ( ) ) . b", "a. b");
        check("a)b(c", "a b c");
        check("see( this , )now", "see (this) now");
        check("(yes.) no", "(yes.) no");
        check(&"(".repeat(10_000), "");
    }
}
