//! File format of a voice: safetensors with Coqui's tensor names, everything else in the metadata.
//!
//! | tensor | shape | |
//! |---|---|---|
//! | `gpt_cond_latent` | `[1, latents, width]` | f32 |
//! | `speaker_embedding` | `[1, channels, 1]` | f32; only if the model has a decoder |

use super::VoiceError;
use crate::reference::ReferenceReport;
use crate::voice::Voice;
use myxtts_run::regular_file;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

const CONDITIONING: &str = "gpt_cond_latent";
const SPEAKER: &str = "speaker_embedding";

/// Value of `format` in the metadata.
const FORMAT: &str = "myxtts-voice-1";

/// Largest file that is read, in bytes: thousands of latents with thousands of channels.
const LARGEST: u64 = 64 << 20;

/// Longest header in bytes.
const HEADER: usize = 1 << 20;

/// A voice and its metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredVoice {
    /// Name of the voice.
    pub name: String,
    /// Conditioning and speaker vector.
    pub voice: Voice,
    /// Number of rows of the conditioning.
    pub latents: usize,
    /// File names of its recordings, without folders.
    pub references: Vec<String>,
    /// Total duration of the recordings in seconds.
    pub seconds: f64,
    /// Fingerprint of the model that encoded it.
    pub model: String,
    /// Quality report on the recordings; `None` for imported voices.
    pub report: Option<ReferenceReport>,
}

