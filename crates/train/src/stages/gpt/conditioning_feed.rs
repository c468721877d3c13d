//! Where the conditioning of batches comes from: as the settings ask, where that can be set up.

use super::conditioning_engine::{ConditioningEngine, Shared, forecast, of_sound, table};
use super::fill::GptBatch;
use super::row_indices::PLACE;
use super::{GIB, GptSettings};
use crate::error::TrainError;
use crate::feed::Finisher;
use crate::overlay::{CODES, WithCodes};
use myxtts_data::batch::Part;
use myxtts_data::cache::sounds::{CONDITIONING_SOUND, SOUND_OVERLAP};
use myxtts_data::mel::FrontEnd;
use myxtts_data::record::{CONDITIONING_MEL, Column, RecordSource, TOKENS};
use myxtts_tensor::engine::Upload;
use myxtts_tensor::{Device, Engine};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the conditioning of a batch comes from.
#[derive(Clone, Default)]
pub enum Conditioning {
    /// Its mels come with it.
    #[default]
    Fed,
    /// All mels lie on the model's device, where they are no more than this share of its memory.
    Resident {
        /// The share.
        at_most: f64,
    },
    /// Its sound goes to a device, and mels are made of it there.
    Sound {
        /// The device.
        device: Device,
        /// The records, with sound in the place of conditioning mels.
        sounds: Arc<dyn RecordSource>,
    },
}

impl std::fmt::Debug for Conditioning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Conditioning::Fed => f.write_str("Fed"),
            Conditioning::Resident { at_most } => write!(f, "Resident {{ at_most: {at_most} }}"),
            Conditioning::Sound { device, .. } => write!(f, "Sound {{ device: {device} }}"),
        }
    }
}

/// What the records of a batch are read from, and what stands for a conditioning mel in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditioningKind {
    Mels,
    RowIndices {
        /// The number of the silent mel.
        silence: i32,
    },
    Sound,
}

impl ConditioningKind {
    pub fn column(self) -> (Column, u32) {
        match self {
            ConditioningKind::Mels => (CONDITIONING_MEL, 0),
            ConditioningKind::RowIndices { .. } => (PLACE, 0),
            ConditioningKind::Sound => (CONDITIONING_SOUND, SOUND_OVERLAP),
        }
    }
}

/// The arrays of a batch.
pub(super) fn parts(frames: u32, heard: ConditioningKind) -> Vec<Part> {
    let (column, overlap) = heard.column();
    // Padded alike by name, whatever stands in its place: a run goes on with another way of feeding.
    let mels = Part::companion(CONDITIONING_MEL, frames);
    vec![Part::whole(TOKENS), Part::whole(CODES), Part { column, overlap, ..mels }]
}

/// How conditioning comes to batches.
pub(super) struct ConditioningFeed {
    /// Who makes it; none where batches bring it.
    pub maker: Option<Shared>,
    /// What batches are made of: the source, or the same with something else for conditioning mels.
    pub fed: Arc<dyn RecordSource>,
    /// What that is.
    pub heard: ConditioningKind,
    /// What is to be said of it.
    pub told: Option<String>,
}

impl ConditioningFeed {
    /// As the settings ask. Where that cannot be set up, batches bring their mels along.
    pub fn of(
        settings: &GptSettings,
        engine: &Engine,
        source: &Arc<WithCodes>,
        stats: &[f32],
    ) -> Result<ConditioningFeed, TrainError> {
        let (fed, frames) = (source.clone() as Arc<dyn RecordSource>, settings.frames as usize);
        let plain = |told: Option<String>| {
            Ok(ConditioningFeed { maker: None, fed: fed.clone(), heard: ConditioningKind::Mels, told })
        };
        if settings.feeding.upload == Upload::WithStep && engine.cuda().is_some() {
            let asked = !matches!(settings.conditioning, Conditioning::Fed);
            return plain(asked.then(|| "batches are copied in turn, and bring their mels along".to_owned()));
        }
        match &settings.conditioning {
            Conditioning::Fed => plain(None),
            Conditioning::Resident { .. } => {
                let (device, memory) = match engine.cuda() {
                    Some(cuda) => (Device::Cuda(cuda.ordinal()), cuda.memory()?.1 as u64),
                    None => (Device::Cpu, u64::MAX),
                };
                let Some(mels) = resident_mels(settings, &*fed, stats.len(), memory) else {
                    return plain(None);
                };
                let (own, places) = ConditioningEngine::resident(device, fed, frames, stats)?;
                let bytes = (4 * mels * stats.len()) as f64;
                let told = format!("{:.2} GiB of conditioning lie on the device", bytes / GIB);
                let heard = ConditioningKind::RowIndices { silence: places.silence };
                Ok(ConditioningFeed {
                    maker: Some(Arc::new(Mutex::new(own))),
                    fed: Arc::new(places),
                    heard,
                    told: Some(told),
                })
            }
            Conditioning::Sound { device, sounds } => {
                match ConditioningEngine::of_sound(*device, FrontEnd::Conditioning, frames, stats) {
                    Ok(own) => {
                        let sounds = Arc::new(WithCodes::new(sounds.clone(), source.all().to_vec()));
                        let told =
                            format!("conditioning is computed on {device}, of sound that is sent there");
                        Ok(ConditioningFeed {
                            maker: Some(Arc::new(Mutex::new(own))),
                            fed: sounds,
                            heard: ConditioningKind::Sound,
                            told: Some(told),
                        })
                    }
                    Err(why) => plain(Some(format!(
                        "{device} cannot prepare batches ({why}): they are made on the processor and come buffered"
                    ))),
                }
            }
        }
    }

    /// Bytes of the device that makes it; none where batches bring it.
    pub fn held(&self) -> usize {
        self.maker.as_ref().map_or(0, |own| own.lock().unwrap_or_else(PoisonError::into_inner).held())
    }

    /// For a feed: the device adds the conditioning.
    pub fn finisher(&self) -> Option<Finisher<GptBatch>> {
        self.maker.as_ref().map(ConditioningEngine::finisher)
    }
}

/// How many mels would lie on a device of so much memory, the silent one among them: all of a source's. None where they are
/// not to, or are too many.
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
    // Numbers of mels, and kernels' numbers of their elements, are 32 bits wide.
    let fit = (4 * numbers) as f64 <= at_most * memory as f64 && numbers <= i32::MAX as u64;
    fit.then_some(all as usize + 1)
}

/// Bytes that conditioning will take of a model's device, with so much memory, beside the model: what lies there, and what
/// makes batches of these numbers of rows of it.
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
    let way = match &settings.conditioning {
        Conditioning::Fed => return 0,
        Conditioning::Resident { .. } => match resident_mels(settings, source, bands, memory) {
            Some(mels) => table(mels, bands),
            None => return 0,
        },
        Conditioning::Sound { device: own, .. } if *own == device => {
            of_sound(FrontEnd::Conditioning, &vec![1.0; bands])
        }
        Conditioning::Sound { .. } => return 0,
    };
    forecast(device, way, (frames, bands), rows)
}
