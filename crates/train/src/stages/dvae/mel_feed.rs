//! Windows of mels that a device makes of sound, for batches that the model's device learns from. The windows are those of the
//! cache, drawn alike; their numbers are the same within rounding.

use super::token_targets::{self, SPOKEN_SOUND, WithTokens};
use super::{DvaeBatch, DvaeSettings, Ready, learning};
use crate::error::TrainError;
use crate::feed::{Finisher, Maker, field, maker_of};
use crate::stages::gpt::conditioning_engine::{BringsSound, ConditioningEngine, Shared};
use crate::stages::gpt::conditioning_input::ConditioningInput;
use myxtts_data::batch::{Part, Plan as Batches, Settings};
use myxtts_data::cache::sounds::{DVAE_SOUND, SOUND_OVERLAP};
use myxtts_data::loader::Options as LoaderOptions;
use myxtts_data::mel::FrontEnd;
use myxtts_data::record::RecordSource;
use myxtts_tensor::engine::Upload;
use myxtts_tensor::{Device, Engine};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Token of a frame that is none, which padding has.
const NO_TOKEN: f32 = -1.0;

/// A device that makes the mels of batches.
#[derive(Clone)]
pub struct MelDevice {
    /// The device.
    pub device: Device,
    /// The records, with [`DVAE_SOUND`] among their columns.
    pub sounds: Arc<dyn RecordSource>,
    /// How long the first step waits at least, for batches to be made ahead.
    pub start_delay: Duration,
}

impl std::fmt::Debug for MelDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MelDevice {{ device: {} }}", self.device)
    }
}

/// Batches of sound, and who makes mels of them.
pub(super) struct MelFeed {
    own: Shared,
    source: Arc<dyn RecordSource>,
    batches: Arc<Batches>,
    pub start_delay: Duration,
    device: Device,
}

impl BringsSound for DvaeBatch {
    fn take_given(&mut self) -> Option<ConditioningInput> {
        self.given.take()
    }
}

impl MelFeed {
    /// As the settings ask; where that cannot be set up, nothing and the reason, and batches bring their mels.
    pub fn of(
        settings: &DvaeSettings,
        engine: &Engine,
        stats: &[f32],
        train: &[u32],
    ) -> Result<Result<MelFeed, Option<String>>, TrainError> {
        let Some(MelDevice { device, sounds, start_delay }) = &settings.mels else { return Ok(Err(None)) };
        if settings.feeding.upload == Upload::WithStep && engine.cuda().is_some() {
            return Ok(Err(Some("batches are copied in turn, and bring their mels along".to_owned())));
        }
        let frames = settings.frames as usize;
        let own = match ConditioningEngine::of_sound(*device, FrontEnd::Dvae, frames, stats) {
            Ok(own) => Arc::new(Mutex::new(own)),
            Err(why) => {
                return Ok(Err(Some(format!(
                    "{device} cannot prepare batches ({why}): they are made on the processor and come buffered"
                ))));
            }
        };
        let (source, part): (Arc<dyn RecordSource>, Part) = match &settings.token_targets {
            Some(spoken) => {
                let per_code = settings.sizes.frames_per_code();
                let tokens = spoken.alignments.clone();
                let source = WithTokens::new(sounds.clone(), DVAE_SOUND, tokens, per_code);
                let part = Part::window(SPOKEN_SOUND, settings.frames);
                (Arc::new(source), Part { pad: NO_TOKEN, ..part })
            }
            None => (sounds.clone(), Part::window(DVAE_SOUND, settings.frames)),
        };
        let parts = vec![Part { overlap: SOUND_OVERLAP, ..part }];
        let plan = Settings { parts, ..learning(settings) };
        let batches = Arc::new(Batches::new(&*source, train.iter().copied(), plan)?);
        Ok(Ok(MelFeed { own, source, batches, start_delay: *start_delay, device: *device }))
    }

    /// What is to be said of it.
    pub fn told(&self) -> String {
        let held = self.own.lock().unwrap_or_else(PoisonError::into_inner).held();
        format!(
            "mels are made on {}, of sound that is sent there: {:.2} GiB",
            self.device,
            held as f64 / (1u64 << 30) as f64
        )
    }

    /// Makes batches that bring sound.
    pub fn maker(
        &self,
        ready: &Ready,
        settings: &DvaeSettings,
        first: u64,
        options: LoaderOptions,
    ) -> Result<Maker<DvaeBatch>, TrainError> {
        let (image, mel, tokens) = (ready.image.clone(), ready.mel, ready.tokens);
        let (window, per_code) = (settings.frames as usize, settings.sizes.frames_per_code());
        let part = &self.batches.settings().parts[0];
        let (column, counts) = (part.column, format!("{}_rows", part.name()));
        let own = Arc::clone(&self.own);
        maker_of(self.source.clone(), &self.batches, first, options, move |bytes, info, into, made| {
            let held = field(bytes, info, column.name);
            let heard: &[i32] = bytemuck::cast_slice(field(bytes, info, &counts));
            let mut given = ConditioningEngine::placed(&own, heard.len(), image.range(mel), made)?;
            if column == SPOKEN_SOUND {
                let frames = bytemuck::cast_slice(held);
                let (sound, spoken) =
                    token_targets::split(column, frames, (window, SOUND_OVERLAP as usize), per_code);
                given.write_sound(bytemuck::cast_slice(&sound), heard)?;
                if let Some(tokens) = tokens {
                    image.write_i32(into, tokens, &spoken);
                }
            } else {
                given.write_sound(held, heard)?;
            }
            Ok((image.bytes(), DvaeBatch::of(bytes, info, Some(given))))
        })
    }

    /// For a feed: the device adds the mels.
    pub fn finisher(&self) -> Finisher<DvaeBatch> {
        ConditioningEngine::finisher(&self.own)
    }
}
