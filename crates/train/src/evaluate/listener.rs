//! Transcribes one file after another until the recogniser fails once. The failure is reported, and the work continues
//! without the recogniser.

use super::measures::Recognition;
use super::recognizer::{Recognizer, RecognizerError};
use super::words;
use myxtts_run::plan::TrainingPlan;
use myxtts_text::compare::NumeralReading;
use std::path::Path;
use std::time::Duration;

/// A recogniser that is used until its first failure.
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
            (None, Some(url)) => Recognizer::url(url, &plan.recognizer_model)?,
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
        match self.recognizer.recognize(wav, language) {
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
