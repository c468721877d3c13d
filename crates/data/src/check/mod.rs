//! Reads everything and says what is wrong, where, and what to do about it.
//!
//! [`examine`](examine()) listens to every sound and reads every text through an [`Examiner`], in
//! parallel, holding one clip per thread; the rules are in `judge`, the outcome is a [`Report`].

mod examine;
mod histogram;
mod judge;
mod pace;
mod report;
mod senses;
mod summary;

pub use examine::{Examiner, Heard, Trouble, Understood, examine};
pub use histogram::{Bin, Histogram};
pub use pace::Pace;
pub use report::{CorpusFacts, Kind, Report, SCHEMA_VERSION, Share, Spread, TextFacts, Verdict};
pub use senses::Senses;
pub use summary::Summary;

/// What counts as wrong.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Shorter sounds cannot be trained on.
    pub min_seconds: f64,
    /// Longer sounds cannot be trained on.
    pub max_seconds: f64,
    /// The setting that `max_seconds` comes from, for messages.
    pub limited_by: &'static str,
    /// More tokens than this the model does not read.
    pub max_text_tokens: usize,
    /// The share of unusable items above which the corpus is refused.
    pub failure_budget: f64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions {
            min_seconds: 0.5,
            max_seconds: seconds_of_frames(1000),
            limited_by: "data.max_mel_frames",
            max_text_tokens: 400,
            failure_budget: 0.05,
        }
    }
}

/// How long a clip of so many mel frames is: hop 256 at 22,050 Hz.
pub fn seconds_of_frames(max_mel_frames: u32) -> f64 {
    f64::from(max_mel_frames) * 256.0 / 22_050.0
}
