//! Sound while codes still come: states become samples piece by piece.
//!
//! | step | module | in | out |
//! |---|---|---|---|
//! | stretch | `stretch` | a state for each code | frames of 256 samples, as far as no later state can change them |
//! | window | `streamer` | new frames, and as many on both sides as the decoder looks at | their samples |
//! | start | `audible` | samples | the same without the silence before the first sound |
//!
//! A window's own ends are cut off, so the pieces joined are the waveform of the whole utterance. Pieces grow: the first are
//! short, so that something is heard early, the later ones long, so that little is computed twice.

mod audible;
mod streamer;
mod stretch;

pub use leading_silence::AudibleStart;
pub(crate) use leading_silence::LeadingSilence;
pub(crate) use streamer::{FrameDecoder, Streamer, decode_in_windows, largest_window, windows};

#[cfg(test)]
mod tests;
