//! The result of a check: counts, durations, speakers, and every problem. Its serialised form is the machine-readable
//! report, versioned by [`SCHEMA_VERSION`].
//!
//! It contains nothing that depends on time, threads or machine: the same corpus gives the same bytes.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::CheckOptions;
use super::examine::problem;
use super::histogram::Histogram;
use super::rules::Finding;
use crate::dataset::Corpus;
use crate::problem::{Problem, ProblemKind, Severity};
use myxtts_run::exit::Exit;
use myxtts_run::statistics::median;

/// Version of the report's JSON: raised when a field is removed or changes its meaning, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Estimate without a tokenizer: 1,476 tokens of the XTTS vocabulary for 2,560 characters of LJSpeech.
const TOKENS_PER_CHARACTER: f64 = 0.58;
/// Minimum number of identical sentences by one speaker for a warning; a few different readings are normal.
const MIN_REPEATS: usize = 4;
/// Maximum number of ids listed in a message.
const MAX_LISTED_IDS: usize = 3;
/// Sample rates below this in Hz lack the bandwidth that XTTS generates.
const MIN_RATE: u32 = 22_050;

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The corpus.
    pub corpus: CorpusFacts,
    /// Whether the corpus can be trained on.
    pub verdict: Verdict,
    /// Number of problems by kind; kinds that did not occur are absent.
    pub kinds: BTreeMap<ProblemKind, ProblemCounts>,
    /// Durations in seconds of the files that could be decoded.
    pub seconds: Spread,
    /// Distribution of these durations.
    pub histogram: Histogram,
    /// Utterances and seconds per speaker.
    pub speakers: BTreeMap<String, GroupTotals>,
    /// Utterances and seconds per language.
    pub languages: BTreeMap<String, GroupTotals>,
    /// Number of files per sample rate in Hz.
    pub sample_rates: BTreeMap<u32, usize>,
    /// Lengths of the texts.
    pub text: TextFacts,
    /// Remarks that do not concern a single utterance.
    pub notes: Vec<String>,
    /// Every problem: first those of the metadata by file and line, then those of utterances by id.
    pub problems: Vec<Problem>,
}

/// Description of the corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusFacts {
    /// Corpus folder.
    pub root: String,
    /// Name of the layout.
    pub format: String,
    /// Why this layout was chosen.
    pub why: String,
    /// Number of declared utterances.
    pub utterances: usize,
}

/// Whether the failure budget was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the corpus can be used.
    pub passed: bool,
    /// Number of utterances and of failed declarations.
    pub items: usize,
    /// Number of items with at least one error.
    pub failed: usize,
    /// `failed / items`.
    pub share: f64,
    /// Largest accepted share.
    pub budget: f64,
    /// Number of utterances without an error.
    pub usable_utterances: usize,
    /// Total length of the usable utterances in seconds.
    pub usable_seconds: f64,
}

/// Number of problems of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemCounts {
    /// Number of unusable items.
    pub errors: usize,
    /// Number of usable items that need attention.
    pub warnings: usize,
}

/// Totals of a speaker or language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupTotals {
    /// Number of utterances, usable or not.
    pub utterances: usize,
    /// Seconds of the utterances that could be decoded.
    pub seconds: f64,
}

/// Summary of a list of numbers; zeros for an empty list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// Sum of the values.
    pub total: f64,
    /// Smallest value.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest value.
    pub max: f64,
}

/// Lengths of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextFacts {
    /// Characters after cleaning.
    pub characters: Spread,
    /// Tokens, counted or estimated.
    pub tokens: Spread,
    /// Whether the tokens are estimated because there was no tokenizer.
    pub tokens_estimated: bool,
}

impl Spread {
    fn from_values(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Spread::default() };
        Spread { count: values.len(), total: values.iter().sum(), min, median: median(&values), max }
    }
}

impl Report {
    /// Builds a report; `findings` are in the order of the corpus' utterances.
    pub(super) fn new(corpus: &Corpus, options: &CheckOptions, findings: Vec<Finding>) -> Self {
        let mut speakers: BTreeMap<String, GroupTotals> = BTreeMap::new();
        let mut languages: BTreeMap<String, GroupTotals> = BTreeMap::new();
        let mut sample_rates = BTreeMap::new();
        let mut usable_seconds = 0.0;
        let mut failed = 0;
        let mut seconds = Vec::new();
        for (utterance, finding) in corpus.utterances.iter().zip(&findings) {
            let length = finding.audio.as_ref().map_or(0.0, |audio| audio.seconds);
            for share in [
                speakers.entry(utterance.speaker.clone()).or_default(),
                languages.entry(utterance.language.clone()).or_default(),
            ] {
                share.utterances += 1;
                share.seconds += length;
            }
            if let Some(audio) = &finding.audio {
                *sample_rates.entry(audio.sample_rate).or_default() += 1;
                seconds.push(audio.seconds);
            }
            if finding.problems.iter().any(|problem| problem.severity == Severity::Error) {
                failed += 1;
            } else {
                usable_seconds += length;
            }
        }
        let usable_utterances = findings.len() - failed;
        let rejected = corpus.rejected() as usize;
        let items = findings.len() + rejected;
        let failed = failed + rejected;
        let share = if items == 0 { 0.0 } else { failed as f64 / items as f64 };
        let verdict = Verdict {
            passed: usable_utterances > 0 && share <= options.failure_budget,
            items,
            failed,
            share,
            budget: options.failure_budget,
            usable_utterances,
            usable_seconds,
        };
        let text = text_facts(&findings);
        let mut notes = corpus.notes.clone();
        notes.extend(rate_notes(&sample_rates));
        let problems = all_problems(corpus, findings);
        let mut kinds: BTreeMap<ProblemKind, ProblemCounts> = BTreeMap::new();
        for problem in &problems {
            let kind = kinds.entry(problem.kind).or_default();
            match problem.severity {
                Severity::Error => kind.errors += 1,
                Severity::Warning => kind.warnings += 1,
            }
        }
        Report {
            schema_version: SCHEMA_VERSION,
            corpus: CorpusFacts {
                root: corpus.root.to_string_lossy().into_owned(),
                format: corpus.format.name().to_owned(),
                why: corpus.why.clone(),
                utterances: corpus.utterances.len(),
            },
            verdict,
            kinds,
            histogram: Histogram::from_seconds(seconds.iter().copied()),
            seconds: Spread::from_values(seconds),
            speakers,
            languages,
            sample_rates,
            text,
            notes,
            problems,
        }
    }

