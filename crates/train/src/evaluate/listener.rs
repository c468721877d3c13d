//! Transcribes one file after another until the recogniser fails twice for one of them. The failure is reported, and the work
//! continues without the recogniser.

use super::measures::Recognition;
use super::recognizer::{Recognizer, RecognizerError};
use super::words;
use myxtts_run::plan::TrainingPlan;
use myxtts_text::compare::NumeralReading;
use std::path::Path;
use std::time::{Duration, Instant};

/// The environment variable with the key of a transcription server. Not a setting, since those are saved with the run.
const KEY: &str = "MYXTTS_RECOGNIZER_KEY";
/// A failure that comes sooner than this is not final: the request is repeated once, after a pause. A server that is busy or
/// restarts then answers.
const QUICK_FAILURE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(1);

/// A recogniser that is used until it fails twice in a row.
#[derive(Debug)]
pub struct Listener {
    recognizer: Recognizer,
    numerals: NumeralReading,
    failed: Option<RecognizerError>,
}

impl Listener {
    /// Creates a listener; `numerals` is how numbers are written out when a transcript is compared.
    pub fn new(recognizer: Recognizer, numerals: NumeralReading) -> Listener {
        Listener { recognizer, numerals, failed: None }
    }

    /// The recogniser of the settings; `None` if they name none. A command has priority over an address.
    pub fn of(plan: &TrainingPlan) -> Result<Option<Listener>, RecognizerError> {
        let numerals = if plan.recognizer_digits { NumeralReading::Digits } else { NumeralReading::Numbers };
        let recognizer = match (&plan.recognizer_command, &plan.recognizer_url) {
            (Some(command), _) => Recognizer::command(command)?,
            (None, Some(url)) => {
                Recognizer::url(url, &plan.recognizer_model)?.with_key(std::env::var(KEY).ok())
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Listener::new(recognizer, numerals)))
    }

    /// Sets the time limit of one recognition.
    pub fn with_timeout(self, timeout: Duration) -> Listener {
        Listener { recognizer: self.recognizer.with_timeout(timeout), ..self }
    }

    /// Transcribes a WAV file that should contain `text`; `None` once the recogniser has failed.
    pub fn transcribe(&mut self, wav: &Path, text: &str, language: &str) -> Option<Recognition> {
        if self.failed.is_some() {
            return None;
        }
        let began = Instant::now();
        let first = self.recognizer.recognize(wav, language);
        let heard = match first {
            Err(_) if began.elapsed() < QUICK_FAILURE => {
                std::thread::sleep(PAUSE);
                self.recognizer.recognize(wav, language)
            }
            first => first,
        };
        match heard {
            Ok(transcript) => Some(self.recognition(transcript, text, language)),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    /// The result for silence: an empty transcript in which every word is an error. Recognisers tend to invent words for
    /// silence.
    pub fn silence(&self, text: &str, language: &str) -> Recognition {
        self.recognition(String::new(), text, language)
    }

    fn recognition(&self, transcript: String, text: &str, language: &str) -> Recognition {
        let score = words::score(text, &transcript, language, self.numerals);
        Recognition { transcript, score }
    }

    /// Why the recogniser is no longer used; `None` while it works.
    pub fn failed(&self) -> Option<&RecognizerError> {
        self.failed.as_ref()
    }

    /// The recogniser.
    pub fn recognizer(&self) -> &Recognizer {
        &self.recognizer
    }
}
