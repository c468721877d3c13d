//! The rules: from measurements to problems, each with numbers and advice.

use super::CheckOptions;
use super::examine::{AudioMeasures, ExamineError, TextMeasures, problem};
use super::speaking_time::SpeakingTime;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Utterance;

/// Fraction of clipped samples for a warning; less is inaudible.
const CLIPPED_WARNING: f64 = 0.001;
/// Fraction of clipped samples for an error: the model would learn the distortion.
const CLIPPED_ERROR: f64 = 0.05;
/// Peak or RMS below this (-60 dBFS) is converter noise.
const SILENT_LEVEL: f32 = 0.001;
/// A smaller fraction of the file left after trimming gives a warning.
const MIN_AUDIBLE_SHARE: f64 = 0.2;
/// A text that needs more than this fraction of the audio at the fastest speaking rate is suspicious; above 1 it is
/// impossible.
const FAST_SHARE: f64 = 0.75;
/// Audio this many times longer than the fastest reading contains more than its text.
const SLOW_FACTOR: f64 = 12.0;
/// Short clips have pauses, so little text is only suspicious in audio longer than this.
const SLOW_SECONDS: f64 = 4.0;
/// Declared durations are often rounded, and codecs add a frame or two.
const LENGTH_TOLERANCE_SECONDS: f64 = 0.1;
const LENGTH_TOLERANCE_SHARE: f64 = 0.02;
/// Maximum number of characters listed in a message.
const MAX_LISTED_CHARACTERS: usize = 8;

/// Result of the check of one utterance.
pub(super) struct Finding {
    pub(super) audio: Option<AudioMeasures>,
    /// Number of characters of the cleaned text, or of the raw text if cleaning failed.
    pub(super) characters: usize,
    pub(super) tokens: Option<usize>,
    pub(super) problems: Vec<Problem>,
}

/// Applies all rules to one utterance.
pub(super) fn apply(
    utterance: &Utterance,
    declared: Option<f64>,
    audio: Result<AudioMeasures, ExamineError>,
    measures: Result<TextMeasures, ExamineError>,
    options: &CheckOptions,
) -> Finding {
    let mut problems = Vec::new();
    let audio = match audio {
        Ok(audio) => {
            check_audio(&audio, declared, options, &mut problems);
            Some(audio)
        }
        Err(error) => {
            problems.push((error.kind, Severity::Error, error.detail));
            None
        }
    };
    let (characters, tokens) = match measures {
        Ok(measures) => {
            check_text(&utterance.text, &measures, options, &mut problems);
            (measures.cleaned.chars().count(), measures.tokens)
        }
        Err(error) => {
            problems.push((error.kind, Severity::Error, error.detail));
            (utterance.text.chars().count(), None)
        }
    };
    if let Some(audio) = &audio {
        check_speaking_rate(&utterance.text, audio, &mut problems);
    }
    let problems = problems
        .into_iter()
        .map(|(kind, severity, detail)| problem(utterance, kind, severity, detail))
        .collect();
    Finding { audio, characters, tokens, problems }
}

type Problems = Vec<(ProblemKind, Severity, String)>;

