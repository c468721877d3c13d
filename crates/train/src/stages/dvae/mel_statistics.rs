//! Mean and scale of a corpus's mels, measured before the first step.

use super::are_numbers;
use crate::bad_records::BadRecords;
use crate::error::TrainError;
use crate::overlay::floats;
use myxtts_data::loader::FailureBudget;
use myxtts_data::record::{DVAE_MEL, RecordSource};

/// Maximum number of records that mel statistics are computed from.
const MAX_MEASURED: usize = 4000;

/// Statistics of the mels of a set of records.
pub(super) struct MelStatistics {
    /// Per band: the root mean square, by which mels are divided so that all bands have equal weight.
    pub scale: Vec<f32>,
    /// Per band.
    pub mean: Vec<f32>,
    /// Names the records that could not be read.
    pub bad: Option<String>,
}

/// Measures the mels of `records`.
pub(super) fn measure_mels(
    source: &dyn RecordSource,
    records: &[u32],
    bands: usize,
    failures: FailureBudget,
) -> Result<MelStatistics, TrainError> {
    let (mut squares, mut sums) = (vec![0f64; bands], vec![0f64; bands]);
    let mut frames = 0u64;
    // Sampled evenly over the whole set, since it may be ordered.
    let every = records.len().div_ceil(MAX_MEASURED).max(1);
    let mut bad = BadRecords::new("mel statistics", failures.rate, records.len().div_ceil(every));
    for &record in records.iter().step_by(every) {
        let Some(mels) = bad.check(floats(source, record as usize, DVAE_MEL))? else { continue };
        // One NaN or Inf frame would spoil the statistics of all clips. The steps of that clip report it.
        for frame in mels.chunks_exact(bands).filter(|frame| are_numbers(frame)) {
            squares.iter_mut().zip(frame).for_each(|(sum, x)| *sum += f64::from(*x).powi(2));
            sums.iter_mut().zip(frame).for_each(|(sum, x)| *sum += f64::from(*x));
            frames += 1;
        }
    }
    let frames = frames.max(1) as f64;
    let scale = squares.into_iter().map(|sum| ((sum / frames).sqrt() as f32).max(1e-3)).collect();
    let mean = sums.into_iter().map(|sum| (sum / frames) as f32).collect();
    Ok(MelStatistics { scale, mean, bad: bad.message("the mel statistics") })
}
