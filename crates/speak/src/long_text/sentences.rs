//! Finds sentence boundaries in every script, by rules.
//!
//! | mark | ends a sentence where |
//! |---|---|
//! | `。` `！` `？` `।` `؟` `۔` and their like | always; closing quotes and brackets belong to it |
//! | `!` `?` | white space follows, and then no small letter: `"Really?" she asked.` is one sentence |
//! | `.` | as `!` and `?`, unless it follows an abbreviation, an initial or a number of one or two digits; also between letters of a script without capitals |
//! | `...` `…` | white space follows, and then no small letter |
//! | a line that begins with a bullet | always, before the line |

use std::ops::Range;

use unicode_segmentation::GraphemeCursor;

use super::abbreviations::is_abbreviation;

/// Returns the sentences of a unit in order. Only white space lies between them; none is empty.
pub(super) fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        // A run of marks is handled at its last mark; the sentence ends after closing quotes and brackets.
        if at < start {
            continue;
        }
        let end = match c {
            '\n' => Some(at),
            _ if is_mark(c) => end_at(text, start, at, c),
            _ => None,
        };
        if let Some(end) = end.filter(|&end| is_whole(text, end)) {
            push(text, start..end, &mut found);
            start = end;
        }
    }
    push(text, start..text.len(), &mut found);
    found
}

/// Adds a range without surrounding white space, unless it is empty.
fn push(text: &str, range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let trimmed = trimmed(text, range);
    if !trimmed.is_empty() {
        found.push(trimmed);
    }
}

/// A range without surrounding white space.
pub(super) fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    start..start.max(range.start + part.trim_end().len())
}

/// Whether a position is a grapheme boundary.
pub(super) fn is_whole(text: &str, at: usize) -> bool {
    at == 0
        || at == text.len()
        || GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(false)
}

fn is_mark(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…' | '‼' | '⁇' | '⁈' | '⁉' | '‽') || is_final(c)
}

/// Marks that always end a sentence.
fn is_final(c: char) -> bool {
    matches!(
        c,
        '。' | '！'
            | '？'
            | '｡'
            | '．'
            | '।'
            | '॥'
            | '؟'
            | '۔'
            | '܀'
            | '։'
            | '።'
            | '፧'
            | '។'
            | '။'
            | '꘎'
    )
}

/// Closing quotes and brackets.
pub(super) fn is_closing(c: char) -> bool {
    matches!(
        c,
        '"' | '\''
            | '”'
            | '’'
            | '»'
            | '›'
            | '“'
            | ')'
            | ']'
            | '}'
            | '」'
            | '』'
            | '】'
            | '）'
            | '》'
            | '〉'
            | '〕'
            | '*'
            | '_'
    )
}

/// Letters and marks of scripts without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{2e80}'..='\u{303f}'     // radicals, marks
        | '\u{3040}'..='\u{30ff}'   // kana
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{9fff}'   // Han
        | '\u{f900}'..='\u{faff}'
        | '\u{ff00}'..='\u{ff60}'   // wide marks
        | '\u{20000}'..='\u{3ffff}'
    )
}

/// A letter of a script without upper and lower case.
fn is_caseless(c: char) -> bool {
    c.is_alphabetic() && !c.is_lowercase() && !c.is_uppercase()
}

/// End of the sentence with a mark at `at`; `None` if it continues.
fn end_at(text: &str, start: usize, at: usize, mark: char) -> Option<usize> {
    let following = &text[at + mark.len_utf8()..];
    if following.starts_with(is_mark) {
        return None;
    }
    let after = following.trim_start_matches(is_closing);
    let end = text.len() - after.len();
    let next = after.chars().next()?;
    if is_final(mark) {
        return Some(end);
    }
    let before = &text[start..at];
    if !next.is_whitespace() {
        // `است.اما`: the space is often omitted. `a.b` is not a sentence end.
        let previous = before.chars().next_back()?;
        return (is_unspaced(next) || (is_caseless(previous) && is_caseless(next))).then_some(end);
    }
    let next = after.trim_start().chars().find(|c| !is_opening(*c));
    if next.is_some_and(char::is_lowercase) {
        return None;
    }
    if mark == '.' && !before.ends_with(is_mark) && is_part_of_word(before, next) {
        return None;
    }
    Some(end)
}

