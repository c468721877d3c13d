//! Codes for terminals inside a text: colours of a log, links, window titles. Nobody means them to be read aloud.

use std::borrow::Cow;

/// The text without escape sequences (`ESC [ 31 m`, `ESC ] 8 ; ; link ESC \`), in their 7-bit and 8-bit forms.
pub fn without_codes(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\u{9b}', '\u{9d}']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let kind = match c {
            '\u{1b}' => rest.next_if(|&c| ('\u{20}'..='\u{7e}').contains(&c)),
            '\u{9b}' => Some('['),
            '\u{9d}' => Some(']'),
            c => {
                out.push(c);
                continue;
            }
        };
        match kind {
            // Parameters, then one letter that ends it.
            Some('[') => {
                while rest.next_if(|&c| ('\u{20}'..='\u{3f}').contains(&c)).is_some() {}
                rest.next_if(|&c| ('\u{40}'..='\u{7e}').contains(&c));
            }
            // A string, up to BEL or ST.
            Some(']' | 'P' | 'X' | '^' | '_') => {
                while let Some(c) = rest.next() {
                    if c == '\u{7}' || c == '\u{9c}' || c == '\u{1b}' && rest.next_if_eq(&'\\').is_some() {
                        break;
                    }
                }
            }
            // Intermediate bytes and one that ends it, or that one alone.
            Some('\u{20}'..='\u{2f}') => {
                while rest.next_if(|&c| ('\u{20}'..='\u{2f}').contains(&c)).is_some() {}
                rest.next();
            }
            Some(_) | None => {}
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_links_and_titles_are_not_text() {
        for (text, expected) in [
            ("plain [31m text", "plain [31m text"),
            ("\u{1b}[1;31mred\u{1b}[0m alert", "red alert"),
            ("\u{9b}4mline\u{9b}0m", "line"),
            ("\u{1b}]8;;https://a.b\u{1b}\\link\u{1b}]8;;\u{1b}\\ here", "link here"),
            ("\u{1b}]0;title\u{7}said", "said"),
            ("\u{1b}(Btext\u{1b}7", "text"),
            ("cut \u{1b}[31", "cut "),
            ("cut \u{1b}", "cut "),
            ("سلام \u{1b}[32mدنیا", "سلام دنیا"),
        ] {
            assert_eq!(without_codes(text), expected, "{text:?}");
        }
    }
}
