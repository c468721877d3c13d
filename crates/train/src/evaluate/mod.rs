//! How near what was spoken is to what should have been.
//!
//! | module | takes | gives |
//! |---|---|---|
//! | [`dtw`] | two sequences of mel frames | their distance under the best alignment in time, and the alignment |
//! | [`cepstrum`] | the same | how far their spectral envelopes are apart, in decibels |
//! | [`rank`] | what was spoken, what might have been meant | which is nearest |
//! | [`words`] | what was to be said, what was heard | errors of words and characters |
//! | [`pitch`] | samples | the pitch of every frame; how two pitches differ |
//! | [`flaws`] | a sound by itself | silence, pauses, loops |
//! | [`interval`] | a number of each utterance | the figure and its 95 % interval |
//! | [`measures`] | a sound and its recording | all of the above, of one and of many |
//! | [`recognizer`], [`listener`] | a WAV file | what a recogniser of the user's understands |
//! | [`html`] | figures and sounds | a page with players |
//! | [`report`] | one line for each sentence | shares and means, as text and as data |
//!
//! [`held_out`] puts them together: it speaks sentences that were held out and compares them with their recordings.
//! [`texts`] speaks a list of texts.
//!
//! Nothing here listens but the recogniser: the rest is arithmetic on natural log-mels as `myxtts_data::mel` makes them,
//! *before* they are divided by `mel_stats`, and on the vectors of a speaker encoder.

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
