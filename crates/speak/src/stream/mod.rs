//! Streaming: latents are decoded in chunks while codes are still generated.
//!
//! | step | module | in | out |
//! |---|---|---|---|
//! | upsample | `upsampler` | a latent per code | frames of 256 samples, up to the last that no later latent changes |
//! | decode | `streamer` | new frames with the decoder's receptive field on both sides | their samples |
//! | trim | `leading_silence` | samples | samples without leading silence |
//!
//! The margins of a window are dropped, so the joined chunks equal the waveform of the whole utterance. Chunks grow: the first
//! are short for low latency, later ones long, so that little is computed twice.

mod leading_silence;
mod streamer;
mod upsampler;

pub use leading_silence::AudibleStart;
pub(crate) use leading_silence::LeadingSilence;
pub(crate) use streamer::{FrameDecoder, Streamer, decode_in_windows, largest_window, windows};

#[cfg(test)]
mod tests;
