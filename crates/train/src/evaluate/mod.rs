//! How near what was spoken is to what should have been.
//!
//! | module | takes | gives |
//! |---|---|---|
//! | [`dtw`] | two sequences of mel frames | their distance under the best alignment in time, and the alignment |
//! | [`cepstrum`] | the same | how far their spectral envelopes are apart, in decibels |
//! | [`rank`] | what was spoken, what might have been meant | which is nearest |
//! | [`report`] | one line for each sentence | shares and means, as text and as data |
//!
//! [`held_out`] puts them together: it speaks sentences that were held out and compares them with their recordings.
//!
//! Nothing here listens: all of it is arithmetic on natural log-mels as `myxtts_data::mel` makes them, *before* they are
//! divided by `mel_stats`, and on the vectors of a speaker encoder.

pub mod dtw;

pub mod cepstrum;
pub mod rank;

pub mod report;

pub mod held_out;
