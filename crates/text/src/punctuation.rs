//! The last step of a default cleaner: pauses in one spelling, attached to the word they follow.

use std::collections::HashSet;

use super::normalize::is_letter;

/// Punctuation of a script.
pub(crate) struct Marks {
    /// Its comma.
    pub comma: char,
    /// Its semicolon.
    pub semicolon: char,
    /// Its question mark.
    pub question: char,
    /// Its quotation marks, opening and closing; none where quotes are dropped.
    pub quotes: Option<(char, char)>,
    /// A full stop or colon without a space behind it is a slip, except inside Latin words.
    pub stops_separate: bool,
}

/// Marks of the Latin script as XTTS was trained: no quotation marks.
pub(crate) const LATIN: Marks =
    Marks { comma: ',', semicolon: ';', question: '?', quotes: None, stops_separate: false };
/// Marks of Arabic.
pub(crate) const ARABIC: Marks =
    Marks { comma: '،', semicolon: '؛', question: '؟', quotes: None, stops_separate: true };
/// Marks of Persian.
pub(crate) const PERSIAN: Marks = Marks { quotes: Some(('«', '»')), ..ARABIC };

impl Marks {
    /// How strong a pause is; of several in a row the strongest is kept. None: not a pause.
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

    /// The stronger of two pauses, the first where they are equal.
    fn stronger(&self, a: Option<char>, b: Option<char>) -> Option<char> {
        let strength = |pause: Option<char>| pause.and_then(|c| self.strength(c));
        if strength(b) > strength(a) { b } else { a }
    }

    fn is_opener(&self, c: char) -> bool {
        c == '(' || self.quotes.is_some_and(|(open, _)| c == open)
    }

    /// What opens the bracket or quotation that `c` closes.
    fn opener(&self, c: char) -> Option<char> {
        match self.quotes {
            _ if c == ')' => Some('('),
            Some((open, close)) if c == close => Some(open),
            _ => None,
        }
    }
}

/// Pauses in the spelling of the script, and a space for everything that is neither letter nor pause: emoji,
/// bullets, quotation marks, signs that nothing has read. Letters are kept, of whatever script.
pub(crate) fn sweep(text: &str, marks: &Marks) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let before = out.chars().next_back();
        let inside = before.is_some_and(is_letter) && chars.peek().copied().is_some_and(is_letter);
        match c {
            '\'' | '-' if inside => out.push(c),
            // A hyphen with spaces around it is a dash; one at the edge of a word is nothing.
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

/// One pause where several stand, no space before it and one behind, no pause at the beginning, no empty
/// or unbalanced brackets. Everything that is neither a pause, a bracket nor a space is content.
pub(crate) fn tidy(text: &str, marks: &Marks) -> String {
    let text = balanced(text, marks);
    let mut out = String::with_capacity(text.len() + 8);
    // What stands between the last content and the next: a pause, and whether they are apart.
    let mut pause: Option<char> = None;
    let mut space = false;
    for c in text.chars() {
        if c == ' ' {
            space = true;
        } else if marks.strength(c).is_some() {
            pause = marks.stronger(pause, Some(c));
            // A full stop or colon may stand inside a word: "d.h.", "node.js".
            space |= !matches!(c, '.' | ':');
        } else if let Some(opener) = marks.opener(c) {
            if out.ends_with(opener) {
                // Nothing that can be said is between them: back to before the bracket.
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
                // A weak pause before a closing bracket is none: "(so, )".
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
    // A dash at the end is a pause before nothing.
    out.extend(pause.filter(|&kept| kept != '—' && !out.is_empty()));
    out
}

/// The text without the brackets and quotation marks that never open or never close.
fn balanced(text: &str, marks: &Marks) -> String {
    let mut dropped = HashSet::new();
    let mut open: Vec<(usize, char)> = Vec::new();
    for (at, c) in text.char_indices() {
        if marks.is_opener(c) {
            open.push((at, c));
        } else if let Some(opener) = marks.opener(c) {
            // What was opened inside and not closed is dropped with it.
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