fn check_audio(
    audio: &AudioMeasures,
    declared: Option<f64>,
    options: &CheckOptions,
    problems: &mut Problems,
) {
    let seconds = audio.seconds;
    if let Some(declared) = declared {
        let off = (seconds - declared).abs();
        if off > LENGTH_TOLERANCE_SECONDS + LENGTH_TOLERANCE_SHARE * declared {
            problems.push((
                ProblemKind::LengthDiffers,
                Severity::Error,
                format!(
                    "the metadata declares {declared:.2} s, the file has {seconds:.2} s; one of the two belongs to another recording"
                ),
            ));
        }
    }
    if seconds < options.min_seconds {
        problems.push((
            ProblemKind::TooShort,
            Severity::Error,
            format!("{seconds:.2} s long, shorter than the minimum of {:.2} s; remove it or join it with its neighbour", options.min_seconds),
        ));
    } else if seconds > options.max_seconds {
        problems.push((
            ProblemKind::TooLong,
            Severity::Error,
            format!(
                "{seconds:.2} s long, longer than the maximum of {:.2} s; cut it at a pause or raise {}",
                options.max_seconds, options.limited_by
            ),
        ));
    }
    if audio.peak < SILENT_LEVEL || audio.rms < SILENT_LEVEL {
        problems.push((
            ProblemKind::Silent,
            Severity::Error,
            format!(
                "silent: peak {}, RMS {}; record it again or remove it",
                decibels(audio.peak),
                decibels(audio.rms)
            ),
        ));
        return;
    }
    let audible = audio.audible_seconds;
    if seconds >= options.min_seconds && audible < options.min_seconds / 2.0 {
        problems.push((
            ProblemKind::Silent,
            Severity::Error,
            format!("only {audible:.2} s of {seconds:.2} s are not silence; record it again or remove it"),
        ));
    } else if audible < MIN_AUDIBLE_SHARE * seconds {
        problems.push((
            ProblemKind::Silent,
            Severity::Warning,
            format!("only {audible:.2} s of {seconds:.2} s are not silence; trim it"),
        ));
    }
    if audio.clipped_share > CLIPPED_WARNING {
        let error = audio.clipped_share > CLIPPED_ERROR;
        let advice =
            if error { "record it again at a lower level" } else { "lower the recording level next time" };
        problems.push((
            ProblemKind::Clipped,
            if error { Severity::Error } else { Severity::Warning },
            format!("{:.2} % of the samples are clipped; {advice}", audio.clipped_share * 100.0),
        ));
    }
}

/// Level in decibels relative to full scale.
fn decibels(level: f32) -> String {
    if level > 0.0 { format!("{:.1} dBFS", 20.0 * level.log10()) } else { "-inf dBFS".to_owned() }
}

fn check_text(text: &str, measures: &TextMeasures, options: &CheckOptions, problems: &mut Problems) {
    if SpeakingTime::from_text(&measures.cleaned).letters == 0 {
        let found = match text.trim() {
            "" => "the text is empty".to_owned(),
            text => format!("the text has nothing to speak: {}", excerpt(text)),
        };
        problems.push((ProblemKind::EmptyText, Severity::Error, format!("{found}; write the transcript")));
        return;
    }
    if !measures.unknown.is_empty() {
        let characters = list_characters(&measures.unknown);
        problems.push(match measures.tokens {
            Some(_) => (
                ProblemKind::UnknownCharacters,
                Severity::Error,
                format!(
                    "the tokenizer has no token for {characters}; correct the text or extend the tokenizer"
                ),
            ),
            None => (
                ProblemKind::UnknownCharacters,
                Severity::Warning,
                format!(
                    "outside the language's alphabet: {characters}; check with --tokenizer before training"
                ),
            ),
        });
    }
    if let Some(tokens) = measures.tokens.filter(|&tokens| tokens > options.max_text_tokens) {
        problems.push((
            ProblemKind::TextTooLong,
            Severity::Error,
            format!(
                "{tokens} tokens, more than the model's limit of {}; split text and audio at a sentence",
                options.max_text_tokens
            ),
        ));
    }
}

/// Lists characters: `"ß" U+00DF, "€" U+20AC and 3 more`.
fn list_characters(unknown: &[char]) -> String {
    let named: Vec<String> = unknown
        .iter()
        .take(MAX_LISTED_CHARACTERS)
        .map(|&c| format!("{:?} U+{:04X}", c.to_string(), c as u32))
        .collect();
    let more = unknown.len().saturating_sub(MAX_LISTED_CHARACTERS);
    if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) }
}

/// The start of a text, escaped for printing.
fn excerpt(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    if start.len() < text.len() { format!("{start:?}...") } else { format!("{start:?}") }
}

