//! New frames to samples, in windows of a few sizes: one program each, which on a GPU is recorded once.

use super::stretch::Stretch;
use crate::error::SpeakError;
use myxtts_model::decoder::DecoderSizes;

/// Codes of the first pieces, and of all after them.
const GROWING: [usize; 5] = [1, 2, 4, 8, 12];
const STEADY: usize = 25;

/// Codes of pieces where nobody waits for the first.
const LONG: usize = 100;

/// Frames that so many codes become at most.
fn frames_of(sizes: &DecoderSizes, codes: usize) -> usize {
    (codes as f64 * sizes.finer() * sizes.resampling()).ceil() as usize
}

/// Frames of a window for pieces of so many codes.
fn window(sizes: &DecoderSizes, codes: usize) -> usize {
    let (before, after) = sizes.reach();
    before + frames_of(sizes, codes) + after
}

/// All windows that are kept for streams, the smallest first.
pub(crate) fn windows(sizes: &DecoderSizes) -> Vec<usize> {
    GROWING.iter().chain([&STEADY]).map(|&codes| window(sizes, codes)).collect()
}

/// The largest window of all.
pub(crate) fn largest_window(sizes: &DecoderSizes) -> usize {
    window(sizes, LONG)
}

/// The samples of states that are all there, in windows that are kept: a device that records programs has them recorded,
/// whatever the length of the utterance.
pub(crate) fn in_windows(
    decoder: &mut dyn FrameDecoder,
    sizes: &DecoderSizes,
    latents: &[f32],
    speaker: &[f32],
) -> Result<Vec<f32>, SpeakError> {
    let mut streamer = Streamer::new(sizes, speaker);
    latents.chunks_exact(sizes.latent).for_each(|latent| streamer.stretch.push(latent));
    streamer.stretch.end(latents.len() / sizes.latent);
    let mut kept = windows(sizes);
    kept.push(largest_window(sizes));
    streamer.rest(decoder, &kept)
}

/// A decoder that is given windows of frames.
pub(crate) trait FrameDecoder {
    /// The samples of frames `z` `[frames, latent]`, as if there was nothing before and after them. A window that is kept is
    /// asked for again and again.
    fn window(
        &mut self,
        frames: usize,
        z: &[f32],
        speaker: &[f32],
        keep: bool,
    ) -> Result<Vec<f32>, SpeakError>;
}

/// One utterance on its way to samples.
#[derive(Clone, Debug)]
pub(crate) struct Streamer {
    sizes: DecoderSizes,
    stretch: Stretch,
    speaker: Vec<f32>,
    /// Pieces that were made.
    pieces: usize,
    /// Frames whose samples were given out.
    given: usize,
}

impl Streamer {
    pub(crate) fn new(sizes: &DecoderSizes, speaker: &[f32]) -> Streamer {
        Streamer {
            stretch: Stretch::new(sizes),
            sizes: sizes.clone(),
            speaker: speaker.to_vec(),
            pieces: 0,
            given: 0,
        }
    }

    /// Takes the state of the next code; gives the samples of the next piece where there is enough for one.
    pub(crate) fn push(
        &mut self,
        decoder: &mut dyn FrameDecoder,
        latent: &[f32],
    ) -> Result<Vec<f32>, SpeakError> {
        self.stretch.push(latent);
        let (_, after) = self.sizes.reach();
        let mut samples = Vec::new();
        loop {
            let codes = GROWING.get(self.pieces).copied().unwrap_or(STEADY);
            let settled = self.stretch.ready().saturating_sub(after);
            if settled < self.given + frames_of(&self.sizes, codes) {
                return Ok(samples);
            }
            samples.extend(self.piece(decoder, window(&self.sizes, codes), settled)?);
            self.pieces += 1;
        }
    }

    /// The samples of everything that is left, where only the first `count` states are said. Less than was given out already
    /// ends with a short fade.
    pub(crate) fn finish(
        &mut self,
        decoder: &mut dyn FrameDecoder,
        count: usize,
    ) -> Result<Vec<f32>, SpeakError> {
        let kept = windows(&self.sizes);
        if self.sizes.frames_of(count) <= self.given {
            return self.fade(decoder, &kept);
        }
        self.stretch.end(count);
        self.rest(decoder, &kept)
    }

    /// The samples of everything that is left after the last state came.
    fn rest(&mut self, decoder: &mut dyn FrameDecoder, kept: &[usize]) -> Result<Vec<f32>, SpeakError> {
        let (before, after) = self.sizes.reach();
        let all = self.stretch.ready();
        let mut samples = Vec::new();
        while self.given < all {
            let start = self.given.saturating_sub(before);
            let needed = all - start;
            let mut fitting = kept.iter().copied().filter(|&frames| frames <= all);
            // The last window ends with the utterance, where the decoder sees nothing after it.
            if let Some(frames) = fitting.clone().find(|&frames| needed <= frames) {
                samples.extend(self.run(decoder, all - frames, frames, all, true)?);
            } else if let Some(frames) = fitting.next_back() {
                samples.extend(self.piece(decoder, frames, all - after)?);
            } else {
                // Shorter than all of them.
                samples.extend(self.run(decoder, start, needed, all, false)?);
            }
        }
        Ok(samples)
    }

    /// The next piece: a window of `frames` that begins as early before it as the decoder looks. No frame from `settled` on is
    /// given out.
    fn piece(
        &mut self,
        decoder: &mut dyn FrameDecoder,
        frames: usize,
        settled: usize,
    ) -> Result<Vec<f32>, SpeakError> {
        let (before, after) = self.sizes.reach();
        let start = self.given.saturating_sub(before);
        let end = settled.min(start + frames - after);
        self.run(decoder, start, frames, end, true)
    }

    /// A frame more than was given out, going down to nothing.
    fn fade(&mut self, decoder: &mut dyn FrameDecoder, kept: &[usize]) -> Result<Vec<f32>, SpeakError> {
        let (_, after) = self.sizes.reach();
        let end = self.given + 1;
        let Some(&frames) = kept.first().filter(|_| self.given > 0 && end + after <= self.stretch.ready())
        else {
            return Ok(Vec::new());
        };
        let mut samples = self.piece(decoder, frames, end)?;
        let count = samples.len().max(1) as f32;
        samples.iter_mut().enumerate().for_each(|(i, sample)| *sample *= 1.0 - (i + 1) as f32 / count);
        Ok(samples)
    }

    /// Runs the window `[start, start + frames)` and gives the samples from the first that was not given out to those of frame
    /// `end`. Frames that are not known yet are left empty: they reach none of these samples.
    fn run(
        &mut self,
        decoder: &mut dyn FrameDecoder,
        start: usize,
        frames: usize,
        end: usize,
        keep: bool,
    ) -> Result<Vec<f32>, SpeakError> {
        let mut z = Vec::with_capacity(frames * self.sizes.latent);
        let known = self.stretch.ready().min(start + frames);
        (start..known).for_each(|frame| self.stretch.frame(frame, &mut z));
        z.resize(frames * self.sizes.latent, 0.0);
        let hop = self.sizes.hop();
        let mut samples = decoder.window(frames, &z, &self.speaker, keep)?;
        samples.truncate((end - start) * hop);
        samples.drain(..(self.given - start) * hop);
        self.given = end;
        Ok(samples)
    }
}
