//! The silence before the first sound: whoever waits for speech need not wait for it too.

/// How much silence stays before the first sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AudibleStart {
    /// Milliseconds that are kept before it.
    pub keep_ms: f32,
    /// Milliseconds over which the sound comes up, from the first that is kept.
    pub fade_ms: f32,
}

impl Default for AudibleStart {
    fn default() -> AudibleStart {
        AudibleStart { keep_ms: 15.0, fade_ms: 20.0 }
    }
}

/// Sound begins where the mean level of so many milliseconds...
const WINDOW_MS: f32 = 5.0;

/// ...is above this: -50 dBFS.
const AUDIBLE: f32 = 0.003;

#[derive(Clone, Debug)]
enum State {
    /// Nothing was heard yet; what may have to be kept.
    Waiting(Vec<f32>),
    /// So many samples were given out.
    Given(usize),
}

/// Takes the silence off the beginning of samples that come in pieces.
#[derive(Clone, Debug)]
pub(crate) struct LeadingSilence {
    keep: usize,
    fade: usize,
    window: usize,
    state: State,
    /// Samples that were left out.
    cut: usize,
}

impl LeadingSilence {
    pub(crate) fn new(options: AudibleStart, rate: u32) -> LeadingSilence {
        let samples = |ms: f32| (f64::from(ms.max(0.0)) * f64::from(rate) / 1000.0).round() as usize;
        LeadingSilence {
            keep: samples(options.keep_ms),
            fade: samples(options.fade_ms),
            window: samples(WINDOW_MS).max(1),
            state: State::Waiting(Vec::new()),
            cut: 0,
        }
    }

    /// Samples that were left out so far.
    pub(crate) fn cut(&self) -> usize {
        self.cut
    }

    /// What is to be heard of a further piece; nothing while all was silent.
    pub(crate) fn push(&mut self, piece: &[f32]) -> Vec<f32> {
        let mut out = match &mut self.state {
            State::Given(_) => piece.to_vec(),
            State::Waiting(held) => {
                held.extend_from_slice(piece);
                let loud = |window: &[f32]| {
                    window.iter().map(|sample| sample * sample).sum::<f32>()
                        > AUDIBLE * AUDIBLE * window.len() as f32
                };
                match held.chunks_exact(self.window).position(loud) {
                    None => {
                        // Whole windows, so that what is left is measured as in one piece.
                        let whole = held.len() / self.window;
                        let kept = self.keep.div_ceil(self.window);
                        let drop = whole.saturating_sub(kept) * self.window;
                        held.drain(..drop);
                        self.cut += drop;
                        return Vec::new();
                    }
                    Some(number) => {
                        let start = (number * self.window).saturating_sub(self.keep);
                        self.cut += start;
                        held.split_off(start)
                    }
                }
            }
        };
        let given = match self.state {
            State::Given(given) => given,
            State::Waiting(_) => 0,
        };
        for (place, sample) in (given..self.fade).zip(&mut out) {
            *sample *= place as f32 / self.fade as f32;
        }
        self.state = State::Given(given + out.len());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_pieces(samples: &[f32], piece: usize) -> (Vec<f32>, usize) {
        let mut start = LeadingSilence::new(AudibleStart::default(), 24_000);
        let out = samples.chunks(piece).flat_map(|piece| start.push(piece)).collect();
        (out, start.cut())
    }

    #[test]
    fn the_silence_before_the_first_sound_is_cut_whole_and_in_pieces_alike() {
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
    fn sound_from_the_first_sample_is_only_faded_in_and_silence_gives_nothing() {
        let loud: Vec<f32> = (0..4_800).map(|i| 0.3 * (i as f32 * 0.2).sin()).collect();
        let (out, cut) = in_pieces(&loud, 100);
        assert_eq!((out.len(), cut), (loud.len(), 0));
        assert_eq!(out[480..], loud[480..]);
        assert!(in_pieces(&[0.0; 4_800], 100).0.is_empty());
    }
}
