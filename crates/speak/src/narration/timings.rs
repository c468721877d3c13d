//! Positions of the pieces in the audio, as SRT subtitles and JSON.

use serde::{Deserialize, Serialize};

/// Position of a piece in the audio.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Index of the first sample.
    pub start: u64,
    /// Index after the last sample, without the pause.
    pub end: u64,
    /// Text of the piece.
    pub text: String,
}

/// Positions of all pieces, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Sample rate in Hz.
    pub rate: u32,
    /// Total number of samples.
    pub samples: u64,
    /// The spoken pieces.
    pub pieces: Vec<Timing>,
}

impl Timings {
    /// Subtitles in the SubRip format.
    pub fn srt(&self) -> String {
        let mut out = String::new();
        for (number, piece) in self.pieces.iter().enumerate() {
            let (start, end) = (self.clock(piece.start), self.clock(piece.end));
            // A blank line would end the subtitle.
            let text: Vec<&str> = piece.text.lines().filter(|line| !line.trim().is_empty()).collect();
            out += &format!("{}\n{start} --> {end}\n{}\n\n", number + 1, text.join("\n"));
        }
        out
    }

    /// JSON with times in seconds.
    pub fn json(&self) -> serde_json::Value {
        let pieces: Vec<serde_json::Value> = self
            .pieces
            .iter()
            .map(|piece| {
                let (start, end) = (self.seconds(piece.start), self.seconds(piece.end));
                serde_json::json!({ "start": start, "end": end, "text": piece.text })
            })
            .collect();
        serde_json::json!({
            "sample_rate": self.rate,
            "seconds": self.seconds(self.samples),
            "pieces": pieces,
        })
    }

    fn seconds(&self, samples: u64) -> f64 {
        samples as f64 / f64::from(self.rate.max(1))
    }

    fn clock(&self, samples: u64) -> String {
        let ms = (u128::from(samples) * 1000 / u128::from(self.rate.max(1))) as u64;
        let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        format!("{hours:02}:{minutes:02}:{seconds:02},{:03}", ms % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtitles_are_numbered_and_have_no_blank_lines() {
        let piece = |start, end, text: &str| Timing { start, end, text: text.to_owned() };
        let pieces = vec![piece(0, 24_000, "One."), piece(36_012, 24_000 * 3661, "Two\n\nthree?")];
        let timings = Timings { rate: 24_000, samples: 24_000 * 3662, pieces };
        assert_eq!(
            timings.srt(),
            "1\n00:00:00,000 --> 00:00:01,000\nOne.\n\n2\n00:00:01,500 --> 01:01:01,000\nTwo\nthree?\n\n"
        );
        let json = timings.json();
        assert_eq!((&json["seconds"], &json["pieces"][1]["start"]), (&3662.0.into(), &1.5005.into()));
    }
}
