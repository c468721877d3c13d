//! The rules: from what was heard and read to problems, each with its numbers and what to do.

use super::CheckOptions;
use super::examine::{Heard, Trouble, Understood, problem};
use super::pace::Pace;
use crate::problem::{Problem, ProblemKind, Severity};
use crate::utterance::Utterance;

/// Clipping above this share is worth a look; a few samples of it nobody hears.
const CLIPPED_WARNING: f64 = 0.001;
/// Clipping above this share is distortion that a model would learn.
const CLIPPED_ERROR: f64 = 0.05;
/// Quieter than -60 dBFS is noise of the converter.
const SILENT: f32 = 0.001;
/// Sound that is left after trimming: less than this share of the file is worth a look.
const MOSTLY_SILENT: f64 = 0.2;
/// A text that takes this share of the sound at the fastest pace is suspicious, above 1 impossible.
const HURRIED: f64 = 0.75;
/// A sound this many times longer than the fastest reading holds more than its text.
const DAWDLING: f64 = 12.0;
/// Short clips have pauses: little text is only suspicious in a longer sound.
const DAWDLING_SECONDS: f64 = 4.0;
/// Declared durations are often rounded, and codecs add a frame or two.
const LENGTH_TOLERANCE_SECONDS: f64 = 0.1;
const LENGTH_TOLERANCE_SHARE: f64 = 0.02;
/// Characters named in a message.
const NAMED_CHARACTERS: usize = 8;

/// What was found out about one utterance.
pub(super) struct Finding {
    pub(super) heard: Option<Heard>,
    /// Characters of the cleaned text, or of the text where it could not be cleaned.
    pub(super) characters: usize,
    pub(super) tokens: Option<usize>,
    pub(super) problems: Vec<Problem>,
}

/// Judges one utterance.
pub(super) fn judge(
    utterance: &Utterance,
    declared: Option<f64>,
    heard: Result<Heard, Trouble>,
    understood: Result<Understood, Trouble>,
    options: &CheckOptions,
) -> Finding {
    let mut said = Vec::new();
    let heard = match heard {
        Ok(heard) => {
            sound(&heard, declared, options, &mut said);
            Some(heard)
        }
        Err(trouble) => {
            said.push((trouble.kind, Severity::Error, trouble.detail));
            None
        }
    };
    let (characters, tokens) = match understood {
        Ok(understood) => {
            text(&utterance.text, &understood, options, &mut said);
            (understood.cleaned.chars().count(), understood.tokens)
        }
        Err(trouble) => {
            said.push((trouble.kind, Severity::Error, trouble.detail));
            (utterance.text.chars().count(), None)
        }
    };
    if let Some(heard) = &heard {
        together(&utterance.text, heard, &mut said);
    }
    let problems =
        said.into_iter().map(|(kind, severity, detail)| problem(utterance, kind, severity, detail)).collect();
    Finding { heard, characters, tokens, problems }
}

type Said = Vec<(ProblemKind, Severity, String)>;

