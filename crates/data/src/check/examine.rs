//! Every utterance heard and read, in parallel. What hears and reads is behind a trait, so that the
//! rules can be tested without a sound and the decoder can change without the rules.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use myxtts_run::progress::Progress;
use rayon::prelude::*;

use super::CheckOptions;
use super::judge::{self, Finding};
use super::report::Report;
use crate::dataset::Corpus;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Utterance;

/// What was heard in a sound file.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// Samples per second in the file.
    pub sample_rate: u32,
    /// Length of the whole sound.
    pub seconds: f64,
    /// Length that is left once silence is trimmed from both ends.
    pub sounding_seconds: f64,
    /// Largest magnitude, 1 being full scale.
    pub peak: f32,
    /// Root mean square, 1 being full scale.
    pub rms: f32,
    /// Share of samples at full scale, counted in runs of three or more.
    pub clipped_share: f64,
    /// Hash of the samples: equal sounds have equal identities, whatever file they are in.
    pub identity: [u8; 32],
}

/// What was made of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Understood {
    /// The text as it is spoken.
    pub cleaned: String,
    /// How many tokens it is; `None` where there is no tokenizer.
    pub tokens: Option<usize>,
    /// Characters without a piece in the tokenizer, or outside the language's alphabet where there is
    /// no tokenizer; each once, in order of appearance.
    pub unknown: Vec<char>,
}

/// Why a sound could not be heard or a text not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// How it is counted.
    pub kind: ProblemKind,
    /// One sentence with numbers and advice.
    pub detail: String,
}

/// Ears and eyes of the check.
pub trait Examiner: Sync {
    /// Decodes a sound file.
    fn listen(&self, sound: &Path) -> Result<Heard, Trouble>;
    /// Cleans a text and counts its tokens.
    fn read_text(&self, text: &str, language: &str) -> Result<Understood, Trouble>;
}

/// Examines a whole corpus with an examiner ([`Senses`](super::Senses) is the real one). The report does not depend on the number of threads or their timing.
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
    let heard = guarded("decoding", ProblemKind::Unreadable, || examiner.listen(&utterance.audio));
    let understood = guarded("cleaning", ProblemKind::UnspeakableText, || {
        if utterance.text.trim().is_empty() {
            return Ok(Understood::default());
        }
        examiner.read_text(&utterance.text, &utterance.language)
    });
    let declared = corpus.declared_seconds.get(&utterance.id).copied();
    judge::judge(utterance, declared, heard, understood, options)
}

/// A file that makes a decoder panic is a bad file and a defect; neither ends the run.
fn guarded<T>(what: &str, kind: ProblemKind, act: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| {
        let detail =
            format!("{what} it made this program panic; that is a defect, please report it with this file");
        Err(Trouble { kind, detail })
    })
}

/// A problem of an utterance.
pub(super) fn problem(
    utterance: &Utterance,
    kind: ProblemKind,
    severity: Severity,
    detail: String,
) -> Problem {
    Problem { kind, severity, id: Some(utterance.id.clone()), origin: utterance.origin.clone(), detail }
}
