//! Removes the silence before speech, to shorten the time to the first audible sample.

/// Options for removing leading silence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AudibleStart {
    /// Milliseconds kept before the first audible sample.
    pub keep_ms: f32,
    /// Milliseconds of the fade-in, from the first kept sample.
    pub fade_ms: f32,
}

impl Default for AudibleStart {
    fn default() -> AudibleStart {
        AudibleStart { keep_ms: 15.0, fade_ms: 20.0 }
    }
}

/// Milliseconds of a window whose level is measured.
const WINDOW_MS: f32 = 5.0;

/// A window with an RMS level above this, -50 dBFS, is audible.
const AUDIBLE: f32 = 0.003;

#[derive(Clone, Debug)]
enum State {
    /// All samples so far were silent; holds those that may be kept.
    Waiting(Vec<f32>),
    /// Number of samples delivered.
    Delivered(usize),
}

/// Removes leading silence from samples that arrive in chunks.
#[derive(Clone, Debug)]
pub(crate) struct LeadingSilence {
    keep: usize,
    fade: usize,
    window: usize,
    state: State,
    /// Number of samples removed.
    trimmed: usize,
}

impl LeadingSilence {
    pub(crate) fn new(options: AudibleStart, rate: u32) -> LeadingSilence {
        let samples = |ms: f32| (f64::from(ms.max(0.0)) * f64::from(rate) / 1000.0).round() as usize;
        LeadingSilence {
            keep: samples(options.keep_ms),
            fade: samples(options.fade_ms),
            window: samples(WINDOW_MS).max(1),
            state: State::Waiting(Vec::new()),
            trimmed: 0,
        }
    }

    /// Number of samples removed so far.
    pub(crate) fn trimmed(&self) -> usize {
        self.trimmed
    }

    /// Adds a chunk; returns the samples to deliver, none while everything was silent.
    pub(crate) fn push(&mut self, piece: &[f32]) -> Vec<f32> {
        let mut out = match &mut self.state {
            State::Delivered(_) => piece.to_vec(),
            State::Waiting(held) => {
                held.extend_from_slice(piece);
                let loud = |window: &[f32]| {
                    window.iter().map(|sample| sample * sample).sum::<f32>()
                        > AUDIBLE * AUDIBLE * window.len() as f32
                };
                match held.chunks_exact(self.window).position(loud) {
                    None => {
                        // Whole windows, so that the rest is measured as if it came in one chunk.
                        let whole = held.len() / self.window;
                        let kept = self.keep.div_ceil(self.window);
                        let drop = whole.saturating_sub(kept) * self.window;
                        held.drain(..drop);
                        self.trimmed += drop;
                        return Vec::new();
                    }
                    Some(number) => {
                        let start = (number * self.window).saturating_sub(self.keep);
                        self.trimmed += start;
                        held.split_off(start)
                    }
                }
            }
        };
        let delivered = match self.state {
            State::Delivered(delivered) => delivered,
            State::Waiting(_) => 0,
        };
        for (index, sample) in (delivered..self.fade).zip(&mut out) {
            *sample *= index as f32 / self.fade as f32;
        }
        self.state = State::Delivered(delivered + out.len());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_pieces(samples: &[f32], piece: usize) -> (Vec<f32>, usize) {
        let mut start = LeadingSilence::new(AudibleStart::default(), 24_000);
        let out = samples.chunks(piece).flat_map(|piece| start.push(piece)).collect();
        (out, start.trimmed())
    }

    #[test]
    fn leading_silence_is_removed_for_any_chunk_size() {
        let tone = |i: usize| 0.3 * (i as f32 * 0.2).sin();
        let samples: Vec<f32> =
            (0..24_000).map(|i| if i < 9_600 { 1e-4 * tone(i) } else { tone(i) }).collect();
        let (whole, cut) = in_pieces(&samples, samples.len());
        assert_eq!(cut, 9_600 - 360, "15 ms are kept");
        assert_eq!(whole.len(), samples.len() - cut);
        assert_eq!(whole[480..], samples[cut + 480..], "after 20 ms it is as it was");
        assert!(whole[0] == 0.0 && whole[450].abs() <= samples[cut + 450].abs());
        for piece in [1, 7, 256, 1000, 9_601] {
            assert_eq!(in_pieces(&samples, piece), (whole.clone(), cut), "{piece}");
        }
    }

    #[test]
    fn immediate_sound_is_only_faded_in_and_silence_gives_nothing() {
        let loud: Vec<f32> = (0..4_800).map(|i| 0.3 * (i as f32 * 0.2).sin()).collect();
        let (out, cut) = in_pieces(&loud, 100);
        assert_eq!((out.len(), cut), (loud.len(), 0));
        assert_eq!(out[480..], loud[480..]);
        assert!(in_pieces(&[0.0; 4_800], 100).0.is_empty());
    }
}
