//! What was done, for people and for programs.

use std::path::PathBuf;

use myxtts_model::Ended;
use myxtts_speak::narration::Timings;
use myxtts_speak::{Attempt, Flaw};
use serde::Serialize;

/// What was done, as `--json` prints it.
#[derive(Serialize)]
pub struct Report {
    /// None where it was only played.
    pub output: Option<PathBuf>,
    pub format: String,
    pub model: PathBuf,
    pub voice: Vec<PathBuf>,
    pub language: String,
    pub device: String,
    /// `decoded` or `early`.
    pub quality: &'static str,
    /// The text as it was read. Of a book that was resumed: what was spoken since.
    pub text: String,
    pub tokens: usize,
    pub unknown: Vec<char>,
    pub codes: usize,
    pub ended: Option<Ended>,
    /// What is wrong with it still.
    pub flaw: Option<Flaw>,
    /// All tries in their order.
    pub attempts: Vec<Attempt>,
    pub seconds: f64,
    pub sample_rate: u32,
    /// Seconds it took to open the model, to hear the voice, to the first sound, and to speak.
    pub opening: f64,
    pub hearing: f64,
    pub first_sound: Option<f64>,
    pub speaking: f64,
    /// Seconds of speaking for a second of sound that was spoken now.
    pub real_time_factor: f64,
    /// Pieces of a book that were spoken before.
    pub resumed: u64,
    /// When each piece is heard.
    pub pieces: serde_json::Value,
}

impl Report {
    /// The pieces of some timings, as they are printed.
    pub fn pieces_of(timings: &Timings) -> serde_json::Value {
        timings.json()["pieces"].take()
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let row = |name: &str, text: String| format!("{name:<12} {text}\n");
        let how = match self.quality {
            "early" => "early sound, by the DVAE: rough until there is a decoder",
            _ => "the decoder",
        };
        let names: Vec<String> = self.voice.iter().map(|path| path.display().to_string()).collect();
        let mut text = row("model", format!("{} on {}", self.model.display(), self.device));
        text += &row("voice", format!("{}, language {}", names.join(", "), self.language));
        let pieces = self.pieces.as_array().map_or(0, Vec::len);
        if pieces > 1 {
            let before =
                if self.resumed > 0 { format!(", {} of them before", self.resumed) } else { String::new() };
            text += &row("pieces", format!("{pieces}{before}"));
        } else {
            text += &row("read as", self.text.clone());
        }
        if !self.unknown.is_empty() {
            let list: String = self.unknown.iter().map(|c| format!(" {c:?}")).collect();
            text +=
                &row("not said", format!("{} characters the vocabulary lacks:{list}", self.unknown.len()));
        }
        text += &row("codes", format!("{} of {} tokens", self.codes, self.tokens));
        if let Some(flaw) = self.flaw.filter(|_| pieces <= 1) {
            text += &row("note", flaw.to_string());
        }
        if pieces <= 1 && self.attempts.len() > 1 {
            let list: Vec<String> = self.attempts.iter().map(Attempt::to_string).collect();
            text += &row("tries", list.join("; "));
        }
        text += &row("sound", format!("{:.2} s at {} Hz, from {how}", self.seconds, self.sample_rate));
        text += &row(
            "time",
            format!(
                "{:.2} s to open, {:.2} s to hear, {:.2} s to speak: {:.2} s for a second of sound",
                self.opening, self.hearing, self.speaking, self.real_time_factor
            ),
        );
        match &self.output {
            Some(output) => text + &row("written", format!("{} ({})", output.display(), self.format)),
            None => text,
        }
    }
}
