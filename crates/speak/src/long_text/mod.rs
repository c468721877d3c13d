//! Splits long text into pieces that fit into one utterance.
//!
//! ```text
//! reader ──> units ────────────> sentences ──> parts ─────────────> pieces
//!            up to a blank line  ranges of     a sentence, or the   neighbours merged up to 90 %
//!            or a pause mark     a unit        parts of a long one  of the limit, each with its pause
//! ```
//!
//! Memory is bounded by the longest unit ([`LONGEST_UNIT`] bytes), not by the text.

mod abbreviations;
mod cut;
mod sentences;
mod units;

use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;
use std::time::Duration;

pub use units::{LONGEST_PAUSE, LONGEST_UNIT};

use cut::cut;
use sentences::sentences;
use units::{UnitEnd, Units};

/// Neighbours are merged up to this share of the limit: sentences keep their context, and the model some margin.
const FILL: f64 = 0.9;

/// Text of one utterance, and the pause after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Text without pause marks, runs of white space replaced by one space. Empty if the text begins with a pause mark.
    pub text: String,
    /// Pause after the text.
    pub pause: Pause,
}

impl Piece {
    /// Whether it has a letter or a digit. A line such as `* * *` is a silent piece.
    pub fn is_spoken(&self) -> bool {
        self.text.chars().any(char::is_alphanumeric)
    }
}

/// Reason for the pause after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pause {
    /// The sentence continues: it was too long for one piece.
    Cut,
    /// End of a sentence.
    Sentence,
    /// End of a paragraph.
    Paragraph,
    /// A mark such as `[pause:1s]`.
    Explicit(Duration),
    /// End of the text.
    End,
}

/// Error of reading a text.
#[derive(Debug, thiserror::Error)]
pub enum LongTextError {
    /// The reader failed.
    #[error("the text cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// Bytes that are not UTF-8.
    #[error("the text is not UTF-8: byte {at} is 0x{byte:02x}; save it as UTF-8")]
    NotUtf8 {
        /// Offset in bytes, from 0.
        at: u64,
        /// The invalid byte.
        byte: u8,
    },
    /// The byte order mark of UTF-16.
    #[error("the text is UTF-16: save it as UTF-8")]
    Utf16,
}

/// Length in bytes of the complete sentences at the start of a text that is still arriving: all but the last sentence, or all if
/// its line has ended.
pub fn complete_sentences(text: &str) -> usize {
    if text.ends_with('\n') {
        return text.len();
    }
    match sentences(text)[..] {
        [_, .., ref last] => last.start,
        _ => 0,
    }
}

/// Iterator over the pieces of a text, which is read incrementally.
pub struct Pieces<'c, R> {
    units: Units<R>,
    limit: usize,
    count: &'c dyn Fn(&str) -> usize,
    queue: VecDeque<Piece>,
    /// The last piece found: what follows may still change its pause.
    held: Option<Piece>,
    done: bool,
}

impl<'c, R: Read> Pieces<'c, R> {
    /// Splits `text` into pieces whose `count`, usually tokens, is at most `limit`.
    ///
    /// `count` should not increase when text is removed. A single grapheme is never split, even above the limit.
    pub fn new(text: R, limit: usize, count: &'c dyn Fn(&str) -> usize) -> Self {
        let limit = limit.max(1);
        Pieces { units: Units::new(text), limit, count, queue: VecDeque::new(), held: None, done: false }
    }

    /// Number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.units.bytes_read()
    }

    fn advance(&mut self) -> Result<(), LongTextError> {
        let Some(unit) = self.units.next()? else {
            self.done = true;
            if let Some(held) = self.held.take() {
                let pause = match held.pause {
                    explicit @ Pause::Explicit(_) => explicit,
                    _ => Pause::End,
                };
                self.queue.push_back(Piece { pause, ..held });
            }
            return Ok(());
        };
        let is_partial = unit.end == UnitEnd::Partial;
        let mut sentences = sentences(&unit.text);
        let mut rest = unit.text.len();
        if is_partial && sentences.len() > 1 {
            // The last sentence may continue: it is read again with what follows.
            rest = sentences.pop().map_or(rest, |last| last.start);
        }
        let mut pieces = self.merged(&unit.text, &sentences);
        if is_partial && pieces.len() > 1 {
            rest = pieces.pop().map_or(rest, |(last, _)| last.start);
        }
        for (range, pause) in pieces {
            let text = unit.text[range].replace('\n', " ");
            self.push(Piece { text, pause });
        }
        match unit.end {
            UnitEnd::Partial => self.units.give_back(&unit.text[rest..]),
            UnitEnd::Paragraph => self.end_with(Pause::Paragraph),
            UnitEnd::Mark(length) => self.end_with(Pause::Explicit(length)),
        }
        Ok(())
    }

    /// Splits long sentences and merges neighbours that fit; returns ranges with the pauses after them.
    fn merged(&self, text: &str, sentences: &[Range<usize>]) -> Vec<(Range<usize>, Pause)> {
        let filled = ((self.limit as f64 * FILL) as usize).max(1);
        let mut pieces: Vec<(Range<usize>, Pause)> = Vec::new();
        for sentence in sentences {
            let parts = cut(text, sentence.clone(), self.limit, self.count);
            let last = parts.len().saturating_sub(1);
            for (number, part) in parts.into_iter().enumerate() {
                let pause = if number == last { Pause::Sentence } else { Pause::Cut };
                if let Some((open, after)) = pieces.last_mut()
                    && (self.count)(&text[open.start..part.end]) <= filled
                {
                    (open.end, *after) = (part.end, pause);
                } else {
                    pieces.push((part, pause));
                }
            }
        }
        pieces
    }

    fn push(&mut self, piece: Piece) {
        self.queue.extend(self.held.replace(piece));
    }

    fn end_with(&mut self, pause: Pause) {
        match (&mut self.held, pause) {
            // Consecutive marks add up; a blank line next to a mark adds nothing.
            (Some(Piece { pause: Pause::Explicit(before), .. }), Pause::Explicit(more)) => {
                *before = (*before + more).min(LONGEST_PAUSE);
            }
            (Some(Piece { pause: Pause::Explicit(_), .. }), _) => {}
            (Some(held), pause) => held.pause = pause,
            (held @ None, Pause::Explicit(_)) => *held = Some(Piece { text: String::new(), pause }),
            (None, _) => {}
        }
    }
}

impl<R: Read> Iterator for Pieces<'_, R> {
    type Item = Result<Piece, LongTextError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(piece) = self.queue.pop_front() {
                return Some(Ok(piece));
            }
            if self.done {
                return None;
            }
            if let Err(error) = self.advance() {
                self.done = true;
                return Some(Err(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::complete_sentences;

    #[test]
    fn sentences_of_arriving_text_are_complete_once_the_next_begins() {
        for (text, whole) in [
            ("", ""),
            ("Hello", ""),
            ("Hello there.", ""),
            ("Hello there. ", ""),
            ("Hello there. How", "Hello there. "),
            ("Dr. Smith is", ""),
            ("One. Two. Thr", "One. Two. "),
            ("A line\n", "A line\n"),
            ("سلام. حال شما", "سلام. "),
        ] {
            assert_eq!(&text[..complete_sentences(text)], whole, "{text:?}");
        }
    }
}