fn sound(heard: &Heard, declared: Option<f64>, options: &CheckOptions, said: &mut Said) {
    let seconds = heard.seconds;
    if let Some(declared) = declared {
        let off = (seconds - declared).abs();
        if off > LENGTH_TOLERANCE_SECONDS + LENGTH_TOLERANCE_SHARE * declared {
            said.push((
                ProblemKind::LengthDiffers,
                Severity::Error,
                format!(
                    "the metadata declares {declared:.2} s, the sound has {seconds:.2} s; one of the two belongs to another recording"
                ),
            ));
        }
    }
    if seconds < options.min_seconds {
        said.push((
            ProblemKind::TooShort,
            Severity::Error,
            format!("{seconds:.2} s long, less than the {:.2} s that can be trained on; remove it or join it with its neighbour", options.min_seconds),
        ));
    } else if seconds > options.max_seconds {
        said.push((
            ProblemKind::TooLong,
            Severity::Error,
            format!(
                "{seconds:.2} s long, more than the {:.2} s that can be trained on; cut it at a pause or raise {}",
                options.max_seconds, options.limited_by
            ),
        ));
    }
    if heard.peak < SILENT || heard.rms < SILENT {
        said.push((
            ProblemKind::Silent,
            Severity::Error,
            format!(
                "nothing is to be heard: peak {}, RMS {}; record it again or remove it",
                decibels(heard.peak),
                decibels(heard.rms)
            ),
        ));
        return;
    }
    let sounding = heard.sounding_seconds;
    if seconds >= options.min_seconds && sounding < options.min_seconds / 2.0 {
        said.push((
            ProblemKind::Silent,
            Severity::Error,
            format!(
                "only {sounding:.2} s of its {seconds:.2} s are not silence; record it again or remove it"
            ),
        ));
    } else if sounding < MOSTLY_SILENT * seconds {
        said.push((
            ProblemKind::Silent,
            Severity::Warning,
            format!("{sounding:.2} s of its {seconds:.2} s are not silence; trim it"),
        ));
    }
    if heard.clipped_share > CLIPPED_WARNING {
        let error = heard.clipped_share > CLIPPED_ERROR;
        let advice =
            if error { "record it again at a lower level" } else { "lower the recording level next time" };
        said.push((
            ProblemKind::Clipped,
            if error { Severity::Error } else { Severity::Warning },
            format!("{:.2} % of its samples are pinned at full scale; {advice}", heard.clipped_share * 100.0),
        ));
    }
}

/// Decibels relative to full scale.
fn decibels(level: f32) -> String {
    if level > 0.0 { format!("{:.1} dBFS", 20.0 * level.log10()) } else { "-inf dBFS".to_owned() }
}

fn text(text: &str, understood: &Understood, options: &CheckOptions, said: &mut Said) {
    if Pace::of(&understood.cleaned).letters == 0 {
        let found = match text.trim() {
            "" => "there is no text".to_owned(),
            text => format!("nothing in the text can be spoken: {}", excerpt(text)),
        };
        said.push((ProblemKind::EmptyText, Severity::Error, format!("{found}; write down what is said")));
        return;
    }
    if !understood.unknown.is_empty() {
        let characters = characters(&understood.unknown);
        said.push(match understood.tokens {
            Some(_) => (
                ProblemKind::UnknownCharacters,
                Severity::Error,
                format!(
                    "the tokenizer has no piece for {characters}; correct the text or extend the tokenizer"
                ),
            ),
            None => (
                ProblemKind::UnknownCharacters,
                Severity::Warning,
                format!(
                    "{characters} outside the language's alphabet; check with --tokenizer before training"
                ),
            ),
        });
    }
    if let Some(tokens) = understood.tokens.filter(|&tokens| tokens > options.max_text_tokens) {
        said.push((
            ProblemKind::TextTooLong,
            Severity::Error,
            format!(
                "{tokens} tokens, more than the {} the model reads; cut text and sound at a sentence",
                options.max_text_tokens
            ),
        ));
    }
}

/// `"ß" U+00DF, "€" U+20AC and 3 more`.
fn characters(unknown: &[char]) -> String {
    let named: Vec<String> = unknown
        .iter()
        .take(NAMED_CHARACTERS)
        .map(|&c| format!("{:?} U+{:04X}", c.to_string(), c as u32))
        .collect();
    let more = unknown.len().saturating_sub(NAMED_CHARACTERS);
    if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) }
}

/// The start of a text, safe to print.
fn excerpt(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    if start.len() < text.len() { format!("{start:?}...") } else { format!("{start:?}") }
}

