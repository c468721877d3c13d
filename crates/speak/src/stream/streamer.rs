//! Decodes new frames in windows of a few sizes, each with one program, which on a GPU is captured once.

use super::upsampler::LatentUpsampler;
use crate::error::SpeakError;
use myxtts_model::decoder::DecoderSizes;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Codes of the first chunks, and of all later ones.
const GROWING: [usize; 5] = [1, 2, 4, 8, 12];
const STEADY: usize = 25;

/// Codes per window of a whole utterance, where latency does not matter.
const WHOLE: usize = 50;

/// Number of windows decoded together.
const TOGETHER: usize = 8;

/// Upper limit of the frames of the given number of codes.
fn frames_of(sizes: &DecoderSizes, codes: usize) -> usize {
    (codes as f64 * sizes.frames_per_latent() * sizes.resampling()).ceil() as usize
}

/// Frames of a window for chunks of the given number of codes.
fn window(sizes: &DecoderSizes, codes: usize) -> usize {
    let (before, after) = sizes.receptive_field();
    before + frames_of(sizes, codes) + after
}

/// Frames of all cached windows for streaming, smallest first.
pub(crate) fn windows(sizes: &DecoderSizes) -> Vec<usize> {
    GROWING.iter().chain([&STEADY]).map(|&codes| window(sizes, codes)).collect()
}

/// The largest program: number of windows and frames per window.
pub(crate) fn largest_window(sizes: &DecoderSizes) -> (usize, usize) {
    (TOGETHER, window(sizes, WHOLE))
}

/// Decodes whole utterances (latents and speaker vector each) in cached windows, so that captured programs serve any length.
/// Windows of all utterances are decoded together.
pub(crate) fn decode_in_windows(
    decoder: &mut dyn FrameDecoder,
    sizes: &DecoderSizes,
    utterances: &[(&[f32], &[f32])],
) -> Result<Vec<Vec<f32>>, SpeakError> {
    let mut kept = windows(sizes);
    kept.push(window(sizes, WHOLE));
    let mut streamers = Vec::with_capacity(utterances.len());
    let mut by_size: BTreeMap<(usize, bool), Vec<(usize, Window)>> = BTreeMap::new();
    for (number, &(latents, speaker)) in utterances.iter().enumerate() {
        let mut streamer = Streamer::new(sizes, speaker);
        streamer.upsampler.extend(latents);
        streamer.upsampler.end(latents.len() / sizes.latent);
        for piece in streamer.plan(&kept) {
            by_size.entry((piece.frames, piece.keep)).or_default().push((number, piece));
        }
        streamers.push(streamer);
    }
    let (hop, z_len) = (sizes.hop(), sizes.latent);
    let samples_of = |streamer: &Streamer| vec![0.0; streamer.upsampler.ready() * hop];
    let mut samples: Vec<Vec<f32>> = streamers.iter().map(samples_of).collect();
    for ((frames, keep), pieces) in by_size {
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            // Powers of two: few programs are captured.
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
                let Window { start, delivered, end, .. } = *piece;
                samples[*number][delivered * hop..end * hop]
                    .copy_from_slice(&made[(delivered - start) * hop..(end - start) * hop]);
            }
        }
    }
    Ok(samples)
}

/// Decodes windows of frames.
pub(crate) trait FrameDecoder {
    /// Decodes windows of frames `z` `[windows, frames, latent]`, each with its speaker vector, without context before and after.
    /// `size` is the number of windows and frames; `keep` caches the program for later calls of the same size.
    fn windows(
        &mut self,
        size: (usize, usize),
        z: &[f32],
        speakers: &[f32],
        keep: bool,
    ) -> Result<Vec<f32>, SpeakError>;
}

/// A window of an utterance; frames `delivered..end` of it are delivered.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: usize,
    frames: usize,
    delivered: usize,
    end: usize,
    keep: bool,
}

/// Decodes one utterance.
#[derive(Clone, Debug)]
pub(crate) struct Streamer {
    sizes: DecoderSizes,
    upsampler: LatentUpsampler,
    speaker: Vec<f32>,
    /// Number of chunks decoded.
    chunks: usize,
    /// Number of frames whose samples were delivered.
    delivered: usize,
}

impl Streamer {
    pub(crate) fn new(sizes: &DecoderSizes, speaker: &[f32]) -> Streamer {
        Streamer {
            upsampler: LatentUpsampler::new(sizes),
            sizes: sizes.clone(),
            speaker: speaker.to_vec(),
            chunks: 0,
            delivered: 0,
        }
    }

