//! A recogniser at work: it hears one sound after another until it fails once. Then that is said and nothing more is asked
//! of it; whatever it was to judge goes on without.

use super::measures::Heard;
use super::recognizer::{Recognizer, RecognizerError};
use super::words;
use myxtts_run::plan::TrainingPlan;
use myxtts_text::compare::NumeralReading;
use std::path::Path;
use std::time::Duration;

/// A recogniser at work.
#[derive(Debug)]
pub struct Listener {
    recognizer: Recognizer,
    numerals: NumeralReading,
    failed: Option<RecognizerError>,
}

impl Listener {
    /// With a recogniser, and how numerals are read when what it writes is compared.
    pub fn new(recognizer: Recognizer, numerals: NumeralReading) -> Listener {
        Listener { recognizer, numerals, failed: None }
    }

    /// With the recogniser that the settings name; none where they name none. A command comes before an address.
    pub fn of(plan: &TrainingPlan) -> Result<Option<Listener>, RecognizerError> {
        let numerals = if plan.recognizer_digits { NumeralReading::Digits } else { NumeralReading::Numbers };
        let recognizer = match (&plan.recognizer_command, &plan.recognizer_url) {
            (Some(command), _) => Recognizer::command(command)?,
            (None, Some(url)) => Recognizer::url(url, &plan.recognizer_model)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(Listener::new(recognizer, numerals)))
    }

    /// Waits so long for an answer and no longer.
    pub fn with_patience(self, patience: Duration) -> Listener {
        Listener { recognizer: self.recognizer.with_patience(patience), ..self }
    }

    /// What is understood of a WAV file in which `text` was to be said; none once it has failed.
    pub fn hear(&mut self, wav: &Path, text: &str, language: &str) -> Option<Heard> {
        if self.failed.is_some() {
            return None;
        }
        match self.recognizer.recognize(wav, language) {
            Ok(transcript) => Some(self.heard(transcript, text, language)),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    /// What is understood of silence: nothing, and every word is an error. Recognisers make words up there.
    pub fn nothing(&self, text: &str, language: &str) -> Heard {
        self.heard(String::new(), text, language)
    }

    fn heard(&self, transcript: String, text: &str, language: &str) -> Heard {
        let score = words::score(text, &transcript, language, self.numerals);
        Heard { transcript, score }
    }

    /// Why it is not asked any more.
    pub fn failed(&self) -> Option<&RecognizerError> {
        self.failed.as_ref()
    }

    /// The recogniser.
    pub fn recognizer(&self) -> &Recognizer {
        &self.recognizer
    }
}