fn is_opening(c: char) -> bool {
    matches!(
        c,
        '"' | '\''
            | '“'
            | '‘'
            | '«'
            | '‹'
            | '„'
            | '‚'
            | '('
            | '['
            | '{'
            | '¿'
            | '¡'
            | '「'
            | '『'
            | '（'
            | '《'
    )
}

/// Whether a single full stop after `before` belongs to its last word.
fn is_part_of_word(before: &str, next: Option<char>) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace() || is_opening(c) || c == '-').next().unwrap_or("");
    let hyphened = before.rsplit(|c: char| c.is_whitespace() || is_opening(c)).next().unwrap_or("");
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    // `e.g.`, `U.S.`, `z.B.`, `т.е.`: single letters with full stops between them.
    let is_acronym =
        word.contains('.') && word.split('.').all(|part| (1..=2).contains(&part.chars().count()));
    // `J. Smith`, `z. B.`
    let is_initial =
        word.chars().count() == 1 && !word.chars().any(is_caseless) && letters == 1 && word != "I";
    let digits = word.chars().all(char::is_numeric) && (1..=2).contains(&word.chars().count());
    is_acronym || is_initial || digits || is_abbreviation(word, next) || is_abbreviation(hyphened, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a text with `|` at the expected sentence boundaries.
    fn check(marked: &str) {
        let expected: Vec<&str> = marked.split('|').map(str::trim).collect();
        let text = marked.replace('|', "");
        let found: Vec<&str> = sentences(&text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn latin_scripts() {
        check("One. |Two! |Three? |Four");
        check("Dr. Smith met Mrs. Jones at 3.15 p.m. on the 2nd. |They left.");
        check("J. R. R. Tolkien wrote it. |It costs $3.50, i.e. nothing.");
        check("See No. 5 and fig. 12 below. |No. |I said no. |You are I. |We are they.");
        check("Visit example.com/a?b=c. |Version 1.2.3 is out.");
        check("The U.S. Army came. |The Rev. John Smith Jr. was there.");
        check("Am 3. Mai kam Hr. Müller, z. B. mit Fr. Meier bzw. Kindern. |Er blieb.");
        check("M. Dupont et Mme. Durand arrivent. |Ils partent.");
        check("¿Qué? |¡Vamos! |El Sr. García llegó.");
        check("Mieszka przy ul. Długiej. |Dr. Nowak też.");
    }

    #[test]
    fn ellipses_and_runs_of_marks() {
        check("Well... maybe. |Well... |Maybe. |What?! |No!!! |Yes…");
        check("Wait… what? |Oh… |Fine.");
        check("So...so it goes. |Hm.");
    }

    #[test]
    fn quotes_after_the_mark_belong_to_the_sentence() {
        check("\"Really?\" |\"Yes.\" |He left.");
        check("\"Really?\" she asked. |\"Yes!\" he said.");
        check("He said “no.” |Then (sadly.) |“Go!” |«Пойдём?» |Да.");
        check("\"Who?\"");
        check("Yahoo! is a name.");
    }

    #[test]
    fn other_scripts() {
        check("سلام. |حال شما چطور است؟ |خوبم؛ شما چطور؟|من هم خوبم.|خداحافظ");
        check("کتاب ۳.۱۴ دارد. |آقای دکتر آمد۔ |رفت");
        check("今天天气很好。|你好吗？|「真的！」|他说。|end");
        check("本当ですか？|はい。|3.14です。");
        check("안녕하세요. |반갑습니다! |네.");
        check("यह ठीक है। |डॉ. शर्मा आए। |क्या? |हाँ॥");
        check("Он жил на ул. Ленина в г. Москве, т.е. в центре. |Потом уехал.");
    }

    #[test]
    fn list_items_are_split_at_their_bullets() {
        check("Buy:|\n- milk|\n- bread. |Go home.");
        check("1. First. |2. Second. |10. Tenth.");
    }
}
