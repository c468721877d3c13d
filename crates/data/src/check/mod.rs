//! Checks a whole corpus and reports each problem, its location and what to do about it.
//!
//! [`examine`](examine()) decodes every audio file and cleans every text through an [`Examiner`], in parallel, with one clip
//! per thread in memory; the rules are in `rules`, the result is a [`Report`].

mod corpus_examiner;
mod examine;
mod histogram;
mod report;
mod rules;
mod speaking_time;
mod summary;

pub use corpus_examiner::CorpusExaminer;
pub use examine::{AudioMeasures, ExamineError, Examiner, TextMeasures, examine};
pub use histogram::{Bin, Histogram};
pub use report::{
    CorpusFacts, GroupTotals, ProblemCounts, Report, SCHEMA_VERSION, Spread, TextFacts, Verdict,
};
pub use speaking_time::SpeakingTime;
pub use summary::Summary;

use crate::mel::FrontEnd;

/// Limits of the check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Minimum length of a clip that can be trained on.
    pub min_seconds: f64,
    /// Maximum length of a clip that can be trained on.
    pub max_seconds: f64,
    /// Name of the setting that `max_seconds` comes from, for messages.
    pub limited_by: &'static str,
    /// Maximum number of text tokens of the model.
    pub max_text_tokens: usize,
    /// Fraction of unusable items above which the corpus is rejected.
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

/// Length of a clip of `max_mel_frames` frames of the DVAE's front-end.
pub fn seconds_of_frames(max_mel_frames: u32) -> f64 {
    FrontEnd::Dvae.seconds(max_mel_frames as usize)
}
