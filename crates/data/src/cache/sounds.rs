//! Records whose sound stands in the place of their conditioning mels, and beside those of the DVAE: for whoever computes mels
//! of it elsewhere, on a device that is free for that.
//!
//! Frame `n` of a mel is made of the 1,024 samples around sample `256 n`, mirrored where the clip has ended. Row `n` here
//! is the first quarter of them, and the three rows after it are the rest: frames `a..b` need rows `a..b + 3`, each sample
//! once.

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

/// A hop of sound, under the name of what is made of it: batches are drawn and named alike, whichever of them they hold.
pub const CONDITIONING_SOUND: Column =
    Column { name: CONDITIONING_MEL.name, dtype: Dtype::F32, width: HOP as u32 };

/// The same for the DVAE's mels, which have the same frames. Their own column stays: what is only measured is read there.
pub const DVAE_SOUND: Column = Column { name: DVAE_MEL.name, ..CONDITIONING_SOUND };

/// Rows that the last frame needs beyond its own.
pub const SOUND_OVERLAP: u32 = (WINDOW / HOP - 1) as u32;

/// Samples from frame to frame.
const HOP: usize = 256;
/// Samples a frame is made of.
const WINDOW: usize = 1024;

/// Bytes of decoded sound that are kept in memory.
const KEPT: usize = 2 << 30;

/// A source that decodes sound when it is asked for and leaves everything else to another.
pub struct Sounds {
    base: Arc<dyn RecordSource>,
    columns: Vec<Column>,
    at: usize,
    /// The DVAE's mels in the base, where it has them; their sound is the last column then.
    dvae: Option<usize>,
    utterances: Vec<Utterance>,
    listener: Extractor,
    memory: MemoryCache<Result<Vec<f32>, Problem>>,
}

impl Sounds {
    /// The sound of `utterances`, one for each record of `base`, as a [`listener`](Self::listener) hears it. None where the
    /// records have no conditioning mels that it could stand for.
    pub fn new(
        base: Arc<dyn RecordSource>,
        utterances: Vec<Utterance>,
        listener: Extractor,
    ) -> Option<Sounds> {
        assert_eq!(base.len(), utterances.len(), "an utterance for every record");
        for front_end in [FrontEnd::Conditioning, FrontEnd::Dvae] {
            assert_eq!(front_end.hop(), HOP, "rows are hops");
        }
        let mut columns = base.columns().to_vec();
        let at = columns.iter().position(|column| *column == CONDITIONING_MEL)?;
        columns[at] = CONDITIONING_SOUND;
        let dvae = columns.iter().position(|column| *column == DVAE_MEL);
        columns.extend(dvae.map(|_| DVAE_SOUND));
        Some(Sounds { base, columns, at, dvae, utterances, listener, memory: MemoryCache::new(KEPT) })
    }

    /// Who hears as an extractor does, and nothing that conditioning is not made of.
    pub fn listener(extractor: &Extractor) -> Result<Extractor, TokenizerError> {
        let recipe = Recipe { columns: vec![CONDITIONING_MEL], ..extractor.recipe().clone() };
        let tokenizer = Tokenizer::from_bytes(&extractor.tokenizer().to_json(), "the vocabulary".as_ref())?;
        Ok(Extractor::new(recipe, tokenizer))
    }

    /// The column of the base that a column of sound stands for.
    fn stands_for(&self, column: usize) -> Option<usize> {
        match self.dvae {
            Some(dvae) if column + 1 == self.columns.len() => Some(dvae),
            _ => (column == self.at).then_some(column),
        }
    }

    fn heard(&self, record: usize) -> Arc<Result<Vec<f32>, Problem>> {
        self.memory.get(record, || {
            let utterance = &self.utterances[record];
            let (bytes, _) = source::read(&utterance.audio);
            let began = Instant::now();
            let heard = match bytes {
                Ok(bytes) => self.listener.heard(utterance, &bytes),
                Err(why) => Err(why.problem(utterance)),
            };
            note_computing(began.elapsed());
            let bytes = heard.as_ref().map_or(256, |heard| heard.len() * 4);
            (heard, bytes)
        })
    }
}

impl Overlay for Sounds {
    fn base(&self) -> &dyn RecordSource {
        &*self.base
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        match self.stands_for(column) {
            Some(mels) => match self.base.rows(record, mels) {
                0 => 0,
                rows => rows + SOUND_OVERLAP,
            },
            None => self.base.rows(record, column),
        }
    }

    fn read(&self, record: usize, column: usize, first_row: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if self.stands_for(column).is_none() {
            return self.base.read(record, column, first_row, out);
        }
        let heard = self.heard(record);
        let samples = match &*heard {
            Ok(samples) => samples,
            Err(problem) => return Err(RecordError::Bad(problem.clone())),
        };
        let all = FrontEnd::Conditioning.frames(samples.len()) + SOUND_OVERLAP as usize;
        let rows = all.saturating_sub(first_row as usize).min(out.len() / (4 * HOP));
        let start = first_row as isize * HOP as isize - (WINDOW / 2) as isize;
        let inside = usize::try_from(start).ok().and_then(|start| samples.get(start..start + rows * HOP));
        let out = &mut out[..rows * HOP * 4];
        match inside {
            Some(samples) => out.copy_from_slice(bytemuck::cast_slice(samples)),
            None => {
                for (i, to) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    *to = samples[mirrored(start + i as isize, samples.len())].to_le_bytes();
                }
            }
        }
        Ok(rows as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.base.fingerprint()
    }
}

/// The sample that stands at a place before, in or behind a clip that is mirrored at its ends.
fn mirrored(at: isize, samples: usize) -> usize {
    if samples == 1 {
        return 0;
    }
    let turn = 2 * (samples as isize - 1);
    let at = at.rem_euclid(turn);
    (if at < samples as isize { at } else { turn - at }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_mirrored_without_their_last_sample_twice() {
        let heard = |at| mirrored(at, 4);
        assert_eq!((-4..8).map(heard).collect::<Vec<_>>(), [2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!(mirrored(5, 1), 0);
    }
}
