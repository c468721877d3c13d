//! Upsamples latents, one per code, to frames, one per 256 samples: the two linear interpolations of
//! [`Decoder::upsample_latents`](myxtts_model::decoder::Decoder::upsample_latents), frame by frame while latents still
//! arrive.

use myxtts_model::decoder::DecoderSizes;

/// One linear interpolation.
#[derive(Clone, Copy, Debug)]
struct Linear {
    scale: f64,
}

impl Linear {
    /// The two source indices around an index of the result, and the weight of the second, for an endless source. In f32, as
    /// PyTorch and the engine compute it.
    fn neighbours(self, time: usize) -> (usize, usize, f32) {
        let step = (1.0 / self.scale) as f32;
        let at = (step * (time as f32 + 0.5) - 0.5).max(0.0);
        let before = at as usize;
        (before, before + 1, at - before as f32)
    }

    /// Number of results that `source` source values determine, whatever follows.
    fn settled(self, source: usize) -> usize {
        let mut count = (source as f64 * self.scale) as usize;
        while count > 0 && self.neighbours(count - 1).1 >= source {
            count -= 1;
        }
        count
    }
}

/// Latents received so far, and the frames between them.
#[derive(Clone, Debug)]
pub(crate) struct LatentUpsampler {
    sizes: DecoderSizes,
    finer: Linear,
    /// `None` if codes and waveform have the same rate.
    resampling: Option<Linear>,
    latents: Vec<f32>,
    ended: bool,
}

impl LatentUpsampler {
    pub(crate) fn new(sizes: &DecoderSizes) -> LatentUpsampler {
        let resampling = (sizes.wave_rate != sizes.code_rate).then(|| Linear { scale: sizes.resampling() });
        LatentUpsampler {
            finer: Linear { scale: sizes.frames_per_latent() },
            resampling,
            latents: Vec::new(),
            ended: false,
            sizes: sizes.clone(),
        }
    }

    /// Channels of a latent and of a frame.
    #[cfg(test)]
    pub(crate) fn width(&self) -> usize {
        self.sizes.latent
    }

    /// Number of latents so far.
    pub(crate) fn count(&self) -> usize {
        self.latents.len() / self.sizes.latent
    }

    /// Adds the next latent.
    pub(crate) fn push(&mut self, latent: &[f32]) {
        assert!(
            !self.ended && latent.len() == self.sizes.latent,
            "a latent of the decoder's size before the end"
        );
        self.latents.extend_from_slice(latent);
    }

    /// Adds several latents.
    pub(crate) fn extend(&mut self, latents: &[f32]) {
        latents.chunks_exact(self.sizes.latent).for_each(|latent| self.push(latent));
    }

    /// Marks the end after the first `count` latents.
    pub(crate) fn end(&mut self, count: usize) {
        self.latents.truncate(count * self.sizes.latent);
        self.ended = true;
    }

    /// Number of frames that no later latent changes; all of them after the end.
    pub(crate) fn ready(&self) -> usize {
        if self.ended {
            return self.sizes.frames_of(self.count());
        }
        let finer = self.finer.settled(self.count());
        self.resampling.map_or(finer, |resampling| resampling.settled(finer))
    }

    /// Writes a frame to `out` `[latent]`.
    pub(crate) fn frame(&self, number: usize, out: &mut [f32]) {
        let last = self.count() - 1;
        let finer_last = (self.count() as f64 * self.sizes.frames_per_latent()) as usize - 1;
        let finer = |time: usize| {
            let (a, b, weight) = self.finer.neighbours(time.min(finer_last));
            (a.min(last), b.min(last), weight)
        };
        let latent = |time: usize| &self.latents[time * self.sizes.latent..][..self.sizes.latent];
        let Some(resampling) = self.resampling else {
            let (a, b, weight) = finer(number);
            let pairs = latent(a).iter().zip(latent(b));
            out.iter_mut().zip(pairs).for_each(|(out, (a, b))| *out = lerp(*a, *b, weight));
            return;
        };
        let (first, second, weight) = resampling.neighbours(number);
        let ((a, b, early), (c, d, late)) = (finer(first), finer(second));
        let (a, b, c, d) = (latent(a), latent(b), latent(c), latent(d));
        for (i, out) in out.iter_mut().enumerate() {
            *out = lerp(lerp(a[i], b[i], early), lerp(c[i], d[i], late), weight);
        }
    }
}

/// Linear interpolation.
fn lerp(a: f32, b: f32, weight: f32) -> f32 {
    (1.0 - weight) * a + weight * b
}
