//! Converts windows of clips to the bytes of the decoder's inputs.

use super::DecoderSettings;
use crate::overlay::{floats, samples};
use crate::stages::clips::{Clip, Clips};
use myxtts_data::record::{RecordError, RecordSource, SPEAKER_MEL};
use myxtts_tensor::Value as Node;
use myxtts_tensor::engine::InputLayout;

/// Factor of cosines before the softmax: values between -1 and 1 could not express certainty.
pub(super) const SHARPNESS: f32 = 16.0;
/// Margin by which the right speaker has to be nearer than all others. Without it the classification is certain long before
/// voices are far apart, and the sound of the vocoder then changes a vector more than another speaker does.
const MARGIN: f32 = 0.5;

/// The inputs of every program, at the same positions in all of them.
#[derive(Clone)]
pub(super) struct Inputs {
    pub image: InputLayout,
    pub latents: Node,
    pub speaker: Node,
    pub wave: Node,
    /// Speaker targets, if the speaker encoder is trained.
    pub who: Option<SpeakerTargets>,
}

/// The speaker of each window, and the margin that is subtracted from the right cosine.
#[derive(Clone, Copy)]
pub(super) struct SpeakerTargets {
    pub targets: Node,
    pub margins: Node,
    pub people: usize,
}

/// The rows of a batch before they are written to the inputs.
#[derive(Default)]
pub(super) struct RowBuffers {
    latents: Vec<f32>,
    wave: Vec<f32>,
    speaker: Vec<f32>,
    /// Index of each row's speaker.
    speakers: Vec<i32>,
}

impl RowBuffers {
    /// Reads the target of the next row: the states of `clip` from code `start` on, and their audio. An error leaves the
    /// buffers unchanged.
    pub fn push_target(
        &mut self,
        clips: &Clips,
        source: &dyn RecordSource,
        clip: &Clip,
        start: usize,
    ) -> Result<(), RecordError> {
        let DecoderSettings { decoder, window, .. } = &clips.settings;
        // Start of the latents, at the sample rate of the waveform.
        let first = start * decoder.code_samples * decoder.wave_rate / decoder.code_rate;
        let wave = samples(source, clip.record as usize, first, decoder.samples_of(*window))?;
        let record = clip.record as usize;
        clips
            .latents
            .read(record, start, *window, &mut self.latents)
            .map_err(|error| RecordError::Io { id: source.id(record), source: error })?;
        self.wave.extend(wave);
        self.speakers.push(clip.speaker as i32);
        Ok(())
    }

    /// Reads the reference of the row: a window of the reference clip, at a position that depends on `draw`.
    pub fn push_reference(
        &mut self,
        settings: &DecoderSettings,
        source: &dyn RecordSource,
        reference: &Clip,
        draw: u64,
    ) -> Result<(), RecordError> {
        let features = floats(source, reference.record as usize, SPEAKER_MEL)?;
        self.speaker.extend(window_of(&features, settings.speaker.mels, settings.speaker_frames, draw));
        Ok(())
    }

    /// Removes the target of a row that has no reference.
    pub fn pop_target(&mut self, DecoderSettings { decoder, window, .. }: &DecoderSettings) {
        self.latents.truncate(self.latents.len() - window * decoder.latent);
        self.wave.truncate(self.wave.len() - decoder.samples_of(*window));
        self.speakers.pop();
    }
}

impl Inputs {
    /// Writes the inputs of a batch.
    pub fn write(&self, rows: &RowBuffers, into: &mut [u8]) {
        self.image.write(into, self.latents, &rows.latents);
        self.image.write(into, self.wave, &rows.wave);
        self.image.write(into, self.speaker, &rows.speaker);
        if let Some(SpeakerTargets { targets, margins, people }) = self.who {
            self.image.write_i32(into, targets, &rows.speakers);
            let taken = rows.speakers.iter().flat_map(|&own| {
                (0..people).map(move |other| if other as i32 == own { -MARGIN * SHARPNESS } else { 0.0 })
            });
            self.image.write(into, margins, &taken.collect::<Vec<f32>>());
        }
    }
}

/// A window of features, repeated if the clip is shorter; each band is normalised to mean 0 and deviation 1.
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
