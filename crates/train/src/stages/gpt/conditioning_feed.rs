//! The source of the conditioning of batches: as the settings request, if that is possible.

use super::GptSettings;
use super::conditioning_engine::{ConditioningEngine, SharedEngine, forecast, table, waveform_source};
use super::fill::GptBatch;
use super::row_indices::MEL_INDEX;
use crate::error::TrainError;
use crate::feed::Finisher;
use crate::overlay::{CODES, WithCodes};
use myxtts_data::batch::Part;
use myxtts_data::cache::audio_overlay::{AUDIO_OVERLAP, CONDITIONING_AUDIO};
use myxtts_data::mel::FrontEnd;
use myxtts_data::record::{CONDITIONING_MEL, Column, RecordSource, TOKENS};
use myxtts_run::memory_size::memory_size;
use myxtts_tensor::engine::Upload;
use myxtts_tensor::{Device, Engine};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The source of the conditioning of a batch.
#[derive(Clone, Default)]
pub enum Conditioning {
    /// The batch carries its mels.
    #[default]
    Batch,
    /// All mels are resident on the model's device, if they take no more than a share of its memory.
    Resident {
        /// Maximum share of the device's memory, 0 to 1.
        at_most: f64,
    },
    /// Waveforms are copied to a device, which computes the mels.
    Waveforms {
        /// The GPU, or the CPU that simulates it.
        device: Device,
        /// The records, with waveforms instead of conditioning mels.
        waveforms: Arc<dyn RecordSource>,
    },
}

impl std::fmt::Debug for Conditioning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Conditioning::Batch => f.write_str("Batch"),
            Conditioning::Resident { at_most } => write!(f, "Resident {{ at_most: {at_most} }}"),
            Conditioning::Waveforms { device, .. } => write!(f, "Waveforms {{ device: {device} }}"),
        }
    }
}

/// What records have instead of conditioning mels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditioningKind {
    Mels,
    RowIndices {
        /// Index of the silent mel.
        silence: i32,
    },
    Waveforms,
}

impl ConditioningKind {
    pub fn column(self) -> (Column, u32) {
        match self {
            ConditioningKind::Mels => (CONDITIONING_MEL, 0),
            ConditioningKind::RowIndices { .. } => (MEL_INDEX, 0),
            ConditioningKind::Waveforms => (CONDITIONING_AUDIO, AUDIO_OVERLAP),
        }
    }
}

/// The arrays of a batch.
pub(super) fn parts(frames: u32, kind: ConditioningKind) -> Vec<Part> {
    let (column, overlap) = kind.column();
    // The padding follows from the name and not from the content: a run can resume with another source.
    let mels = Part::companion(CONDITIONING_MEL, frames);
    vec![Part::whole(TOKENS), Part::whole(CODES), Part { column, overlap, ..mels }]
}

/// How conditioning gets to batches.
pub(super) struct ConditioningFeed {
    /// The engine that computes it; `None` if batches carry it.
    pub maker: Option<SharedEngine>,
    /// The records that batches are made from: the source, or the same with something else instead of conditioning mels.
    pub records: Arc<dyn RecordSource>,
    /// What those records have instead of conditioning mels.
    pub kind: ConditioningKind,
    /// A line for the user.
    pub description: Option<String>,
}

