//! Examines every utterance in parallel. Decoding and cleaning are behind a trait, so that the rules can be tested without
//! audio files and the decoder can change without the rules.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use myxtts_run::progress::Progress;
use rayon::prelude::*;

use super::CheckOptions;
use super::report::Report;
use super::rules::{self, Finding};
use crate::dataset::Corpus;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Utterance;

/// Measurements of a decoded audio file.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioMeasures {
    /// Sample rate of the file in Hz.
    pub sample_rate: u32,
    /// Length of the whole file.
    pub seconds: f64,
    /// Length after trimming silence from both ends.
    pub audible_seconds: f64,
    /// Largest magnitude; 1 is full scale.
    pub peak: f32,
    /// Root mean square; 1 is full scale.
    pub rms: f32,
    /// Fraction of samples at full scale, counted in runs of three or more.
    pub clipped_share: f64,
    /// Hash of the samples: equal audio has equal hashes in any file.
    pub hash: [u8; 32],
}

/// A cleaned text and its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMeasures {
    /// The text as it is spoken.
    pub cleaned: String,
    /// Number of tokens; `None` without a tokenizer.
    pub tokens: Option<usize>,
    /// Characters unknown to the tokenizer, or outside the language's alphabet without a tokenizer; each once, in order of
    /// appearance.
    pub unknown: Vec<char>,
}

/// An audio file that cannot be decoded or a text that cannot be cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExamineError {
    /// The category under which it is counted.
    pub kind: ProblemKind,
    /// One sentence with numbers and advice.
    pub detail: String,
}

/// Decodes audio and cleans texts for the check.
pub trait Examiner: Sync {
    /// Decodes and measures an audio file.
    fn examine_audio(&self, audio: &Path) -> Result<AudioMeasures, ExamineError>;
    /// Cleans a text and counts its tokens.
    fn examine_text(&self, text: &str, language: &str) -> Result<TextMeasures, ExamineError>;
}

/// Examines a whole corpus ([`CorpusExaminer`](super::CorpusExaminer) is the real examiner). The report does not depend on
/// the number of threads or their timing.
pub fn examine(
    corpus: &Corpus,
    options: &CheckOptions,
    examiner: &dyn Examiner,
    progress: &dyn Progress,
) -> Report {
    progress.start("checking", corpus.utterances.len() as u64);
    let findings: Vec<Finding> = corpus
        .utterances
        .par_iter()
        .map(|utterance| {
            let finding = examine_one(corpus, utterance, options, examiner);
            progress.advance(1);
            finding
        })
        .collect();
    progress.finish();
    Report::new(corpus, options, findings)
}

fn examine_one(
    corpus: &Corpus,
    utterance: &Utterance,
    options: &CheckOptions,
    examiner: &dyn Examiner,
) -> Finding {
    let audio = catch_panic("decoding", ProblemKind::Unreadable, || examiner.examine_audio(&utterance.audio));
    let text = catch_panic("cleaning", ProblemKind::UnspeakableText, || {
        if utterance.text.trim().is_empty() {
            return Ok(TextMeasures::default());
        }
        examiner.examine_text(&utterance.text, &utterance.language)
    });
    let declared = corpus.declared_seconds.get(&utterance.id).copied();
    rules::apply(utterance, declared, audio, text, options)
}

/// Reports a panic in a decoder as a bad file: it is a defect, but must not end the run.
fn catch_panic<T>(
    what: &str,
    kind: ProblemKind,
    act: impl FnOnce() -> Result<T, ExamineError>,
) -> Result<T, ExamineError> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
        let detail = format!("{what} made the program panic; please report this bug with the file");
        Err(ExamineError { kind, detail })
    })
}

/// Creates a problem for an utterance.
pub(super) fn problem(
    utterance: &Utterance,
    kind: ProblemKind,
    severity: Severity,
    detail: String,
) -> Problem {
    Problem { kind, severity, id: Some(utterance.id.clone()), origin: utterance.origin.clone(), detail }
}
