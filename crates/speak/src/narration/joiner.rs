//! Joins pieces of speech with natural pauses and without clicks.
//!
//! At a join, the quiet end of one piece and the quiet start of the next are removed, both are faded over a few milliseconds,
//! and a pause of a fixed length is inserted. The start of the first piece and the end of the last are unchanged, so a text of
//! one piece is exactly the model's output. The samples of a piece depend only on that piece.

use std::time::Duration;

use crate::long_text::Pause;

/// Pauses and fades between pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joins {
    /// Silence inside a sentence that was split.
    pub cut: Duration,
    /// Silence between sentences.
    pub sentence: Duration,
    /// Silence between paragraphs.
    pub paragraph: Duration,
    /// Duration of a fade.
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

/// Quiet samples kept at the start and at the end of a piece: speech begins and ends softly.
const KEPT_BEFORE: Duration = Duration::from_millis(20);
const KEPT_AFTER: Duration = Duration::from_millis(50);

/// Joins pieces whose samples arrive in chunks of any size.
#[derive(Debug)]
pub struct Joiner {
    joins: Joins,
    rate: u32,
    /// Whether another piece or a pause precedes this piece.
    is_joined: bool,
    /// Whether the quiet start of the piece has ended.
    is_loud: bool,
    /// Number of faded samples.
    faded: usize,
    /// Samples that may belong to the quiet end of the piece or to its fade.
    held: Vec<f32>,
    /// Number of consecutive quiet samples at the end of `held`.
    quiet: usize,
}

impl Joiner {
    /// Creates a joiner; `is_joined` if pieces precede in a resumed recording.
    pub fn new(joins: Joins, rate: u32, is_joined: bool) -> Joiner {
        Joiner { joins, rate, is_joined, is_loud: false, faded: 0, held: Vec::new(), quiet: 0 }
    }

    /// Adds samples of the piece; final samples go to `out`.
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
            // Only what may be kept at the start.
            let cut = self.held.len().saturating_sub(keep);
            self.held.drain(..cut);
            return;
        }
        // Quiet samples may be the end of the piece; others may have to be faded.
        let final_count = self.held.len().saturating_sub(self.quiet.max(fade));
        self.emit(final_count, out);
    }

    /// Ends the piece and adds the pause after it.
    pub fn end(&mut self, pause: Pause, out: &mut Vec<f32>) {
        if self.is_joined && !self.is_loud {
            self.held.clear();
        }
        if pause != Pause::End {
            let cut = self.quiet.saturating_sub(self.samples(KEPT_AFTER)).min(self.held.len());
            self.held.truncate(self.held.len() - cut);
            let fade = self.samples(self.joins.fade).min(self.held.len());
            let start = self.held.len() - fade;
            for (i, sample) in self.held[start..].iter_mut().enumerate() {
                *sample *= (fade - i) as f32 / (fade + 1) as f32;
            }
        }
        self.emit(self.held.len(), out);
        (self.is_loud, self.faded, self.quiet) = (false, 0, 0);
        out.resize(out.len() + self.samples(self.joins.silence(pause)), 0.0);
        self.is_joined = true;
    }

    /// Number of samples of silence after a piece.
    pub fn silence(&self, pause: Pause) -> usize {
        self.samples(self.joins.silence(pause))
    }

    /// Emits held samples; those at the start of a joined piece are faded in.
    fn emit(&mut self, count: usize, out: &mut Vec<f32>) {
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
