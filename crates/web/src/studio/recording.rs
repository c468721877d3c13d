//! Audio files as WAV for browsers, and as mel images.

use super::not_found;
use crate::response::ApiError;
use myxtts_data::audio::{Clip, Resampler, decode, wav as wav_file};
use myxtts_data::mel::{FrontEnd, MelExtractor, picture};
use std::path::Path;

/// Maximum length in seconds.
const MAX_SECONDS: usize = 60;

/// Decodes the first minute of an audio file; other files are refused.
fn decode_start(path: &Path) -> Result<Clip, ApiError> {
    let decoded = decode(path).map_err(|_| not_found("the recording is missing or cannot be decoded"))?;
    let Clip { mut samples, sample_rate } = decoded.clip;
    samples.truncate(MAX_SECONDS * sample_rate as usize);
    Ok(Clip { samples, sample_rate })
}

/// The recording as a WAV file.
pub fn wav(path: &Path) -> Result<Vec<u8>, ApiError> {
    let clip = decode_start(path)?;
    Ok(wav_file::encode_pcm16(&clip.samples, clip.sample_rate))
}

/// PNG image of the DVAE's mel spectrogram.
pub fn mel(path: &Path) -> Result<Vec<u8>, ApiError> {
    let clip = decode_start(path)?;
    let front_end = FrontEnd::Dvae;
    let samples = Resampler::new(clip.sample_rate, front_end.sample_rate()).resample(&clip.samples);
    let mut values = Vec::new();
    let frames = MelExtractor::new(front_end).compute(&samples, &mut values);
    Ok(picture::mel_png(frames, front_end.channels(), &values))
}