    /// Total number of errors and warnings.
    pub fn counts(&self) -> ProblemCounts {
        self.kinds.values().fold(ProblemCounts::default(), |sum, kind| ProblemCounts {
            errors: sum.errors + kind.errors,
            warnings: sum.warnings + kind.warnings,
        })
    }

    /// The exit code of a check with this result.
    pub fn exit(&self) -> Exit {
        if self.verdict.passed { Exit::Done } else { Exit::BadData }
    }
}

fn text_facts(findings: &[Finding]) -> TextFacts {
    let characters: Vec<f64> = findings.iter().map(|finding| finding.characters as f64).collect();
    let counted: Vec<f64> = findings.iter().filter_map(|f| f.tokens).map(|tokens| tokens as f64).collect();
    let tokens_estimated = counted.is_empty();
    let tokens = if tokens_estimated {
        characters.iter().map(|n| (n * TOKENS_PER_CHARACTER).round()).collect()
    } else {
        counted
    };
    TextFacts {
        characters: Spread::from_values(characters),
        tokens: Spread::from_values(tokens),
        tokens_estimated,
    }
}

fn rate_notes(sample_rates: &BTreeMap<u32, usize>) -> Vec<String> {
    let mut notes = Vec::new();
    if sample_rates.len() > 1 {
        let counts: Vec<String> = sample_rates.iter().map(|(rate, n)| format!("{n} at {rate} Hz")).collect();
        notes.push(format!("sample rates are mixed: {}; all are resampled", counts.join(", ")));
    }
    let low: usize = sample_rates.range(..MIN_RATE).map(|(_, n)| n).sum();
    if let Some(lowest) = sample_rates.keys().next().filter(|_| low > 0) {
        notes.push(format!(
            "{low} files are below {MIN_RATE} Hz; {lowest} Hz audio has no content above {} Hz, and the voice will sound dull",
            lowest / 2
        ));
    }
    notes
}

/// Problems of the corpus and of each utterance, and those found by comparing utterances.
fn all_problems(corpus: &Corpus, findings: Vec<Finding>) -> Vec<Problem> {
    let mut first_by_hash: HashMap<[u8; 32], usize> = HashMap::new();
    let mut texts: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    for (index, utterance) in corpus.utterances.iter().enumerate() {
        if !utterance.text.is_empty() {
            texts.entry((&utterance.speaker, &utterance.text)).or_default().push(index);
        }
    }
    let mut problems = corpus.problems.clone();
    for (index, finding) in findings.into_iter().enumerate() {
        let utterance = &corpus.utterances[index];
        let silent = finding.problems.iter().any(|problem| problem.kind == ProblemKind::Silent);
        problems.extend(finding.problems);
        // All silent files are equal, and already reported as silent.
        if let Some(audio) = finding.audio.filter(|_| !silent) {
            let first = *first_by_hash.entry(audio.hash).or_insert(index);
            if first != index {
                let other = &corpus.utterances[first];
                let text_note = if other.text == utterance.text {
                    "with the same text; remove one of them"
                } else {
                    "with a different text; one of the two is wrong"
                };
                let detail = format!("identical audio to {} ({}), {text_note}", other.id, other.origin);
                let kind = ProblemKind::DuplicateAudio;
                problems.push(problem(utterance, kind, Severity::Warning, detail));
            }
        }
        let same = texts.get(&(utterance.speaker.as_str(), utterance.text.as_str()));
        if let Some(same) = same.filter(|same| same.len() >= MIN_REPEATS && same[0] == index) {
            let others: Vec<&str> =
                same[1..].iter().take(MAX_LISTED_IDS).map(|&i| corpus.utterances[i].id.as_str()).collect();
            let more = if same.len() - 1 > MAX_LISTED_IDS { ", ..." } else { "" };
            let detail = format!(
                "{} utterances of this speaker have this text ({}{more}); a few readings of a sentence are enough",
                same.len(),
                others.join(", ")
            );
            problems.push(problem(utterance, ProblemKind::RepeatedText, Severity::Warning, detail));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_summarises_its_values() {
        assert_eq!(Spread::from_values(vec![]), Spread::default());
        let odd = Spread::from_values(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.count, odd.total, odd.min, odd.median, odd.max), (3, 6.0, 1.0, 2.0, 3.0));
        assert_eq!(Spread::from_values(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn low_and_mixed_rates_are_noted() {
        assert!(rate_notes(&BTreeMap::from([(44_100, 3)])).is_empty());
        let notes = rate_notes(&BTreeMap::from([(8_000, 1), (16_000, 2), (22_050, 3)]));
        assert!(notes[0].contains("1 at 8000 Hz, 2 at 16000 Hz"), "{notes:?}");
        assert!(notes[1].starts_with("3 files are below") && notes[1].contains("above 4000 Hz"), "{notes:?}");
    }
}
