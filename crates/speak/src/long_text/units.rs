//! Splits text at blank lines and pause marks, in bounded memory.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use super::LongTextError;
use super::sentences::is_unspaced;

/// Largest unit in bytes. A longer paragraph is passed on in parts, at the ends of sentences if possible.
pub const LONGEST_UNIT: usize = 16 * 1024;

/// Longest pause of a mark; longer ones are shortened to this.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Longest mark in bytes, from `[pause:` to its `]`.
const LONGEST_MARK: usize = 32;

const READ: usize = 8 * 1024;

/// Text without a paragraph break or a mark inside.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// White space is replaced by one space; a line break is kept if the next line begins with a bullet.
    pub text: String,
    pub end: UnitEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitEnd {
    /// A blank line, or the end of the text.
    Paragraph,
    Mark(Duration),
    /// The paragraph is longer than [`LONGEST_UNIT`] and continues.
    Partial,
}

/// Splits a text into units.
pub(super) struct Units<R> {
    reader: R,
    /// Bytes of an incomplete character.
    bytes: Vec<u8>,
    /// Decoded text that is not part of a unit yet, and the position in it.
    decoded: String,
    at: usize,
    /// Number of bytes decoded so far.
    decoded_bytes: u64,
    text: String,
    /// Line breaks in the white space after `text`; `None` without white space.
    space: Option<usize>,
    after_return: bool,
    ended: bool,
}

impl<R: Read> Units<R> {
    pub fn new(reader: R) -> Self {
        Units {
            reader,
            bytes: Vec::new(),
            decoded: String::new(),
            at: 0,
            decoded_bytes: 0,
            text: String::new(),
            space: None,
            after_return: false,
            ended: false,
        }
    }

    pub fn bytes_read(&self) -> u64 {
        self.decoded_bytes - (self.decoded.len() - self.at) as u64
    }

    /// Puts the end of a partial unit back, before what follows it.
    pub fn give_back(&mut self, text: &str) {
        self.text.insert_str(0, text);
    }

    pub fn next(&mut self) -> Result<Option<Unit>, LongTextError> {
        loop {
            while let Some(c) = self.decoded[self.at..].chars().next() {
                self.at += c.len_utf8();
                if let Some(end) = self.take(c) {
                    return Ok(Some(self.unit(end)));
                }
            }
            if self.ended {
                let unit = (!self.text.is_empty()).then(|| self.unit(UnitEnd::Paragraph));
                return Ok(unit);
            }
            self.read()?;
        }
    }

    fn unit(&mut self, end: UnitEnd) -> Unit {
        if end != UnitEnd::Partial {
            self.space = None;
        }
        Unit { text: std::mem::take(&mut self.text), end }
    }

    /// Adds a character; returns how the unit ends, if it does.
    fn take(&mut self, c: char) -> Option<UnitEnd> {
        if c.is_whitespace() {
            let is_break = match c {
                '\n' => !self.after_return,
                '\r' | '\u{85}' | '\u{2028}' => true,
                _ => false,
            };
            self.after_return = c == '\r';
            let breaks = self.space.get_or_insert(0);
            *breaks += usize::from(is_break);
            if matches!(c, '\u{c}' | '\u{2029}') {
                *breaks = 2;
            }
            if *breaks >= 2 && !self.text.is_empty() {
                return Some(UnitEnd::Paragraph);
            }
            return None;
        }
        self.after_return = false;
        let is_full = self.text.len() >= LONGEST_UNIT && self.space.is_some() && !self.is_in_mark();
        let is_overfull = self.text.len() >= 4 * LONGEST_UNIT;
        if is_full || is_overfull {
            self.at -= c.len_utf8();
            let space = self.space.take();
            if space.is_some() {
                self.text.push(' ');
            }
            return Some(UnitEnd::Partial);
        }
        if let Some(breaks) = self.space.take()
            && let Some(before) = self.text.chars().next_back()
        {
            match (breaks, is_bullet(c)) {
                (1.., true) => self.text.push('\n'),
                // Scripts without spaces need none at a line break either.
                (1.., _) if is_unspaced(before) && is_unspaced(c) => {}
                _ if before.is_whitespace() => {}
                _ => self.text.push(' '),
            }
        }
        self.text.push(c);
        if c == ']'
            && let Some((start, length)) = mark_at_end(&self.text)
        {
            let kept = self.text[..start].trim_end().len();
            self.text.truncate(kept);
            return Some(UnitEnd::Mark(length));
        }
        None
    }

    /// Whether the text may end with an incomplete mark.
    fn is_in_mark(&self) -> bool {
        let bytes = self.text.as_bytes();
        bytes[bytes.len().saturating_sub(LONGEST_MARK)..].contains(&b'[')
    }