fn together(text: &str, heard: &Heard, said: &mut Said) {
    let pace = Pace::of(text);
    // Without text or sound the other rules have spoken already.
    if pace.letters == 0 || heard.seconds <= 0.0 {
        return;
    }
    let share = pace.least_seconds / heard.seconds;
    if share > HURRIED {
        let (severity, advice) = if share > 1.0 {
            (Severity::Error, "the text belongs to another sound, or the sound is cut off")
        } else {
            (Severity::Warning, "listen whether the sound is cut off")
        };
        said.push((
            ProblemKind::TextTooLongForAudio,
            severity,
            format!(
                "{} letters in {:.2} s are {:.0} a second, where the fastest readers reach {:.0}; {advice}",
                pace.letters,
                heard.seconds,
                pace.letters as f64 / heard.seconds,
                pace.fastest()
            ),
        ));
    }
    let sounding = heard.sounding_seconds;
    if sounding > DAWDLING_SECONDS && pace.least_seconds * DAWDLING < sounding {
        said.push((
            ProblemKind::TextTooShortForAudio,
            Severity::Warning,
            format!(
                "{} letters for {sounding:.2} s of sound are {:.1} a second; listen whether words are missing from the text",
                pace.letters,
                pace.letters as f64 / sounding
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Heard {
        Heard {
            sample_rate: 22_050,
            seconds: 3.0,
            sounding_seconds: 2.8,
            peak: 0.5,
            rms: 0.1,
            clipped_share: 0.0,
            identity: [0; 32],
        }
    }

    fn heard(change: impl Fn(&mut Heard)) -> Vec<(ProblemKind, Severity)> {
        let mut heard = good();
        change(&mut heard);
        let mut said = Vec::new();
        sound(&heard, None, &CheckOptions::default(), &mut said);
        said.into_iter().map(|(kind, severity, _)| (kind, severity)).collect()
    }

    #[test]
    fn sounds_are_judged_at_their_thresholds() {
        use ProblemKind::*;
        use Severity::*;
        assert_eq!(heard(|_| {}), []);
        assert_eq!(heard(|h| h.clipped_share = 0.001), []);
        assert_eq!(heard(|h| h.clipped_share = 0.0011), [(Clipped, Warning)]);
        assert_eq!(heard(|h| h.clipped_share = 0.051), [(Clipped, Error)]);
        assert_eq!(heard(|h| h.peak = 0.0009), [(Silent, Error)]);
        assert_eq!(heard(|h| h.rms = 0.0009), [(Silent, Error)]);
        assert_eq!(heard(|h| h.sounding_seconds = 0.2), [(Silent, Error)]);
        assert_eq!(heard(|h| h.sounding_seconds = 0.5), [(Silent, Warning)]);
        assert_eq!(heard(|h| (h.seconds, h.sounding_seconds) = (0.5, 0.5)), []);
        assert_eq!(heard(|h| (h.seconds, h.sounding_seconds) = (0.49, 0.49)), [(TooShort, Error)]);
        assert_eq!(heard(|h| (h.seconds, h.sounding_seconds) = (11.6, 11.0)), []);
        assert_eq!(heard(|h| (h.seconds, h.sounding_seconds) = (11.62, 11.0)), [(TooLong, Error)]);
    }

    #[test]
    fn a_declared_length_has_some_play() {
        let differs = |declared| {
            let mut said = Vec::new();
            sound(&good(), Some(declared), &CheckOptions::default(), &mut said);
            !said.is_empty()
        };
        assert!(!differs(3.0) && !differs(3.1) && !differs(2.9));
        assert!(differs(3.3) && differs(2.7) && differs(0.0));
    }

    #[test]
    fn text_and_sound_must_fit() {
        let fit = |letters: usize, seconds: f64| {
            let mut said = Vec::new();
            let heard = Heard { seconds, sounding_seconds: seconds, ..good() };
            together(&"a".repeat(letters), &heard, &mut said);
            said.pop().map(|(kind, severity, _)| (kind, severity))
        };
        assert_eq!(fit(45, 3.0), None);
        assert_eq!(fit(80, 3.0), Some((ProblemKind::TextTooLongForAudio, Severity::Warning)));
        assert_eq!(fit(100, 3.0), Some((ProblemKind::TextTooLongForAudio, Severity::Error)));
        assert_eq!(fit(20, 10.0), Some((ProblemKind::TextTooShortForAudio, Severity::Warning)));
        assert_eq!(fit(3, 3.0), None, "short sounds have pauses");
        assert_eq!(fit(0, 10.0), None);
    }

    #[test]
    fn characters_are_named_with_their_code_points() {
        assert_eq!(characters(&['€']), "\"€\" U+20AC");
        assert_eq!(characters(&['\u{7}']), "\"\\u{7}\" U+0007");
        let many: Vec<char> = ('a'..='k').collect();
        assert!(characters(&many).ends_with("and 3 more"));
    }
}