    /// Adds the latent of the next code; returns the samples of the next chunk once there are enough frames for it.
    pub(crate) fn push(
        &mut self,
        decoder: &mut dyn FrameDecoder,
        latent: &[f32],
    ) -> Result<Vec<f32>, SpeakError> {
        self.upsampler.push(latent);
        let (_, after) = self.sizes.receptive_field();
        let mut samples = Vec::new();
        loop {
            let codes = GROWING.get(self.chunks).copied().unwrap_or(STEADY);
            let settled = self.upsampler.ready().saturating_sub(after);
            if settled < self.delivered + frames_of(&self.sizes, codes) {
                return Ok(samples);
            }
            samples.extend(self.piece(decoder, window(&self.sizes, codes), settled)?);
            self.chunks += 1;
        }
    }

    /// Returns the remaining samples of the first `count` latents. If more than those were delivered already, returns a short
    /// fade-out.
    pub(crate) fn finish(
        &mut self,
        decoder: &mut dyn FrameDecoder,
        count: usize,
    ) -> Result<Vec<f32>, SpeakError> {
        let kept = windows(&self.sizes);
        if self.sizes.frames_of(count) <= self.delivered {
            return self.fade(decoder, &kept);
        }
        self.upsampler.end(count);
        self.rest(decoder, &kept)
    }

    /// Decodes everything that remains after the last latent.
    fn rest(&mut self, decoder: &mut dyn FrameDecoder, kept: &[usize]) -> Result<Vec<f32>, SpeakError> {
        let mut samples = Vec::new();
        for piece in self.plan(kept) {
            samples.extend(self.run(decoder, piece)?);
        }
        Ok(samples)
    }

    /// Plans the windows of everything that remains after the last latent.
    fn plan(&mut self, kept: &[usize]) -> Vec<Window> {
        let (before, after) = self.sizes.receptive_field();
        let all = self.upsampler.ready();
        let mut planned = Vec::new();
        while self.delivered < all {
            let start = self.delivered.saturating_sub(before);
            let needed = all - start;
            let mut fitting = kept.iter().copied().filter(|&frames| frames <= all);
            // The last window ends with the utterance, so that the decoder sees no context after it.
            planned.push(if let Some(frames) = fitting.clone().find(|&frames| needed <= frames) {
                self.planned(all - frames, frames, all, true)
            } else if let Some(frames) = fitting.next_back() {
                self.next(frames, all - after)
            } else {
                // Shorter than every cached window.
                self.planned(start, needed, all, false)
            });
        }
        planned
    }

    fn planned(&mut self, start: usize, frames: usize, end: usize, keep: bool) -> Window {
        let delivered = std::mem::replace(&mut self.delivered, end);
        Window { start, frames, delivered, end, keep }
    }

    /// The next window of `frames`. It starts before the new frames by the decoder's receptive field. Frames from `settled` on
    /// are not delivered.
    fn next(&mut self, frames: usize, settled: usize) -> Window {
        let (before, after) = self.sizes.receptive_field();
        let start = self.delivered.saturating_sub(before);
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

    /// One frame beyond those delivered, faded out.
    fn fade(&mut self, decoder: &mut dyn FrameDecoder, kept: &[usize]) -> Result<Vec<f32>, SpeakError> {
        let (_, after) = self.sizes.receptive_field();
        let end = self.delivered + 1;
        let Some(&frames) =
            kept.first().filter(|_| self.delivered > 0 && end + after <= self.upsampler.ready())
        else {
            return Ok(Vec::new());
        };
        let mut samples = self.piece(decoder, frames, end)?;
        let count = samples.len().max(1) as f32;
        samples.iter_mut().enumerate().for_each(|(i, sample)| *sample *= 1.0 - (i + 1) as f32 / count);
        Ok(samples)
    }

    /// Writes the frames of a window. Frames that are not known yet stay zero: they do not reach the delivered samples.
    fn frames(&self, piece: &Window, z: &mut [f32]) {
        let known = self.upsampler.ready().min(piece.start + piece.frames);
        for (frame, z) in (piece.start..known).zip(z.chunks_exact_mut(self.sizes.latent)) {
            self.upsampler.frame(frame, z);
        }
    }

    fn run(&self, decoder: &mut dyn FrameDecoder, piece: Window) -> Result<Vec<f32>, SpeakError> {
        let Window { start, frames, delivered, end, keep } = piece;
        let mut z = vec![0.0; frames * self.sizes.latent];
        self.frames(&piece, &mut z);
        let hop = self.sizes.hop();
        let mut samples = decoder.windows((1, frames), &z, &self.speaker, keep)?;
        samples.truncate((end - start) * hop);
        samples.drain(..(delivered - start) * hop);
        Ok(samples)
    }
}
