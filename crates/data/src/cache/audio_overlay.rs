//! Audio columns for computing mels on a device: one replaces the conditioning mels, one is added next to the DVAE mels.
//!
//! Frame `n` of a mel is computed from the 1,024 samples around sample `256 n`, reflected at the ends of the clip. Row `n`
//! here holds the first quarter of them, and the next three rows hold the rest: frames `a..b` need rows `a..b + 3`, and each
//! sample is stored once.

use std::sync::Arc;
use std::time::Instant;

use super::memory::MemoryCache;
use super::source;
use crate::features::{Extractor, Recipe};
use crate::mel::FrontEnd;
use crate::problem::Problem;
use crate::record::{
    CONDITIONING_MEL, Column, DVAE_MEL, Dtype, Overlay, RecordError, RecordSource, note_computing,
};
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::utterance::Utterance;

/// One hop of audio per row, under the name of the mels computed from it: batches are sampled and named alike, whichever of
/// the two they hold.
pub const CONDITIONING_AUDIO: Column =
    Column { name: CONDITIONING_MEL.name, dtype: Dtype::F32, width: HOP as u32 };

/// The same for the DVAE mels, which have the same frames. The mel column itself stays, because measuring reads it.
pub const DVAE_AUDIO: Column = Column { name: DVAE_MEL.name, ..CONDITIONING_AUDIO };

/// Extra rows that the last frame needs after its own.
pub const AUDIO_OVERLAP: u32 = (WINDOW / HOP - 1) as u32;

/// Samples from frame to frame.
const HOP: usize = 256;
/// Samples per frame.
const WINDOW: usize = 1024;

/// Size of the cache of decoded audio in bytes.
const CACHE_BYTES: usize = 2 << 30;

/// A source that decodes audio on demand and takes everything else from a base source.
pub struct AudioOverlay {
    base: Arc<dyn RecordSource>,
    columns: Vec<Column>,
    at: usize,
    /// Column of the DVAE mels in the base; `None` if it has none. If present, their audio is the last column.
    dvae: Option<usize>,
    utterances: Vec<Utterance>,
    extractor: Extractor,
    memory: MemoryCache<Result<Vec<f32>, Problem>>,
}

impl AudioOverlay {
    /// Serves the audio of `utterances`, one for each record of `base`, as decoded by an
    /// [`audio_extractor`](Self::audio_extractor). `None` if the records have no conditioning mels to replace.
    pub fn new(
        base: Arc<dyn RecordSource>,
        utterances: Vec<Utterance>,
        extractor: Extractor,
    ) -> Option<AudioOverlay> {
        assert_eq!(base.len(), utterances.len(), "one utterance is needed for every record");
        for front_end in [FrontEnd::Conditioning, FrontEnd::Dvae] {
            assert_eq!(front_end.hop(), HOP, "a row is one hop");
        }
        let mut columns = base.columns().to_vec();
        let at = columns.iter().position(|column| *column == CONDITIONING_MEL)?;
        columns[at] = CONDITIONING_AUDIO;
        let dvae = columns.iter().position(|column| *column == DVAE_MEL);
        columns.extend(dvae.map(|_| DVAE_AUDIO));
        Some(AudioOverlay {
            base,
            columns,
            at,
            dvae,
            utterances,
            extractor,
            memory: MemoryCache::new(CACHE_BYTES),
        })
    }

    /// Returns an extractor with the settings of `extractor` that makes only conditioning mels.
    pub fn audio_extractor(extractor: &Extractor) -> Result<Extractor, TokenizerError> {
        let recipe = Recipe { columns: vec![CONDITIONING_MEL], ..extractor.recipe().clone() };
        let tokenizer = Tokenizer::from_bytes(&extractor.tokenizer().to_json(), "the vocabulary".as_ref())?;
        Ok(Extractor::new(recipe, tokenizer))
    }

    /// Returns the mel column of the base that an audio column replaces; `None` for other columns.
    fn mel_column(&self, column: usize) -> Option<usize> {
        match self.dvae {
            Some(dvae) if column + 1 == self.columns.len() => Some(dvae),
            _ => (column == self.at).then_some(column),
        }
    }

    fn samples(&self, record: usize) -> Arc<Result<Vec<f32>, Problem>> {
        self.memory.get(record, || {
            let utterance = &self.utterances[record];
            let (bytes, _) = source::read(&utterance.audio);
            let began = Instant::now();
            let samples = match bytes {
                Ok(bytes) => self.extractor.decode_audio(utterance, &bytes),
                Err(why) => Err(why.problem(utterance)),
            };
            note_computing(began.elapsed());
            let bytes = samples.as_ref().map_or(256, |samples| samples.len() * 4);
            (samples, bytes)
        })
    }
}

impl Overlay for AudioOverlay {
    fn base(&self) -> &dyn RecordSource {
        &*self.base
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        match self.mel_column(column) {
            Some(mels) => match self.base.rows(record, mels) {
                0 => 0,
                rows => rows + AUDIO_OVERLAP,
            },
            None => self.base.rows(record, column),
        }
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if self.mel_column(column).is_none() {
            return self.base.read(record, column, first_row, out);
        }
        let decoded = self.samples(record);
        let samples = match &*decoded {
            Ok(samples) => samples,
            Err(problem) => return Err(RecordError::Bad(problem.clone())),
        };
        let all = FrontEnd::Conditioning.frames(samples.len()) + AUDIO_OVERLAP as usize;
        let rows = all.saturating_sub(first_row as usize).min(out.len() / (4 * HOP));
        let start = first_row as isize * HOP as isize - (WINDOW / 2) as isize;
        let inside = usize::try_from(start).ok().and_then(|start| samples.get(start..start + rows * HOP));
        let out = &mut out[..rows * HOP * 4];
        match inside {
            Some(samples) => out.copy_from_slice(bytemuck::cast_slice(samples)),
            None => {
                for (i, to) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    *to = samples[reflected_index(start + i as isize, samples.len())].to_le_bytes();
                }
            }
        }
        Ok(rows as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.base.fingerprint()
    }
}

/// Maps a sample index before, in or after a clip to an index in the clip, which is reflected at its ends.
fn reflected_index(at: isize, samples: usize) -> usize {
    if samples == 1 {
        return 0;
    }
    let period = 2 * (samples as isize - 1);
    let at = at.rem_euclid(period);
    (if at < samples as isize { at } else { period - at }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_reflected_without_repeating_the_last_sample() {
        let reflected = |at| reflected_index(at, 4);
        assert_eq!((-4..8).map(reflected).collect::<Vec<_>>(), [2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!(reflected_index(5, 1), 0);
    }
}
