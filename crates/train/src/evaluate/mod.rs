//! Measures how close synthesised speech is to the intended speech.
//!
//! | module | input | output |
//! |---|---|---|
//! | [`dtw`] | two sequences of mel frames | their distance under the best alignment in time, and the alignment |
//! | [`cepstrum`] | the same | the distance of their spectral envelopes, in decibels |
//! | [`rank`] | synthesised speech and candidates | the nearest candidate |
//! | [`words`] | a text and a transcript | word and character errors |
//! | [`pitch`] | samples | the pitch of every frame; the difference of two pitch contours |
//! | [`flaws`] | an utterance without a reference | silence, pauses, loops |
//! | [`interval`] | one number per utterance | the mean and its 95 % interval |
//! | [`measures`] | an utterance and its recording | all of the above, per utterance and in total |
//! | [`recognizer`], [`listener`] | a WAV file | the transcript of a recogniser that the user provides |
//! | [`html`] | metrics and audio files | a page with players |
//! | [`report`] | one entry per sentence | shares and means, as text and as data |
//!
//! [`held_out`] combines them: it speaks validation sentences and compares them with their recordings. [`texts`] speaks a
//! list of texts.
//!
//! Apart from the recogniser, everything is arithmetic on natural log-mels as `myxtts_data::mel` computes them, *before*
//! they are divided by `mel_stats`, and on the vectors of a speaker encoder.

pub mod dtw;

pub mod cepstrum;
pub mod flaws;
pub mod pitch;
pub mod rank;

pub mod interval;
pub mod words;

pub mod measures;

pub mod listener;
pub mod recognizer;

pub mod html;
pub mod report;

pub mod held_out;
pub mod texts;
