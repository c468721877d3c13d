//! Long text cut into pieces that a model can speak one at a time.
//!
//! ```text
//! reader ──> units ────────────> sentences ──> parts ─────────────> pieces
//!            up to a blank line  ranges of     a sentence, or what  neighbours joined to 90 % of
//!            or a pause mark     a unit        a long one is cut to the limit, each with its pause
//! ```
//!
//! Memory is bounded by the longest unit that is held ([`LONGEST_UNIT`] bytes), not by the text.

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

/// How full neighbours are joined, of the limit: a sentence is not torn out of its context, and the model keeps some room.
const FILL: f64 = 0.9;

/// Some text to be spoken at once, and the silence after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text, without marks, each run of white space one space. Empty where a text begins with a pause mark.
    pub text: String,
    /// What follows.
    pub pause: Pause,
}

impl Piece {
    /// Whether there is a letter or a digit to say. A line such as `* * *` is a silent piece of its own.
    pub fn is_spoken(&self) -> bool {
        self.text.chars().any(char::is_alphanumeric)
    }
}

/// Why there is silence after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pause {
    /// A sentence goes on: it was too long for one piece.
    Cut,
    /// A sentence ends.
    Sentence,
    /// A paragraph ends.
    Paragraph,
    /// `[pause:1s]` says so.
    Explicit(Duration),
    /// The text ends.
    End,
}

/// Why a text cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LongTextError {
    /// The reader failed.
    #[error("the text cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// Bytes that are no UTF-8.
    #[error("the text is not UTF-8: byte {at} is 0x{byte:02x}; save it as UTF-8")]
    NotUtf8 {
        /// Where, counted from 0.
        at: u64,
        /// What is there.
        byte: u8,
    },
    /// The byte order mark of UTF-16.
    #[error("the text is UTF-16: save it as UTF-8")]
    Utf16,
}

/// Bytes at the start of a text that still comes which are whole sentences: all but the last sentence, and that one too where its
/// line has ended.
pub fn settled(text: &str) -> usize {
    if text.ends_with('\n') {
        return text.len();
    }
    match sentences(text)[..] {
        [_, .., ref last] => last.start,
        _ => 0,
    }
}

/// The pieces of a text, read as they are asked for.
pub struct Pieces<'c, R> {
    units: Units<R>,
    limit: usize,
    count: &'c dyn Fn(&str) -> usize,
    queue: VecDeque<Piece>,
    /// The last piece found: what comes behind it may still change its pause.
    held: Option<Piece>,
    done: bool,
}

impl<'c, R: Read> Pieces<'c, R> {
    /// Cuts what `text` gives into pieces of at most `limit`, as `count` measures them: tokens of a model's vocabulary.
    ///
    /// `count` should not grow by leaving text away. A single character (grapheme) that it finds above the limit stays whole.
    pub fn new(text: R, limit: usize, count: &'c dyn Fn(&str) -> usize) -> Self {
        let limit = limit.max(1);
        Pieces { units: Units::new(text), limit, count, queue: VecDeque::new(), held: None, done: false }
    }

    /// Bytes of the text read so far.
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
            // It may go on: it is read again with what follows.
            rest = sentences.pop().map_or(rest, |last| last.start);
        }
        let mut pieces = self.joined(&unit.text, &sentences);
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

    /// The parts of sentences, neighbours joined where they fit, with what follows each.
    fn joined(&self, text: &str, sentences: &[Range<usize>]) -> Vec<(Range<usize>, Pause)> {
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
            // Marks in a row add up; a blank line beside a mark adds nothing.
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
    use super::settled;

    #[test]
    fn sentences_of_a_text_that_still_comes_are_whole_once_the_next_begins() {
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
            assert_eq!(&text[..settled(text)], whole, "{text:?}");
        }
    }
}
