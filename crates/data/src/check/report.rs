//! The outcome of a check: counts, durations, speakers, and every problem. Serialised it is the
//! machine-readable report, whose shape is versioned by [`SCHEMA_VERSION`].
//!
//! It holds nothing that depends on time, threads or machine: the same corpus gives the same bytes.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::CheckOptions;
use super::examine::problem;
use super::histogram::Histogram;
use super::judge::Finding;
use crate::dataset::Corpus;
use crate::problem::{Problem, ProblemKind, Severity};
use myxtts_run::exit::Exit;

/// Version of the report's JSON: raised when a field changes its meaning or goes, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// For an estimate without a tokenizer: 1,476 tokens of the XTTS vocabulary for 2,560 characters of LJSpeech.
const TOKENS_PER_CHARACTER: f64 = 0.58;
/// The same sentence by the same speaker is normal a few times, for different readings.
const REPEATED: usize = 4;
/// Ids named in a message.
const NAMED_IDS: usize = 3;
/// Rates below this cannot hold what XTTS learns to say.
const LOW_RATE: u32 = 22_050;

/// Everything a check found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// What was read.
    pub corpus: CorpusFacts,
    /// Whether it can be trained on.
    pub verdict: Verdict,
    /// Problems by kind; kinds that did not occur are not there.
    pub kinds: BTreeMap<ProblemKind, Kind>,
    /// Seconds of the sounds that could be decoded.
    pub seconds: Spread,
    /// How they are distributed.
    pub histogram: Histogram,
    /// Utterances and seconds per speaker.
    pub speakers: BTreeMap<String, Share>,
    /// Utterances and seconds per language.
    pub languages: BTreeMap<String, Share>,
    /// Sounds per sample rate in Hz.
    pub sample_rates: BTreeMap<u32, usize>,
    /// Lengths of the texts.
    pub text: TextFacts,
    /// What is worth knowing and belongs to no single utterance.
    pub notes: Vec<String>,
    /// Every problem: first those of metadata by file and line, then those of utterances by id.
    pub problems: Vec<Problem>,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusFacts {
    /// The folder.
    pub root: String,
    /// The layout's name.
    pub format: String,
    /// Why that layout.
    pub why: String,
    /// Utterances that were declared.
    pub utterances: usize,
}

/// Whether the failure budget was kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// True where the corpus can be used.
    pub passed: bool,
    /// Utterances, and what was declared but is none.
    pub items: usize,
    /// Items with at least one error.
    pub failed: usize,
    /// `failed / items`.
    pub share: f64,
    /// The share that is allowed.
    pub budget: f64,
    /// Utterances without an error.
    pub usable_utterances: usize,
    /// Their seconds.
    pub usable_seconds: f64,
}

/// How often a kind of problem occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Items that cannot be used.
    pub errors: usize,
    /// Items that are worth a look.
    pub warnings: usize,
}

/// A speaker's or language's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Utterances, whether usable or not.
    pub utterances: usize,
    /// Seconds of those that could be decoded.
    pub seconds: f64,
}

/// Five numbers about a list of numbers; zeros where it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// Their sum.
    pub total: f64,
    /// The smallest.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

/// Lengths of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextFacts {
    /// Characters after cleaning.
    pub characters: Spread,
    /// Tokens, counted or estimated.
    pub tokens: Spread,
    /// True where there was no tokenizer to count with.
    pub tokens_estimated: bool,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Spread::default() };
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Spread { count: values.len(), total: values.iter().sum(), min, median, max }
    }
}