    fn read(&mut self) -> Result<(), LongTextError> {
        let before = self.bytes.len();
        self.bytes.resize(before + READ, 0);
        let read = loop {
            match self.reader.read(&mut self.bytes[before..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.bytes.truncate(before + *read.as_ref().unwrap_or(&0));
        self.ended = read? == 0;
        if self.decoded_bytes == 0
            && (self.bytes.starts_with(b"\xff\xfe") || self.bytes.starts_with(b"\xfe\xff"))
        {
            return Err(LongTextError::Utf16);
        }
        let valid = match std::str::from_utf8(&self.bytes) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() && !self.ended => error.valid_up_to(),
            Err(error) => {
                let at = self.decoded_bytes + error.valid_up_to() as u64;
                return Err(LongTextError::NotUtf8 { at, byte: self.bytes[error.valid_up_to()] });
            }
        };
        let text = std::str::from_utf8(&self.bytes[..valid]).unwrap_or_default();
        self.decoded.clear();
        self.at = 0;
        let start = if self.decoded_bytes == 0 && text.starts_with('\u{feff}') { 3 } else { 0 };
        self.decoded.push_str(&text[start..]);
        self.decoded_bytes += valid as u64;
        self.bytes.drain(..valid);
        Ok(())
    }
}

fn is_bullet(c: char) -> bool {
    matches!(c, '-' | '*' | '•' | '–' | '—' | '▪' | '●' | '◦' | '‣')
}

/// Position and duration of the pause mark at the end of a text.
fn mark_at_end(text: &str) -> Option<(usize, Duration)> {
    let from = text.len().saturating_sub(LONGEST_MARK);
    let start = from + text.as_bytes()[from..].iter().rposition(|&byte| byte == b'[')?;
    let inside = text[start + 1..].strip_suffix(']')?;
    let (name, length) = inside.split_once(':')?;
    if !name.trim().eq_ignore_ascii_case("pause") {
        return None;
    }
    let length = length.trim().to_ascii_lowercase();
    let (number, unit) = match length.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (length.strip_suffix('s').unwrap_or(&length), 1.0),
    };
    let number = number.trim_end();
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let seconds = number.parse::<f64>().ok()? * unit;
    Some((start, Duration::from_secs_f64(seconds.min(LONGEST_PAUSE.as_secs_f64()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Vec<(String, UnitEnd)> {
        let mut units = Units::new(text.as_bytes());
        std::iter::from_fn(|| units.next().unwrap()).map(|unit| (unit.text, unit.end)).collect()
    }

    #[test]
    fn blank_lines_end_paragraphs_and_single_breaks_are_spaces() {
        use UnitEnd::Paragraph;
        let found = units("\u{feff}\n One\ntwo\t three\r\nfour.\r\n \r\n\nFive\u{c}six\n\n");
        let expected = [("One two three four.", Paragraph), ("Five", Paragraph), ("six", Paragraph)];
        assert_eq!(found, expected.map(|(text, end)| (text.to_owned(), end)));
        assert_eq!(units("天气\n很好"), [("天气很好".to_owned(), Paragraph)]);
        assert_eq!(units("Buy\n- milk\n- bread"), [("Buy\n- milk\n- bread".to_owned(), Paragraph)]);
        assert_eq!(units(" \n\n "), []);
    }

    #[test]
    fn marks_end_units_and_invalid_marks_are_text() {
        let ms = |ms| UnitEnd::Mark(Duration::from_millis(ms));
        let found = units("a [pause:1s] b[PAUSE: 300 ms][pause:1.5s][pause:2]");
        let expected = [("a", ms(1000)), ("b", ms(300)), ("", ms(1500)), ("", ms(2000))];
        assert_eq!(found, expected.map(|(text, end)| (text.to_owned(), end)));
        assert_eq!(units("[pause:99999s]"), [(String::new(), UnitEnd::Mark(LONGEST_PAUSE))]);
        for text in [
            "[pause:]",
            "[pause:-1s]",
            "[pause:infs]",
            "[pause:1e9s]",
            "[pause:.s]",
            "[pausé:1s]",
            "pause:1s]",
        ] {
            assert_eq!(units(text), [(text.to_owned(), UnitEnd::Paragraph)]);
        }
    }

    #[test]
    fn invalid_bytes_are_reported_with_their_offset() {
        let error = |bytes: &[u8]| {
            let mut units = Units::new(bytes);
            loop {
                match units.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it was read"),
                    Err(error) => return error.to_string(),
                }
            }
        };
        assert!(error(b"\xff\xfea\0").contains("UTF-16"));
        assert!(error(b"abc\xe9t").contains("byte 3 is 0xe9"), "{}", error(b"abc\xe9t"));
        assert!(error(b"abc\xe2\x80").contains("byte 3 is 0xe2"));
        let mut long = vec![b'a'; 3 * READ];
        long.extend(b"\n\n\xc0");
        assert!(error(&long).contains(&format!("byte {} is", 3 * READ + 2)));
    }
}
