//! Pieces of sound joined to one, with natural pauses and without clicks.
//!
//! At a join, what is quiet at the end of one piece and at the start of the next is cut away, both are faded over a few
//! milliseconds, and a pause of a set length comes between. The start of the first piece and the end of the last stay as they
//! are: a text of one piece is exactly what the model said. What comes of a piece depends on nothing but the piece.

use std::time::Duration;

use crate::long_text::Pause;

/// How pieces are joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joins {
    /// Silence inside a sentence that was too long for one piece.
    pub cut: Duration,
    /// Silence between sentences.
    pub sentence: Duration,
    /// Silence between paragraphs.
    pub paragraph: Duration,
    /// Length of a fade.
    pub fade: Duration,
}

impl Default for Joins {
    fn default() -> Self {
        Joins {
            cut: Duration::from_millis(80),
            sentence: Duration::from_millis(300),
            paragraph: Duration::from_millis(700),
            fade: Duration::from_millis(8),
        }
    }
}

impl Joins {
    /// The silence after a piece.
    pub fn silence(&self, pause: Pause) -> Duration {
        match pause {
            Pause::Cut => self.cut,
            Pause::Sentence => self.sentence,
            Pause::Paragraph => self.paragraph,
            Pause::Explicit(length) => length,
            Pause::End => Duration::ZERO,
        }
    }
}

/// Samples below this (-54 dB of full scale) are quiet.
const QUIET: f32 = 0.002;

/// Quiet samples that stay at the start and at the end of a piece: the beginnings and ends of sounds are soft.
const KEPT_BEFORE: Duration = Duration::from_millis(20);
const KEPT_BEHIND: Duration = Duration::from_millis(50);

/// Joins pieces whose samples come in any portions.
#[derive(Debug)]
pub struct Joiner {
    joins: Joins,
    rate: u32,
    /// Whether something was said or kept silent before this piece.
    is_joined: bool,
    /// Whether the quiet start of a piece is behind us.
    is_loud: bool,
    /// Samples of the fade that are done.
    faded: usize,
    /// Samples that may still be the quiet end of a piece, or be faded.
    held: Vec<f32>,
    /// Of those, how many were quiet in a row.
    quiet: usize,
}

impl Joiner {
    /// Begins a sound; `is_joined` where other pieces came before, in a sound that is resumed.
    pub fn new(joins: Joins, rate: u32, is_joined: bool) -> Joiner {
        Joiner { joins, rate, is_joined, is_loud: false, faded: 0, held: Vec::new(), quiet: 0 }
    }

    /// Adds samples of the piece; what is certain goes to `out`.
    pub fn add(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        let keep = self.samples(KEPT_BEFORE);
        let fade = self.samples(self.joins.fade);
        for &sample in samples {
            let is_quiet = sample.abs() < QUIET;
            self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
            if self.is_joined && !self.is_loud {
                self.held.push(sample);
                if is_quiet {
                    continue;
                }
                self.is_loud = true;
                let cut = self.held.len().saturating_sub(keep + 1);
                self.held.drain(..cut);
            } else {
                self.is_loud |= !is_quiet;
                self.held.push(sample);
            }
        }
        if self.is_joined && !self.is_loud {
            // Only what may be kept.
            let cut = self.held.len().saturating_sub(keep);
            self.held.drain(..cut);
            return;
        }
        // What is quiet may be the end; what is not may have to be faded.
        let certain = self.held.len().saturating_sub(self.quiet.max(fade));
        self.give(certain, out);
    }

    /// Ends the piece, and adds the pause behind it.
    pub fn end(&mut self, pause: Pause, out: &mut Vec<f32>) {
        if self.is_joined && !self.is_loud {
            self.held.clear();
        }
        if pause != Pause::End {
            let cut = self.quiet.saturating_sub(self.samples(KEPT_BEHIND)).min(self.held.len());
            self.held.truncate(self.held.len() - cut);
            let fade = self.samples(self.joins.fade).min(self.held.len());
            let start = self.held.len() - fade;
            for (i, sample) in self.held[start..].iter_mut().enumerate() {
                *sample *= (fade - i) as f32 / (fade + 1) as f32;
            }
        }
        self.give(self.held.len(), out);
        (self.is_loud, self.faded, self.quiet) = (false, 0, 0);
        out.resize(out.len() + self.samples(self.joins.silence(pause)), 0.0);
        self.is_joined = true;
    }

    /// Samples of silence behind a piece.
    pub fn silence(&self, pause: Pause) -> usize {
        self.samples(self.joins.silence(pause))
    }

    /// Hands on held samples, those at the start of a joined piece faded in.
    fn give(&mut self, count: usize, out: &mut Vec<f32>) {
        let fade = if self.is_joined { self.samples(self.joins.fade) } else { 0 };
        for sample in self.held.drain(..count) {
            if self.faded < fade {
                self.faded += 1;
                out.push(sample * self.faded as f32 / (fade + 1) as f32);
            } else {
                out.push(sample);
            }
        }
    }

    fn samples(&self, length: Duration) -> usize {
        (length.as_secs_f64() * f64::from(self.rate)).round() as usize
    }
}