impl Report {
    /// Gathers what was found; `findings` stand in the order of the corpus' utterances.
    pub(super) fn new(corpus: &Corpus, options: &CheckOptions, findings: Vec<Finding>) -> Self {
        let mut speakers: BTreeMap<String, Share> = BTreeMap::new();
        let mut languages: BTreeMap<String, Share> = BTreeMap::new();
        let mut sample_rates = BTreeMap::new();
        let mut usable_seconds = 0.0;
        let mut failed = 0;
        let mut seconds = Vec::new();
        for (utterance, finding) in corpus.utterances.iter().zip(&findings) {
            let length = finding.heard.as_ref().map_or(0.0, |heard| heard.seconds);
            for share in [
                speakers.entry(utterance.speaker.clone()).or_default(),
                languages.entry(utterance.language.clone()).or_default(),
            ] {
                share.utterances += 1;
                share.seconds += length;
            }
            if let Some(heard) = &finding.heard {
                *sample_rates.entry(heard.sample_rate).or_default() += 1;
                seconds.push(heard.seconds);
            }
            if finding.problems.iter().any(|problem| problem.severity == Severity::Error) {
                failed += 1;
            } else {
                usable_seconds += length;
            }
        }
        let usable_utterances = findings.len() - failed;
        let lost = corpus.lost() as usize;
        let items = findings.len() + lost;
        let failed = failed + lost;
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
        let mut kinds: BTreeMap<ProblemKind, Kind> = BTreeMap::new();
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
            histogram: Histogram::of_seconds(seconds.iter().copied()),
            seconds: Spread::of(seconds),
            speakers,
            languages,
            sample_rates,
            text,
            notes,
            problems,
        }
    }

    /// Errors and warnings of all kinds.
    pub fn counts(&self) -> Kind {
        self.kinds.values().fold(Kind::default(), |sum, kind| Kind {
            errors: sum.errors + kind.errors,
            warnings: sum.warnings + kind.warnings,
        })
    }

    /// The exit code of a check with this outcome.
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
    TextFacts { characters: Spread::of(characters), tokens: Spread::of(tokens), tokens_estimated }
}

fn rate_notes(sample_rates: &BTreeMap<u32, usize>) -> Vec<String> {
    let mut notes = Vec::new();
    if sample_rates.len() > 1 {
        let said: Vec<String> = sample_rates.iter().map(|(rate, n)| format!("{n} at {rate} Hz")).collect();
        notes.push(format!("sample rates are mixed: {}; all are resampled", said.join(", ")));
    }
    let low: usize = sample_rates.range(..LOW_RATE).map(|(_, n)| n).sum();
    if let Some(lowest) = sample_rates.keys().next().filter(|_| low > 0) {
        notes.push(format!(
            "{low} sounds are below {LOW_RATE} Hz; at {lowest} Hz nothing above {} Hz was recorded, and the voice will sound dull",
            lowest / 2
        ));
    }
    notes
}

/// The corpus' problems, each utterance's, and what only shows when utterances are compared.
fn all_problems(corpus: &Corpus, findings: Vec<Finding>) -> Vec<Problem> {
    let mut sounds: HashMap<[u8; 32], usize> = HashMap::new();
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
        // All silences are equal, and said already.
        if let Some(heard) = finding.heard.filter(|_| !silent) {
            let first = *sounds.entry(heard.identity).or_insert(index);
            if first != index {
                let other = &corpus.utterances[first];
                let and_text = if other.text == utterance.text {
                    "with the same text; remove one of them"
                } else {
                    "with another text; one of the two is wrong"
                };
                let detail = format!(
                    "the same sound, sample for sample, as {} ({}), {and_text}",
                    other.id, other.origin
                );
                let kind = ProblemKind::DuplicateAudio;
                problems.push(problem(utterance, kind, Severity::Warning, detail));
            }
        }
        let same = texts.get(&(utterance.speaker.as_str(), utterance.text.as_str()));
        if let Some(same) = same.filter(|same| same.len() >= REPEATED && same[0] == index) {
            let others: Vec<&str> =
                same[1..].iter().take(NAMED_IDS).map(|&i| corpus.utterances[i].id.as_str()).collect();
            let more = if same.len() - 1 > NAMED_IDS { ", ..." } else { "" };
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
    fn a_spread_is_five_numbers() {
        assert_eq!(Spread::of(vec![]), Spread::default());
        let odd = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.count, odd.total, odd.min, odd.median, odd.max), (3, 6.0, 1.0, 2.0, 3.0));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn low_and_mixed_rates_are_noted() {
        assert!(rate_notes(&BTreeMap::from([(44_100, 3)])).is_empty());
        let notes = rate_notes(&BTreeMap::from([(8_000, 1), (16_000, 2), (22_050, 3)]));
        assert!(notes[0].contains("1 at 8000 Hz, 2 at 16000 Hz"), "{notes:?}");
        assert!(
            notes[1].starts_with("3 sounds are below") && notes[1].contains("above 4000 Hz"),
            "{notes:?}"
        );
    }
}
