//! The report as text for a terminal.

use std::borrow::Cow;
use std::fmt;

use super::report::{GroupTotals, Report, Spread, Verdict};
use crate::problem::{Problem, ProblemKind, Severity};

/// Number of speakers and languages listed before "and N more".
const MAX_LISTED: usize = 10;

/// Prints a report with a limited number of problems of each kind.
pub struct Summary<'a> {
    /// The report to print.
    pub report: &'a Report,
    /// Maximum number of problems printed per kind.
    pub limit: usize,
}

/// `1 speaker`, `2 speakers`
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        writeln!(f, "{}", printable(&report.corpus.why))?;
        for note in &report.notes {
            writeln!(f, "  {}", printable(note))?;
        }
        let Spread { total, min, median, max, .. } = report.seconds;
        writeln!(f)?;
        writeln!(
            f,
            "{}, {}, {}, {}",
            counted(report.corpus.utterances, "utterance"),
            duration(total),
            counted(report.speakers.len(), "speaker"),
            counted(report.languages.len(), "language")
        )?;
        writeln!(f, "  seconds     min {min:.2}  median {median:.2}  max {max:.2}")?;
        spread(f, "characters", report.text.characters, "")?;
        let estimated =
            if report.text.tokens_estimated { " (estimated; use --tokenizer to count)" } else { "" };
        spread(f, "tokens", report.text.tokens, estimated)?;
        let rates: Vec<String> =
            report.sample_rates.iter().map(|(rate, n)| format!("{rate} Hz ({n})")).collect();
        writeln!(f, "  rates       {}", rates.join(", "))?;
        shares(f, "speakers", report.speakers.iter().map(|(name, share)| (name.as_str(), *share)).collect())?;
        shares(
            f,
            "languages",
            report.languages.iter().map(|(name, share)| (name.as_str(), *share)).collect(),
        )?;
        if !report.histogram.bins.is_empty() {
            writeln!(f, "\ndurations")?;
            for line in report.histogram.lines() {
                writeln!(f, "{line}")?;
            }
        }
        self.problems(f)?;
        write!(f, "\n{}", self.verdict())
    }
}

impl Summary<'_> {
    fn problems(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        if report.kinds.is_empty() {
            return writeln!(f, "\nno problems");
        }
        let counts = report.counts();
        writeln!(f, "\nproblems: {} error(s), {} warning(s)", counts.errors, counts.warnings)?;
        for (&kind, count) in &report.kinds {
            let mut parts = Vec::new();
            if count.errors > 0 {
                parts.push(format!("{} error(s)", count.errors));
            }
            if count.warnings > 0 {
                parts.push(format!("{} warning(s)", count.warnings));
            }
            writeln!(f, "  {}: {}", kind_name(kind), parts.join(", "))?;
            // Errors first: a shortened list must contain the worse ones.
            let with_severity =
                |severity| report.problems.iter().filter(move |p| p.kind == kind && p.severity == severity);
            let all = with_severity(Severity::Error).chain(with_severity(Severity::Warning));
            for problem in all.take(self.limit) {
                writeln!(f, "    {}", format_problem(problem))?;
            }
            let more = (count.errors + count.warnings).saturating_sub(self.limit);
            if more > 0 && self.limit > 0 {
                writeln!(f, "    ... and {more} more (--limit shows more, --report writes all)")?;
            }
        }
        Ok(())
    }

    /// The last two lines: the share of unusable items and whether it is within the budget.
    pub fn verdict(&self) -> String {
        let verdict = &self.report.verdict;
        let &Verdict { failed, items, share, budget, usable_utterances, usable_seconds, passed } = verdict;
        let usable = format!("{usable_utterances} utterances, {}", duration(usable_seconds));
        let last = if passed {
            format!("ready: {usable} to train on")
        } else if usable_utterances == 0 {
            "not ready: nothing to train on".to_owned()
        } else {
            format!("not ready: over the budget; {usable} would be left (--failure-budget allows more)")
        };
        let (share, budget) = (share * 100.0, budget * 100.0);
        format!("{failed} of {items} items cannot be used: {share:.1} %, budget {budget:.1} %\n{last}\n")
    }
}

fn spread(f: &mut fmt::Formatter<'_>, what: &str, spread: Spread, note: &str) -> fmt::Result {
    let Spread { total, min, median, max, .. } = spread;
    writeln!(f, "  {what:<10}  min {min:.0}  median {median:.0}  max {max:.0}  total {total:.0}{note}")
}

fn shares(f: &mut fmt::Formatter<'_>, what: &str, mut all: Vec<(&str, GroupTotals)>) -> fmt::Result {
    // Largest first; names break ties, so that the order is deterministic.
    all.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds).then_with(|| a.0.cmp(b.0)));
    let more = all.len().saturating_sub(MAX_LISTED);
    for (at, (name, share)) in all.into_iter().take(MAX_LISTED).enumerate() {
        let what = if at == 0 { what } else { "" };
        writeln!(
            f,
            "  {what:<10}  {}: {} utterances, {}",
            printable(name),
            share.utterances,
            duration(share.seconds)
        )?;
    }
    if more > 0 {
        writeln!(f, "  {:<10}  ... and {more} more", "")?;
    }
    Ok(())
}

/// Formats a duration: `2.31 h`, `4 min 10 s`, `12.4 s`.
fn duration(seconds: f64) -> String {
    if seconds >= 3600.0 {
        format!("{:.2} h", seconds / 3600.0)
    } else if seconds >= 60.0 {
        // Round once, or 119.7 s would be "1 min 60 s".
        let whole = seconds.round() as u64;
        format!("{} min {} s", whole / 60, whole % 60)
    } else {
        format!("{seconds:.1} s")
    }
}

/// The machine-readable name with spaces instead of underscores.
fn kind_name(kind: ProblemKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name.replace('_', " "),
        _ => format!("{kind:?}"),
    }
}

fn format_problem(problem: &Problem) -> String {
    let text = match problem.severity {
        Severity::Error => problem.to_string(),
        Severity::Warning => format!("warning: {problem}"),
    };
    printable(&text).into_owned()
}

/// Replaces control characters: text from a corpus must not control the terminal.
fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_for_reading() {
        assert_eq!(duration(3.04), "3.0 s");
        assert_eq!(duration(119.7), "2 min 0 s");
        assert_eq!(duration(7200.0), "2.00 h");
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn kinds_have_readable_names() {
        assert_eq!(kind_name(ProblemKind::TextTooLongForAudio), "text too long for audio");
    }
}
