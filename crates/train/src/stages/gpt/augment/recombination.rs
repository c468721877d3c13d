//! New sentences from words of several clips of a speaker.

use super::Augmenter;
use crate::align::Aligned;
use crate::stages::gpt::acoustic_targets::Segment;
use myxtts_data::record::RecordSource;
use myxtts_run::seed::Seed;
use std::ops::Range;

/// Words per segment.
const PIECE_WORDS: Range<u64> = 2..8;
/// Maximum number of segments that are tried until a row is full.
const MAX_PIECES: usize = 6;

impl Augmenter {
    /// A recombined sentence that fits the given numbers of tokens and codes, for the share of rows that gets one.
    pub(super) fn recombined_row(
        &self,
        record: u32,
        own: &Aligned,
        (tokens, codes): (usize, usize),
        mut draw: Draw,
    ) -> Option<RecombinedRow> {
        if draw.unit() >= self.recombination {
            return None;
        }
        let alignments = self.alignments.as_ref()?;
        let key = (self.source.speaker(record as usize), self.source.language(record as usize));
        let others = self.together.get(&key)?;
        let prefix = own.words.first()?.0 as usize;
        let mut joined = RecombinedRow { tokens: own.tokens[..prefix].to_vec(), ..RecombinedRow::default() };
        // About as long as the clip itself, so that batches stay as full as planned.
        let enough = own.at_code.len() * 3 / 4;
        for piece in 0..MAX_PIECES {
            let (record, from) = match piece {
                0 => (record, own),
                _ => {
                    let other = others[draw.below(others.len() as u64) as usize];
                    (other, &**alignments.get(other)?)
                }
            };
            let Some(piece) = Piece::draw(from, &mut draw) else { continue };
            let sound = &self.source.codes(record as usize)[piece.codes.clone()];
            let words = &from.tokens[piece.tokens.clone()];
            let gap = usize::from(!joined.codes.is_empty());
            if joined.tokens.len() + gap + words.len() > tokens || joined.codes.len() + sound.len() > codes {
                continue;
            }
            if gap == 1 {
                joined.tokens.push(self.space);
            }
            joined.tokens.extend_from_slice(words);
            joined.codes.extend_from_slice(sound);
            joined.segments.push(Segment { record, codes: piece.codes.clone() });
            let said = from.at_code[piece.codes].iter().map(|&token| from.tokens[token as usize]);
            joined.spoken.extend(said);
            if joined.codes.len() >= enough {
                break;
            }
        }
        (!joined.codes.is_empty()).then_some(joined)
    }
}

/// Segments of several clips, joined.
#[derive(Default)]
pub(super) struct RecombinedRow {
    pub tokens: Vec<i32>,
    pub codes: Vec<i32>,
    pub spoken: Vec<i32>,
    pub segments: Vec<Segment>,
}

/// A few words of a clip: tokens without the trailing space, and codes.
struct Piece {
    tokens: Range<usize>,
    codes: Range<usize>,
}

impl Piece {
    fn draw(from: &Aligned, draw: &mut Draw) -> Option<Piece> {
        let words = from.words.len();
        let drawn = (PIECE_WORDS.start + draw.below(PIECE_WORDS.end - PIECE_WORDS.start)) as usize;
        // Fewer words than the clip has, or the result would not be new.
        let length = drawn.min(words.saturating_sub(1).max(1)).min(words);
        let first = draw.below((words - length + 1) as u64) as usize;
        let &(token, code) = from.words.get(first)?;
        let (token_end, code_end) = match from.words.get(first + length) {
            // The token before a word is a space.
            Some(&(token, code)) => (token as usize - 1, code as usize),
            None => (from.tokens.len(), from.at_code.len()),
        };
        let piece = Piece { tokens: token as usize..token_end, codes: code as usize..code_end };
        (!piece.tokens.is_empty() && !piece.codes.is_empty()).then_some(piece)
    }
}

/// Random numbers in order.
pub(super) struct Draw {
    pub seed: Seed,
    pub next: u64,
}

impl Draw {
    fn unit(&mut self) -> f64 {
        self.next += 1;
        self.seed.unit(self.next)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next += 1;
        self.seed.below(self.next, bound.max(1))
    }
}
