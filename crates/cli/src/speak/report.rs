//! The report of `myxtts speak`, as text and as JSON.

use std::path::PathBuf;

use myxtts_model::StopReason;
use myxtts_speak::narration::Timings;
use myxtts_speak::{Attempt, Flaw};
use serde::Serialize;

/// The report, as `--json` prints it.
#[derive(Serialize)]
pub struct Report {
    /// `None` if the audio was only played.
    pub output: Option<PathBuf>,
    pub format: String,
    pub model: PathBuf,
    pub voice: Vec<PathBuf>,
    pub language: String,
    pub device: String,
    /// `decoded` or `early`.
    pub quality: &'static str,
    /// The cleaned text; after `--resume` only that of this call.
    pub text: String,
    /// Whether `text` is spelt in phonemes.
    #[serde(skip)]
    pub is_phonemes: bool,
    pub tokens: usize,
    pub unknown: Vec<char>,
    pub codes: usize,
    pub ended: Option<StopReason>,
    /// A flaw that retries did not remove.
    pub flaw: Option<Flaw>,
    /// All attempts in their order.
    pub attempts: Vec<Attempt>,
    pub seconds: f64,
    pub sample_rate: u32,
    /// Seconds to open the model, to encode the voice, to the first audio, and to speak.
    pub opening: f64,
    #[serde(rename = "hearing")]
    pub encoding: f64,
    #[serde(rename = "first_sound")]
    pub first_audio: Option<f64>,
    pub speaking: f64,
    /// Seconds of computation per second of audio, without resumed pieces.
    pub real_time_factor: f64,
    /// Number of pieces that were spoken before a resume.
    pub resumed: u64,
    /// Start and end of each piece.
    pub pieces: serde_json::Value,
}

/// Seconds; no word is shorter.
const NO_SPEECH: f64 = 0.2;

impl Report {
    /// The pieces of timings, as they are printed.
    pub fn pieces_of(timings: &Timings) -> serde_json::Value {
        timings.json()["pieces"].take()
    }

    /// The report as lines of text.
    pub fn text(&self) -> String {
        let row = |name: &str, text: String| format!("{name:<12} {text}\n");
        let how = match self.quality {
            "early" => "early quality, made by the DVAE: rough, because the model has no decoder yet",
            _ => "made by the decoder",
        };
        let names: Vec<String> = self.voice.iter().map(|path| path.display().to_string()).collect();
        let mut text = row("model", format!("{} on {}", self.model.display(), self.device));
        text += &row("voice", format!("{}, language {}", names.join(", "), self.language));
        let pieces = self.pieces.as_array().map_or(0, Vec::len);
        if pieces > 1 {
            let before = if self.resumed > 0 {
                format!(", {} of them spoken before", self.resumed)
            } else {
                String::new()
            };
            text += &row("pieces", format!("{pieces}{before}"));
        } else {
            text += &row(if self.is_phonemes { "phonemes" } else { "text" }, self.text.clone());
        }
        if !self.unknown.is_empty() {
            let list: String = self.unknown.iter().map(|c| format!(" {c:?}")).collect();
            text += &row(
                "skipped",
                format!("{} characters that the vocabulary lacks:{list}", self.unknown.len()),
            );
        }
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (codes, tokens) = (count(self.codes, "audio code"), count(self.tokens, "text token"));
        text += &row("length", format!("{codes} for {tokens}"));
        if let Some(flaw) = self.flaw.filter(|_| pieces <= 1) {
            text += &row("note", flaw.to_string());
        }
        if pieces <= 1 && self.seconds < NO_SPEECH {
            text += &row(
                "note",
                "under 0.2 s of audio: the model has probably not learnt to speak yet; train it longer"
                    .to_owned(),
            );
        } else if pieces <= 1 && self.attempts.len() > 1 {
            let list: Vec<String> = self.attempts.iter().map(Attempt::to_string).collect();
            text += &row("attempts", list.join("; "));
        }
        text += &row("audio", format!("{:.2} s at {} Hz, {how}", self.seconds, self.sample_rate));
        text += &row(
            "time",
            format!(
                "{:.2} s to open, {:.2} s to encode the voice, {:.2} s to speak: {:.2} s per second of audio",
                self.opening, self.encoding, self.speaking, self.real_time_factor
            ),
        );
        match &self.output {
            Some(output) => text + &row("written", format!("{} ({})", output.display(), self.format)),
            None => text,
        }
    }
}