impl StoredVoice {
    /// Serialises the voice; equal voices give equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let latents = self.latents.max(1);
        let conditioning = &self.voice.conditioning;
        let (first, mut end) = (4 * conditioning.len(), 4 * conditioning.len());
        let mut header = serde_json::Map::new();
        // safetensors metadata values are strings.
        let mut metadata: BTreeMap<&str, String> = BTreeMap::new();
        metadata.insert("format", FORMAT.to_owned());
        metadata.insert("name", self.name.clone());
        metadata.insert("references", json!(self.references).to_string());
        metadata.insert("seconds", self.seconds.to_string());
        metadata.insert("model", self.model.clone());
        if let Some(report) = &self.report {
            metadata.insert("report", json!(report).to_string());
        }
        header.insert("__metadata__".to_owned(), json!(metadata));
        let shape = [1, latents, conditioning.len() / latents];
        header.insert(
            CONDITIONING.to_owned(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [0, first]}),
        );
        if let Some(speaker) = &self.voice.speaker {
            end += 4 * speaker.len();
            let shape = [1, speaker.len(), 1];
            header.insert(
                SPEAKER.to_owned(),
                json!({"dtype": "F32", "shape": shape, "data_offsets": [first, end]}),
            );
        }
        let mut header = serde_json::Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        let values = conditioning.iter().chain(self.voice.speaker.iter().flatten());
        bytes.extend(values.flat_map(|value| value.to_le_bytes()));
        bytes
    }

    /// Reads a voice file.
    pub fn read(path: &Path) -> Result<StoredVoice, VoiceError> {
        let failed = |source| VoiceError::Io { path: path.to_owned(), source };
        let size = path.metadata().map_err(failed)?.len();
        if size > LARGEST {
            let what = format!("it has {size} bytes");
            return Err(VoiceError::Damaged { path: path.to_owned(), what });
        }
        let bytes = regular_file::read(path).map_err(failed)?;
        StoredVoice::from_bytes(&bytes).map_err(|what| VoiceError::Damaged { path: path.to_owned(), what })
    }

    /// Parses the bytes of a voice file; the error says what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<StoredVoice, String> {
        let claimed = bytes.first_chunk().map(|&length| u64::from_le_bytes(length));
        if claimed.is_none_or(|claimed| claimed > HEADER as u64) {
            return Err("it has no safetensors header".to_owned());
        }
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        let metadata = header.metadata().as_ref();
        let value_of = |key: &str| metadata.and_then(|metadata| metadata.get(key)).cloned();
        match value_of("format") {
            Some(format) if format == FORMAT => {}
            Some(format) => return Err(format!("its format is {format:?}; this program reads {FORMAT}")),
            None => return Err("its metadata has no format".to_owned()),
        }
        let must = |key: &str| value_of(key).ok_or_else(|| format!("its metadata has no {key}"));
        let tensor = |name: &str| -> Result<(Vec<usize>, Vec<f32>), String> {
            let view = tensors.tensor(name).map_err(|error| error.to_string())?;
            if view.dtype() != Dtype::F32 {
                return Err(format!("{name} is not f32"));
            }
            let (values, _) = view.data().as_chunks::<4>();
            let values: Vec<f32> = values.iter().map(|&value| f32::from_le_bytes(value)).collect();
            match values.iter().all(|value| value.is_finite()) {
                true => Ok((view.shape().to_vec(), values)),
                false => Err(format!("{name} has NaN or infinite values")),
            }
        };
        let (shape, conditioning) = tensor(CONDITIONING)?;
        let &[1, latents, _] = &shape[..] else {
            return Err(format!("{CONDITIONING} has the shape {shape:?} instead of [1, latents, width]"));
        };
        let speaker = match tensors.names().contains(&SPEAKER) {
            true => Some(tensor(SPEAKER)?.1),
            false => None,
        };
        let readable = |key: &str| format!("its {key} cannot be read");
        Ok(StoredVoice {
            name: must("name")?,
            voice: Voice { conditioning, speaker },
            latents,
            references: serde_json::from_str(&must("references")?).map_err(|_| readable("references"))?,
            seconds: must("seconds")?
                .parse()
                .ok()
                .filter(|s: &f64| s.is_finite())
                .ok_or_else(|| readable("seconds"))?,
            model: must("model")?,
            report: value_of("report").and_then(|report| serde_json::from_str(&report).ok()),
        })
    }

    /// The voice in the exchange format of Coqui's servers: JSON with `gpt_cond_latent` `[1, latents, width]` and
    /// `speaker_embedding` `[1, channels, 1]`.
    pub fn to_json(&self) -> serde_json::Value {
        let width = (self.voice.conditioning.len() / self.latents.max(1)).max(1);
        let rows: Vec<&[f32]> = self.voice.conditioning.chunks(width).collect();
        let speaker: Option<Vec<[f32; 1]>> =
            self.voice.speaker.as_ref().map(|vector| vector.iter().map(|value| [*value]).collect());
        json!({ CONDITIONING: [rows], SPEAKER: speaker.map(|vector| [vector]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> StoredVoice {
        StoredVoice {
            name: "anna".to_owned(),
            voice: Voice {
                conditioning: vec![1.0, -2.5, 3.25, 0.0, 5.0, 6.0],
                speaker: Some(vec![0.6, 0.8]),
            },
            latents: 2,
            references: vec!["a \"quoted\".wav".to_owned(), "سلام.flac".to_owned()],
            seconds: 12.345,
            model: "0123456789abcdef".to_owned(),
            report: None,
        }
    }

    #[test]
    fn a_stored_voice_round_trips_to_the_same_bytes() {
        let mut one = stored();
        assert_eq!(StoredVoice::from_bytes(&one.to_bytes()).unwrap(), one);
        assert_eq!(one.to_bytes(), stored().to_bytes());
        one.voice.speaker = None;
        one.report = Some(ReferenceReport {
            seconds: 1.0,
            references: vec![],
            least_similarity: None,
            advice: vec![],
        });
        assert_eq!(StoredVoice::from_bytes(&one.to_bytes()).unwrap(), one);
        assert_eq!(stored().to_json()["gpt_cond_latent"], json!([[[1.0, -2.5, 3.25], [0.0, 5.0, 6.0]]]));
        assert_eq!(stored().to_json()["speaker_embedding"][0].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn damaged_files_are_refused_with_a_reason() {
        let whole = stored().to_bytes();
        for cut in 0..whole.len() {
            assert!(StoredVoice::from_bytes(&whole[..cut]).is_err(), "{cut}");
        }
        let mut state = 7u32;
        for _ in 0..2000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut bytes = whole.clone();
            bytes[state as usize % whole.len()] ^= (state >> 24) as u8 | 1;
            let _ = StoredVoice::from_bytes(&bytes);
        }
        let mut nan = stored();
        nan.voice.conditioning[2] = f32::NAN;
        assert!(StoredVoice::from_bytes(&nan.to_bytes()).unwrap_err().contains("NaN"));
    }
}
