//! Splits sentences that are too long.

use std::ops::Range;

use super::sentences::{is_closing, is_unspaced, is_whole, trimmed};

/// Splits a sentence into parts within the limit: at the punctuation nearest to the middle, else at a space, else between
/// characters; each half again if necessary.
pub(super) fn cut(
    text: &str,
    sentence: Range<usize>,
    limit: usize,
    count: &dyn Fn(&str) -> usize,
) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    // A stack instead of recursion: hostile text may need thousands of cuts.
    let mut open = vec![sentence];
    while let Some(part) = open.pop() {
        let part = trimmed(text, part);
        if part.is_empty() {
            continue;
        }
        let position = if count(&text[part.clone()]) <= limit { None } else { best_cut(text, &part) };
        match position {
            Some(position) => open.extend([position..part.end, part.start..position]),
            None => parts.push(part),
        }
    }
    parts
}

/// The best position to cut inside the range; `None` for a single character.
fn best_cut(text: &str, range: &Range<usize>) -> Option<usize> {
    let part = &text[range.clone()];
    let middle = part.len() / 2;
    let nearest = |wanted: &dyn Fn(&str, usize, char) -> bool| {
        part.char_indices()
            .filter(|&(at, c)| at > 0 && wanted(part, at, c) && is_whole(text, range.start + at))
            .min_by_key(|&(at, _)| at.abs_diff(middle))
            .map(|(at, _)| range.start + at)
    };
    nearest(&is_after_punctuation)
        .or_else(|| nearest(&|_, _, c| c.is_whitespace()))
        .or_else(|| nearest(&|_, _, _| true))
}

/// Whether punctuation allows a cut before the character `c` at `at`.
fn is_after_punctuation(part: &str, at: usize, c: char) -> bool {
    let before = part[..at].trim_end_matches(is_closing);
    let closes = before.len() < at;
    let Some(mark) = before.chars().next_back() else { return false };
    // Numbers, clock times, addresses: `1,000`, `12:30`, `a-b`.
    match mark {
        '،' | '؛' | '、' | '，' | '；' | '：' | '—' | '―' => !is_closing(c) && c != mark,
        ',' | ';' | ':' | '.' | '!' | '?' | '…' | '–' | '-' => {
            (c.is_whitespace() || is_unspaced(c))
                && (mark != '-' || before[..before.len() - 1].ends_with(' '))
        }
        _ => closes && c.is_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    fn parts<'t>(text: &'t str, limit: usize, count: &dyn Fn(&str) -> usize) -> Vec<&'t str> {
        cut(text, 0..text.len(), limit, count).into_iter().map(|range| &text[range]).collect()
    }

    fn characters(text: &str) -> usize {
        text.chars().count()
    }

    #[test]
    fn the_punctuation_nearest_to_the_middle_is_preferred() {
        let text = "one two, three four five, six seven eight, nine";
        assert_eq!(parts(text, 30, &characters), ["one two, three four five,", "six seven eight, nine"]);
        assert_eq!(parts(text, 20, &characters).join(" "), text);
        assert_eq!(
            parts("costs 1,000,000 at 12:30 today", 20, &characters),
            ["costs 1,000,000", "at 12:30 today"]
        );
        assert_eq!(parts("سلام دوست من، خوبی", 14, &characters), ["سلام دوست من،", "خوبی"]);
        assert_eq!(parts("今天天气很好，我们走", 8, &characters), ["今天天气很好，", "我们走"]);
        assert_eq!(parts("he said “no,” and went", 16, &characters), ["he said “no,”", "and went"]);
    }

    #[test]
    fn cuts_fall_back_to_spaces_and_then_to_characters() {
        assert_eq!(parts("aaaa bbbb cccc", 9, &characters), ["aaaa bbbb", "cccc"]);
        assert_eq!(parts("aaaabbbb", 4, &characters), ["aaaa", "bbbb"]);
        // The family emoji is one grapheme of seven code points; it is not split even above the limit.
        assert_eq!(parts("👨‍👩‍👧‍👦👨‍👩‍👧‍👦", 3, &characters), ["👨‍👩‍👧‍👦", "👨‍👩‍👧‍👦"]);
    }

    proptest! {
        #[test]
        fn cuts_are_between_characters(text in any::<String>(), limit in 1..40usize) {
            let boundaries: Vec<usize> =
                text.grapheme_indices(true).map(|(at, _)| at).chain([text.len()]).collect();
            let mut end = 0;
            for part in cut(&text, 0..text.len(), limit, &characters) {
                prop_assert!(part.start >= end && !part.is_empty());
                prop_assert!(text[end..part.start].chars().all(char::is_whitespace));
                let is_cut = |at: usize| boundaries.contains(&at) || text[at..].starts_with(char::is_whitespace)
                    || text[..at].ends_with(char::is_whitespace);
                prop_assert!(is_cut(part.start) && is_cut(part.end));
                let piece = &text[part.clone()];
                prop_assert!(characters(piece) <= limit || piece.graphemes(true).count() == 1);
                end = part.end;
            }
            prop_assert!(text[end..].chars().all(char::is_whitespace));
        }
    }
}
