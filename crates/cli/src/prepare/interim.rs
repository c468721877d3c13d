//! INTERIM, to be deleted when the corpora and the real features are merged: LJSpeech metadata, text
//! as bytes, sound as the samples of a 44-byte-header WAV file.

use std::path::Path;

use anyhow::Context;
use myxtts_data::cache::{Features, Featurizer, Fingerprint};
use myxtts_data::problem::{Problem, ProblemKind, Severity};
use myxtts_data::record::{Column, TOKENS, WAVEFORM};
use myxtts_data::utterance::{Origin, Utterance};

pub fn corpus(folder: &Path) -> anyhow::Result<Vec<Utterance>> {
    let file = folder.join("metadata.csv");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let lines = text.lines().enumerate().filter_map(|(n, line)| Some((n, line.split_once('|')?)));
    Ok(lines
        .map(|(n, (id, text))| Utterance {
            id: id.to_owned(),
            audio: folder.join("wavs").join(format!("{id}.wav")),
            text: text.rsplit('|').next().unwrap_or_default().to_owned(),
            speaker: "speaker".to_owned(),
            language: "en".to_owned(),
            origin: Origin { file: file.clone(), line: Some(n as u64 + 1) },
        })
        .collect())
}

pub struct Raw;

impl Featurizer for Raw {
    fn columns(&self) -> &[Column] {
        const COLUMNS: [Column; 2] = [TOKENS, WAVEFORM];
        &COLUMNS
    }

    fn fingerprint(&self) -> [u8; 32] {
        Fingerprint::new("interim").finish()
    }

    fn compute(&self, utterance: &Utterance, source_bytes: &[u8]) -> Result<Features, Problem> {
        let samples = match source_bytes.get(44..) {
            Some(samples) if source_bytes.starts_with(b"RIFF") => &samples[..samples.len() & !1],
            _ => {
                return Err(Problem {
                    kind: ProblemKind::Unreadable,
                    severity: Severity::Error,
                    id: Some(utterance.id.clone()),
                    origin: utterance.origin.clone(),
                    detail: format!("{} is no WAV file", utterance.audio.display()),
                });
            }
        };
        let tokens = utterance.text.bytes().flat_map(|b| i32::from(b).to_le_bytes()).collect();
        let seconds = samples.len() as f32 / 2.0 / 22_050.0;
        Ok(Features { arrays: vec![tokens, samples.to_vec()], seconds })
    }
}
