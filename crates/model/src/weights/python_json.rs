//! JSON as Python writes it: with bare `Infinity`, `-Infinity` and `NaN`, which JSON does not allow but Coqui's
//! configurations contain.

use serde_json::Value;

/// Marks a string that replaces a bare word. A private-use character, so that no real string starts with it.
const MARK: char = '\u{f8ff}';

const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Parses JSON with bare words; each becomes a string that [`write()`] converts back.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    // Strict first: almost every file is valid JSON, and the error positions are then right.
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    serde_json::from_str(&quote(text))
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            let end = string_end(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        } else if let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
            out.extend(['"', MARK]);
            out.push_str(word);
            out.push('"');
            rest = &rest[word.len()..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Byte offset of the end of the string that starts `text`.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Writes a value of [`parse`], restoring bare words.
pub fn write(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    for word in WORDS {
        text = text.replace(&format!("\"{MARK}{word}\""), word);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_round_trip_and_strings_are_unchanged() {
        let text = r#"{"a": Infinity, "b": [-Infinity, NaN], "c": "say \"NaN\" or Infinity", "d": 1.5}"#;
        let value = parse(text).expect("it is read");
        assert_eq!(value["c"], "say \"NaN\" or Infinity");
        let again = write(&value);
        assert!(again.contains("\"a\": Infinity,"), "{again}");
        assert!(again.contains("-Infinity"), "{again}");
        assert_eq!(parse(&again).expect("it is read again"), value);
    }

    #[test]
    fn invalid_json_is_refused() {
        for text in ["{\"a\": Infinite}", "{\"a\": \"", "Infinity Infinity", "", "\"\\"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
