//! A sound file as browsers play it, and as a picture.

use super::not_found;
use crate::answer::ApiError;
use myxtts_data::audio::{Clip, Resampler, decode, wav};
use myxtts_data::mel::{FrontEnd, MelExtractor, picture};
use std::path::Path;

/// Seconds that are shown at most.
const MOST_SECONDS: usize = 60;

/// The first minute of a sound; a file that is no sound is not shown, whatever it is.
fn listen(path: &Path) -> Result<Clip, ApiError> {
    let decoded =
        decode(path).map_err(|_| not_found("the recording is missing, or no sound that can be read"))?;
    let Clip { mut samples, sample_rate } = decoded.clip;
    samples.truncate(MOST_SECONDS * sample_rate as usize);
    Ok(Clip { samples, sample_rate })
}

/// As WAV.
pub fn sound(path: &Path) -> Result<Vec<u8>, ApiError> {
    let clip = listen(path)?;
    Ok(wav::encode_pcm16(&clip.samples, clip.sample_rate))
}

/// A picture of the mel that the DVAE is given.
pub fn mel(path: &Path) -> Result<Vec<u8>, ApiError> {
    let clip = listen(path)?;
    let front_end = FrontEnd::Dvae;
    let samples = Resampler::new(clip.sample_rate, front_end.sample_rate()).resample(&clip.samples);
    let mut values = Vec::new();
    let frames = MelExtractor::new(front_end).compute(&samples, &mut values);
    Ok(picture::mel_png(frames, front_end.channels(), &values))
}
