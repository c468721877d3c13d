//! New frames to samples, in windows of a few sizes: one program each, which on a GPU is recorded once.

use super::stretch::Stretch;
use crate::error::SpeakError;
use myxtts_model::decoder::DecoderSizes;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Codes of the first pieces, and of all after them.
const GROWING: [usize; 5] = [1, 2, 4, 8, 12];
const STEADY: usize = 25;

/// Codes of pieces where nobody waits for the first, and how many of them are computed together.
const WHOLE: usize = 50;
const TOGETHER: usize = 8;

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

/// The most that is computed at once: so many windows of so many frames.
pub(crate) fn largest_window(sizes: &DecoderSizes) -> (usize, usize) {
    (TOGETHER, window(sizes, WHOLE))
}

/// The samples of utterances (their states and a speaker each) that are there as a whole, in windows that are kept: a device
/// that records programs has them recorded, whatever the lengths. Windows of all utterances are computed together.
pub(crate) fn in_windows(
    decoder: &mut dyn FrameDecoder,
    sizes: &DecoderSizes,
    utterances: &[(&[f32], &[f32])],
) -> Result<Vec<Vec<f32>>, SpeakError> {
    let mut kept = windows(sizes);
    kept.push(window(sizes, WHOLE));
    let mut streamers = Vec::with_capacity(utterances.len());
    let mut of_size: BTreeMap<(usize, bool), Vec<(usize, Planned)>> = BTreeMap::new();
    for (number, &(latents, speaker)) in utterances.iter().enumerate() {
        let mut streamer = Streamer::new(sizes, speaker);
        streamer.stretch.extend(latents);
        streamer.stretch.end(latents.len() / sizes.latent);
        for piece in streamer.plan(&kept) {
            of_size.entry((piece.frames, piece.keep)).or_default().push((number, piece));
        }
        streamers.push(streamer);
    }
    let (hop, z_len) = (sizes.hop(), sizes.latent);
    let samples_of = |streamer: &Streamer| vec![0.0; streamer.stretch.ready() * hop];
    let mut samples: Vec<Vec<f32>> = streamers.iter().map(samples_of).collect();
    for ((frames, keep), pieces) in of_size {
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            // Few numbers of windows are recorded.
            let count = if keep { TOGETHER.min(1 << rest.len().ilog2()) } else { 1 };
            let (some, more) = rest.split_at(count);
            rest = more;
            let mut z = vec![0.0; count * frames * z_len];
            z.par_chunks_mut(frames * z_len).zip(some).for_each(|(z, (number, piece))| {
                streamers[*number].frames(piece, z);
            });
            let speakers: Vec<f32> =
                some.iter().flat_map(|(number, _)| streamers[*number].speaker.iter().copied()).collect();
            let made = decoder.windows((count, frames), &z, &speakers, keep)?;
            for ((number, piece), made) in some.iter().zip(made.chunks_exact(frames * hop)) {
                let Planned { start, given, end, .. } = *piece;
                samples[*number][given * hop..end * hop]
                    .copy_from_slice(&made[(given - start) * hop..(end - start) * hop]);
            }
        }
    }
    Ok(samples)
}

/// A decoder that is given windows of frames.
pub(crate) trait FrameDecoder {
    /// The samples of some windows of frames `z` `[windows, frames, latent]`, each with its speaker, as if there was nothing
    /// before and after them. Windows of a size that is kept are asked for again and again.
    fn windows(
        &mut self,
        size: (usize, usize),
        z: &[f32],
        speakers: &[f32],
        keep: bool,
    ) -> Result<Vec<f32>, SpeakError>;
}

/// A window of an utterance, and what of it is given out: frames `given .. end`.
#[derive(Clone, Copy, Debug)]
struct Planned {
    start: usize,
    frames: usize,
    given: usize,
    end: usize,
    keep: bool,
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
        let mut samples = Vec::new();
        for piece in self.plan(kept) {
            samples.extend(self.run(decoder, piece)?);
        }
        Ok(samples)
    }

    /// The windows of everything that is left after the last state came.
    fn plan(&mut self, kept: &[usize]) -> Vec<Planned> {
        let (before, after) = self.sizes.reach();
        let all = self.stretch.ready();
        let mut planned = Vec::new();
        while self.given < all {
            let start = self.given.saturating_sub(before);
            let needed = all - start;
            let mut fitting = kept.iter().copied().filter(|&frames| frames <= all);
            // The last window ends with the utterance, where the decoder sees nothing after it.
            planned.push(if let Some(frames) = fitting.clone().find(|&frames| needed <= frames) {
                self.planned(all - frames, frames, all, true)
            } else if let Some(frames) = fitting.next_back() {
                self.next(frames, all - after)
            } else {
                // Shorter than all of them.
                self.planned(start, needed, all, false)
            });
        }
        planned
    }

    fn planned(&mut self, start: usize, frames: usize, end: usize, keep: bool) -> Planned {
        let given = std::mem::replace(&mut self.given, end);
        Planned { start, frames, given, end, keep }
    }

    /// The next window of `frames`, which begins as early before what is new as the decoder looks. No frame from `settled`
    /// on is given out.
    fn next(&mut self, frames: usize, settled: usize) -> Planned {
        let (before, after) = self.sizes.reach();
        let start = self.given.saturating_sub(before);
        let end = settled.min(start + frames - after);
        self.planned(start, frames, end, true)
    }

    fn piece(
        &mut self,
        decoder: &mut dyn FrameDecoder,
        frames: usize,
        settled: usize,
    ) -> Result<Vec<f32>, SpeakError> {
        let next = self.next(frames, settled);
        self.run(decoder, next)
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

    /// The frames of a window. Those that are not known yet are left empty: they reach none of the samples given out.
    fn frames(&self, piece: &Planned, z: &mut [f32]) {
        let known = self.stretch.ready().min(piece.start + piece.frames);
        for (frame, z) in (piece.start..known).zip(z.chunks_exact_mut(self.sizes.latent)) {
            self.stretch.frame(frame, z);
        }
    }

    fn run(&self, decoder: &mut dyn FrameDecoder, piece: Planned) -> Result<Vec<f32>, SpeakError> {
        let Planned { start, frames, given, end, keep } = piece;
        let mut z = vec![0.0; frames * self.sizes.latent];
        self.frames(&piece, &mut z);
        let hop = self.sizes.hop();
        let mut samples = decoder.windows((1, frames), &z, &self.speaker, keep)?;
        samples.truncate((end - start) * hop);
        samples.drain(..(given - start) * hop);
        Ok(samples)
    }
}