fn check_speaking_rate(text: &str, audio: &AudioMeasures, problems: &mut Problems) {
    let speaking = SpeakingTime::from_text(text);
    // Other rules report missing text or audio.
    if speaking.letters == 0 || audio.seconds <= 0.0 {
        return;
    }
    let share = speaking.min_seconds / audio.seconds;
    if share > FAST_SHARE {
        let (severity, advice) = if share > 1.0 {
            (Severity::Error, "the text belongs to another recording, or the audio is cut off")
        } else {
            (Severity::Warning, "listen whether the audio is cut off")
        };
        problems.push((
            ProblemKind::TextTooLongForAudio,
            severity,
            format!(
                "{} letters in {:.2} s are {:.0} per second, the fastest readers reach {:.0}; {advice}",
                speaking.letters,
                audio.seconds,
                speaking.letters as f64 / audio.seconds,
                speaking.fastest()
            ),
        ));
    }
    let audible = audio.audible_seconds;
    if audible > SLOW_SECONDS && speaking.min_seconds * SLOW_FACTOR < audible {
        problems.push((
            ProblemKind::TextTooShortForAudio,
            Severity::Warning,
            format!(
                "{} letters for {audible:.2} s of audio are {:.1} per second; listen whether words are missing from the text",
                speaking.letters,
                speaking.letters as f64 / audible
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> AudioMeasures {
        AudioMeasures {
            sample_rate: 22_050,
            seconds: 3.0,
            audible_seconds: 2.8,
            peak: 0.5,
            rms: 0.1,
            clipped_share: 0.0,
            hash: [0; 32],
        }
    }

    fn problems_after(change: impl Fn(&mut AudioMeasures)) -> Vec<(ProblemKind, Severity)> {
        let mut audio = good();
        change(&mut audio);
        let mut problems = Vec::new();
        check_audio(&audio, None, &CheckOptions::default(), &mut problems);
        problems.into_iter().map(|(kind, severity, _)| (kind, severity)).collect()
    }

    #[test]
    fn audio_rules_apply_at_their_thresholds() {
        use ProblemKind::*;
        use Severity::*;
        assert_eq!(problems_after(|_| {}), []);
        assert_eq!(problems_after(|h| h.clipped_share = 0.001), []);
        assert_eq!(problems_after(|h| h.clipped_share = 0.0011), [(Clipped, Warning)]);
        assert_eq!(problems_after(|h| h.clipped_share = 0.051), [(Clipped, Error)]);
        assert_eq!(problems_after(|h| h.peak = 0.0009), [(Silent, Error)]);
        assert_eq!(problems_after(|h| h.rms = 0.0009), [(Silent, Error)]);
        assert_eq!(problems_after(|h| h.audible_seconds = 0.2), [(Silent, Error)]);
        assert_eq!(problems_after(|h| h.audible_seconds = 0.5), [(Silent, Warning)]);
        assert_eq!(problems_after(|h| (h.seconds, h.audible_seconds) = (0.5, 0.5)), []);
        assert_eq!(problems_after(|h| (h.seconds, h.audible_seconds) = (0.49, 0.49)), [(TooShort, Error)]);
        assert_eq!(problems_after(|h| (h.seconds, h.audible_seconds) = (11.6, 11.0)), []);
        assert_eq!(problems_after(|h| (h.seconds, h.audible_seconds) = (11.62, 11.0)), [(TooLong, Error)]);
    }

    #[test]
    fn a_declared_length_has_a_tolerance() {
        let differs = |declared| {
            let mut problems = Vec::new();
            check_audio(&good(), Some(declared), &CheckOptions::default(), &mut problems);
            !problems.is_empty()
        };
        assert!(!differs(3.0) && !differs(3.1) && !differs(2.9));
        assert!(differs(3.3) && differs(2.7) && differs(0.0));
    }

    #[test]
    fn text_and_audio_lengths_must_match() {
        let fit = |letters: usize, seconds: f64| {
            let mut problems = Vec::new();
            let audio = AudioMeasures { seconds, audible_seconds: seconds, ..good() };
            check_speaking_rate(&"a".repeat(letters), &audio, &mut problems);
            problems.pop().map(|(kind, severity, _)| (kind, severity))
        };
        assert_eq!(fit(45, 3.0), None);
        assert_eq!(fit(80, 3.0), Some((ProblemKind::TextTooLongForAudio, Severity::Warning)));
        assert_eq!(fit(100, 3.0), Some((ProblemKind::TextTooLongForAudio, Severity::Error)));
        assert_eq!(fit(20, 10.0), Some((ProblemKind::TextTooShortForAudio, Severity::Warning)));
        assert_eq!(fit(3, 3.0), None, "short clips have pauses");
        assert_eq!(fit(0, 10.0), None);
    }

    #[test]
    fn characters_are_listed_with_their_code_points() {
        assert_eq!(list_characters(&['€']), "\"€\" U+20AC");
        assert_eq!(list_characters(&['\u{7}']), "\"\\u{7}\" U+0007");
        let many: Vec<char> = ('a'..='k').collect();
        assert!(list_characters(&many).ends_with("and 3 more"));
    }
}
