//! The training clips of a decoder, and how batches are sampled from them. The GPT's states, audio and references are read
//! when a batch is made.

use super::RecordSplit;
use super::decoder::DecoderSettings;
use super::latent_file::LatentFile;
use crate::error::TrainError;
use myxtts_data::batch::balance;
use myxtts_data::record::RecordSource;
use myxtts_model::decoder::{CODE_RATE, CODE_SAMPLES};
use myxtts_run::seed::Seed;
use std::collections::HashSet;

/// One training clip.
pub(super) struct Clip {
    pub record: u32,
    /// Number of its GPT states in [`Clips::latents`].
    pub rows: usize,
    pub speaker: u32,
}

/// All training clips, shared by all replicas.
pub struct Clips {
    pub(super) train: Vec<Clip>,
    pub(super) held_out: Vec<Clip>,
    /// Training records that are left out: shorter than a window, or without states.
    pub(super) left_out: Vec<u32>,
    /// The sampling pool, as indices into `train`: clips of rare speakers and languages occur several times.
    drawn_from: Vec<usize>,
    /// Clips of each speaker, as indices into `train`.
    pub(super) by_speaker: Vec<Vec<usize>>,
    pub(super) latents: LatentFile,
    pub(super) settings: DecoderSettings,
}

/// A sampled row of a batch.
pub(super) struct Row<'a> {
    /// The clip that the decoder learns from.
    pub clip: &'a Clip,
    /// Its first latent in the window.
    pub start: usize,
    /// The clip of the same speaker that conditions the row.
    pub reference: &'a Clip,
    /// A random number for the position in the reference.
    pub draw: u64,
}

impl Clips {
    /// The clips of `source` that are long enough for a window, with the states of its records.
    pub fn load(
        settings: &DecoderSettings,
        source: &dyn RecordSource,
        latents: LatentFile,
        RecordSplit { train, validation }: RecordSplit<'_>,
    ) -> Result<Clips, TrainError> {
        let clips = |records: &[u32]| -> Vec<Clip> {
            let mut clips = Vec::new();
            for &record in records {
                let rows = latents.rows(record as usize);
                // The last state predicts the end and has no audio.
                if rows <= settings.window {
                    continue;
                }
                clips.push(Clip { record, rows, speaker: source.speaker(record as usize) });
            }
            clips
        };
        let records = train;
        let (train, held_out) = (clips(train), clips(validation));
        if train.is_empty() {
            return Err(TrainError::NoClips(format!(
                "no clip is longer than the decoder's window of {} codes ({:.2} s)",
                settings.window,
                (settings.window * CODE_SAMPLES) as f64 / CODE_RATE as f64
            )));
        }
        let used: HashSet<u32> = train.iter().map(|clip| clip.record).collect();
        let left_out = records.iter().copied().filter(|record| !used.contains(record)).collect();
        let mut by_speaker = vec![Vec::new(); source.speakers().len()];
        for (i, clip) in train.iter().enumerate() {
            by_speaker[clip.speaker as usize].push(i);
        }
        let records: Vec<u32> = train.iter().map(|clip| clip.record).collect();
        let seed = Seed::new(settings.seed).derive("decoder");
        let drawn_from = match balance::repeats(source, &records, settings.balance, seed) {
            Some(times) => (0..train.len()).flat_map(|i| std::iter::repeat_n(i, times[i] as usize)).collect(),
            None => (0..train.len()).collect(),
        };
        Ok(Clips { train, held_out, left_out, drawn_from, by_speaker, latents, settings: settings.clone() })
    }

    /// A row of the batch of a step. `attempt` is 0, or the number of rows before it whose clips could not be read: each
    /// attempt selects another row, deterministically.
    pub(super) fn row(&self, step: u64, row: usize, attempt: u64) -> Row<'_> {
        let DecoderSettings { window, order, rows: all, .. } = &self.settings;
        let count = self.drawn_from.len() as u64;
        let seed = self.seed(step, row, attempt);
        let place = match order.shuffled || attempt > 0 {
            true => seed.below(0, count),
            false => (step % count * *all as u64 + row as u64) % count,
        };
        let clip = &self.train[self.drawn_from[place as usize]];
        let room = clip.rows - window;
        let start = seed.below(1, room as u64) as usize;
        let draw = Seed::new(self.settings.seed).derive("heard").with(step).at(row as u64);
        Row { clip, start, reference: self.reference(clip, seed), draw }
    }

    /// Another clip of the speaker of `clip` to condition on, in place of the one of [`Clips::row`]. `attempt` counts from 1.
    pub(super) fn other_reference(&self, clip: &Clip, step: u64, row: usize, attempt: u64) -> &Clip {
        self.reference(clip, self.seed(step, row, 0).derive("reference").with(attempt))
    }

    fn reference(&self, clip: &Clip, seed: Seed) -> &Clip {
        let others = &self.by_speaker[clip.speaker as usize];
        &self.train[others[seed.below(2, others.len() as u64) as usize]]
    }

    /// The seed of a row; the one of `attempt` 0 is that of a run without bad clips.
    fn seed(&self, step: u64, row: usize, attempt: u64) -> Seed {
        let seed = Seed::new(self.settings.seed).derive("decoder").with(step).with(row as u64);
        if attempt == 0 { seed } else { seed.derive("substitute").with(attempt) }
    }
}
