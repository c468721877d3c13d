//! Windows of clips made what the decoder's inputs hold, byte for byte.

use super::DecoderSettings;
use crate::overlay::{floats, samples};
use crate::stages::clips::Row;
use myxtts_data::record::{RecordError, RecordSource, SPEAKER_MEL};
use myxtts_tensor::Value as Node;
use myxtts_tensor::engine::InputLayout;

/// What cosines are multiplied with: between -1 and 1 they could not say what is certain.
pub(super) const SHARPNESS: f32 = 16.0;
/// How much nearer than all others the right speaker has to be. Without it the answer is certain long before voices are
/// far apart, and then a vocoder's own sound moves a vector more than another speaker does.
const MARGIN: f32 = 0.5;

/// The inputs every program has, at the same places in all of them.
#[derive(Clone)]
pub(super) struct Inputs {
    pub image: InputLayout,
    pub latents: Node,
    pub speaker: Node,
    pub wave: Node,
    /// Where the speaker encoder is to learn who speaks.
    pub who: Option<SpeakerTargets>,
}

/// Whose each window is, and what is taken from the cosine of the right answer.
#[derive(Clone, Copy)]
pub(super) struct SpeakerTargets {
    pub targets: Node,
    pub margins: Node,
    pub people: usize,
}

impl Inputs {
    /// Writes the inputs of these rows, their sound read from `source`.
    pub fn fill(
        &self,
        settings: &DecoderSettings,
        source: &dyn RecordSource,
        rows: &[Row<'_>],
        into: &mut [u8],
    ) -> Result<(), RecordError> {
        let DecoderSettings { decoder, window, heard, .. } = settings;
        let count = decoder.samples_of(*window);
        let (mut latents, mut wave, mut speaker) = (Vec::new(), Vec::new(), Vec::new());
        for &(clip, start, other, draw) in rows {
            let from = &clip.latents[start * decoder.latent..][..window * decoder.latent];
            latents.extend(from.iter().map(|x| x.to_f32()));
            // Where the latents begin, at the rate of the waveform.
            let first = start * decoder.code_samples * decoder.wave_rate / decoder.code_rate;
            wave.extend(samples(source, clip.record as usize, first, count)?);
            let features = floats(source, other.record as usize, SPEAKER_MEL)?;
            speaker.extend(window_of(&features, settings.speaker.mels, *heard, draw));
        }
        self.image.write(into, self.latents, &latents);
        self.image.write(into, self.wave, &wave);
        self.image.write(into, self.speaker, &speaker);
        if let Some(SpeakerTargets { targets, margins, people }) = self.who {
            let speakers: Vec<i32> = rows.iter().map(|row| row.0.speaker as i32).collect();
            self.image.write_i32(into, targets, &speakers);
            let taken = speakers.iter().flat_map(|&own| {
                (0..people).map(move |other| if other as i32 == own { -MARGIN * SHARPNESS } else { 0.0 })
            });
            self.image.write(into, margins, &taken.collect::<Vec<f32>>());
        }
        Ok(())
    }
}

/// A window of features, repeated where the clip is shorter, each band made mean 0 and deviation 1 over it.
fn window_of(features: &[f32], bands: usize, frames: usize, draw: u64) -> Vec<f32> {
    let there = (features.len() / bands).max(1);
    let start = if there > frames { (draw % (there - frames + 1) as u64) as usize } else { 0 };
    let mut window = Vec::with_capacity(frames * bands);
    for i in 0..frames {
        let at = (start + i) % there;
        window.extend((0..bands).map(|b| features.get(at * bands + b).copied().unwrap_or(0.0)));
    }
    for band in 0..bands {
        let values = || window.iter().skip(band).step_by(bands).map(|&x| f64::from(x));
        let mean = values().sum::<f64>() / frames as f64;
        let variance = values().map(|x| (x - mean).powi(2)).sum::<f64>() / frames as f64;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        for x in window.iter_mut().skip(band).step_by(bands) {
            *x = ((f64::from(*x) - mean) * scale) as f32;
        }
    }
    window
}