impl ConditioningFeed {
    /// Sets up the feed as the settings request. If that is not possible, batches carry their mels.
    pub fn of(
        settings: &GptSettings,
        engine: &Engine,
        source: &Arc<WithCodes>,
        stats: &[f32],
    ) -> Result<ConditioningFeed, TrainError> {
        let (records, frames) = (source.clone() as Arc<dyn RecordSource>, settings.frames as usize);
        let plain = |description: Option<String>| {
            Ok(ConditioningFeed {
                maker: None,
                records: records.clone(),
                kind: ConditioningKind::Mels,
                description,
            })
        };
        if settings.feeding.upload == Upload::WithStep && engine.cuda().is_some() {
            let asked = !matches!(settings.conditioning, Conditioning::Batch);
            return plain(asked.then(|| "batches are copied between steps, and carry their mels".to_owned()));
        }
        match &settings.conditioning {
            Conditioning::Batch => plain(None),
            Conditioning::Resident { .. } => {
                let (device, memory) = match engine.cuda() {
                    Some(cuda) => (Device::Cuda(cuda.ordinal()), cuda.memory()?.1 as u64),
                    None => (Device::Cpu, u64::MAX),
                };
                let Some(mels) = resident_mels(settings, &*records, stats.len(), memory) else {
                    return plain(None);
                };
                let (own, indices) = ConditioningEngine::resident(device, records, frames, stats)?;
                let bytes = memory_size((4 * mels * stats.len()) as u64);
                let description = format!("{bytes} of conditioning are resident on the device");
                let kind = ConditioningKind::RowIndices { silence: indices.silence };
                Ok(ConditioningFeed {
                    maker: Some(Arc::new(Mutex::new(own))),
                    records: Arc::new(indices),
                    kind,
                    description: Some(description),
                })
            }
            Conditioning::Waveforms { device, waveforms } => {
                match ConditioningEngine::from_waveforms(*device, FrontEnd::Conditioning, frames, stats) {
                    Ok(own) => {
                        let waveforms = Arc::new(WithCodes::new(waveforms.clone(), source.all().to_vec()));
                        let description = format!("conditioning is computed on {device} from waveforms");
                        Ok(ConditioningFeed {
                            maker: Some(Arc::new(Mutex::new(own))),
                            records: waveforms,
                            kind: ConditioningKind::Waveforms,
                            description: Some(description),
                        })
                    }
                    Err(why) => plain(Some(format!(
                        "{device} cannot prepare batches ({why}): they are made on the CPU and buffered"
                    ))),
                }
            }
        }
    }

    /// Bytes on the device that computes conditioning; 0 if batches carry it.
    pub fn held(&self) -> usize {
        self.maker.as_ref().map_or(0, |own| own.lock().unwrap_or_else(PoisonError::into_inner).held())
    }

    /// The finisher of a feed: the device adds the conditioning.
    pub fn finisher(&self) -> Option<Finisher<GptBatch>> {
        self.maker.as_ref().map(ConditioningEngine::finisher)
    }
}

/// Number of mels that would be resident on a device with this memory, including the silent one; `None` if they should
/// not be, or are too many.
fn resident_mels(
    settings: &GptSettings,
    source: &dyn RecordSource,
    bands: usize,
    memory: u64,
) -> Option<usize> {
    let Conditioning::Resident { at_most } = settings.conditioning else { return None };
    let memory = memory.min(settings.memory_limit.unwrap_or(u64::MAX));
    let at = crate::overlay::position(source, CONDITIONING_MEL);
    let all: u64 = (0..source.len()).map(|record| u64::from(source.rows(record, at))).sum();
    let numbers = (all + 1) * bands as u64;
    // Indices of mels, and of their elements in kernels, are 32 bits wide.
    let fit = (4 * numbers) as f64 <= at_most * memory as f64 && numbers <= i32::MAX as u64;
    fit.then_some(all as usize + 1)
}

/// Bytes that conditioning will need on the model's device in addition to the model: resident mels, and the programs for
/// batches of these numbers of rows.
pub(super) fn planned(
    settings: &GptSettings,
    source: &dyn RecordSource,
    (device, memory): (Device, u64),
    rows: &BTreeSet<usize>,
) -> usize {
    let (bands, frames) = (settings.sizes.conditioning.mels, settings.frames as usize);
    if settings.feeding.upload == Upload::WithStep && device != Device::Cpu {
        return 0;
    }
    let source = match &settings.conditioning {
        Conditioning::Batch => return 0,
        Conditioning::Resident { .. } => match resident_mels(settings, source, bands, memory) {
            Some(mels) => table(mels, bands),
            None => return 0,
        },
        Conditioning::Waveforms { device: own, .. } if *own == device => {
            waveform_source(FrontEnd::Conditioning, &vec![1.0; bands])
        }
        Conditioning::Waveforms { .. } => return 0,
    };
    forecast(device, source, (frames, bands), rows)
}
