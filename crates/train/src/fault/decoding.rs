//! The work of reading an unprepared corpus: a synthetic clip that is decoded and converted to mels repeatedly.
//!
//! It uses [`Runtime`], which measures its time as in every run: the fault itself writes no measurement.

use myxtts_data::audio::wav::encode_pcm16;
use myxtts_data::cache::{Runtime, RuntimeOptions};
use myxtts_data::features::{Extractor, INPUT_SAMPLE_RATE, Recipe};
use myxtts_data::record::{DVAE_MEL, RecordError, RecordSource};
use myxtts_data::tokenizer::{self, CHARACTERS, TrainOptions};
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_run::progress::Silent;
use std::io::{Error, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// Frames that are computed at once: about a tenth of a millisecond, so that a given time can be matched.
const FRAMES: usize = 24;
const TEXT: &str = "a tone";

/// A clip in a temporary file, and the source that computes its mels.
pub(super) struct Decoding {
    source: Runtime,
    /// Removed when this is dropped.
    _file: NamedTempFile,
}

impl Decoding {
    /// Writes the clip.
    ///
    /// # Errors
    ///
    /// The clip cannot be written, or not be read again.
    pub fn new() -> std::io::Result<Decoding> {
        let sample =
            |i: u32| (i as f32 * 220.0 * std::f32::consts::TAU / INPUT_SAMPLE_RATE as f32).sin() * 0.5;
        let samples: Vec<f32> = (0..INPUT_SAMPLE_RATE).map(sample).collect();
        let mut file = tempfile::Builder::new().prefix("myxtts-").suffix(".wav").tempfile()?;
        file.write_all(&encode_pcm16(&samples, INPUT_SAMPLE_RATE))?;
        let utterance = Utterance {
            id: "tone".to_owned(),
            audio: file.path().to_owned(),
            text: TEXT.to_owned(),
            speaker: "tone".to_owned(),
            language: "en".to_owned(),
            origin: Origin { file: file.path().to_owned(), line: None },
        };
        let options = TrainOptions { vocab_size: CHARACTERS, ..TrainOptions::default() };
        let tokenizer = tokenizer::train([("en", TEXT)], &options).map_err(Error::other)?;
        let recipe = Recipe { columns: vec![DVAE_MEL], trim_db: None, ..Recipe::default() };
        // Nothing is kept in memory: every read computes.
        let options = RuntimeOptions { memory_bytes: 0, workers: 1, ..RuntimeOptions::default() };
        let extractor = Arc::new(Extractor::new(recipe, tokenizer));
        let source = Runtime::open(&[utterance], extractor, &options, &Silent).map_err(Error::other)?;
        Ok(Decoding { source, _file: file })
    }

    /// Decodes until the given time has passed.
    pub fn run_for(&self, time: Duration) -> Result<(), RecordError> {
        let began = Instant::now();
        let mut mel = vec![0; FRAMES * DVAE_MEL.row_bytes()];
        while began.elapsed() < time {
            self.source.read(0, 0, 0, &mut mel)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fault_wrote_the_time_of_decoding_that_rules_read() {
        let decoding = Decoding::new().unwrap();
        let mut mel = vec![0u8; FRAMES * DVAE_MEL.row_bytes()];
        assert_eq!(decoding.source.read(0, 0, 0, &mut mel).unwrap(), FRAMES as u32);
        let numbers: Vec<f32> =
            mel.chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect();
        assert!(numbers.iter().all(|x| x.is_finite()) && numbers.iter().any(|x| *x > -3.0), "mels of a tone");
        assert_eq!(decoding.source.piecewise_records(), 1, "threads do not wait for each other");
        let began = Instant::now();
        decoding.run_for(Duration::from_millis(20)).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
