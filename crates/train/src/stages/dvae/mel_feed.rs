//! Windows of mels that a device computes from waveforms, for batches that the model's device trains on. The windows are
//! those of the cache, sampled alike; their values are equal up to rounding.

use super::batches::learning;
use super::token_targets::{self, AUDIO_WITH_TOKEN, WithTokens};
use super::{DvaeBatch, DvaeSettings, Ready};
use crate::error::TrainError;
use crate::feed::{Finisher, Maker, field, maker_of};
use crate::stages::gpt::conditioning_engine::{ConditioningEngine, HasMelInput, SharedEngine};
use crate::stages::gpt::conditioning_input::ConditioningInput;
use myxtts_data::batch::{Part, Plan as Batches, Settings};
use myxtts_data::cache::audio_overlay::{AUDIO_OVERLAP, DVAE_AUDIO};
use myxtts_data::loader::Options as LoaderOptions;
use myxtts_data::mel::FrontEnd;
use myxtts_data::record::RecordSource;
use myxtts_run::memory_size::memory_size;
use myxtts_tensor::engine::Upload;
use myxtts_tensor::{Device, Engine};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Token of a frame without one, such as padding.
const NO_TOKEN: f32 = -1.0;

/// A device that computes the mels of batches.
#[derive(Clone)]
pub struct MelDevice {
    /// The GPU, or the CPU that simulates it.
    pub device: Device,
    /// The records, with [`DVAE_AUDIO`] among their columns.
    pub waveforms: Arc<dyn RecordSource>,
    /// Minimum time before the first step, so that batches are made ahead.
    pub start_delay: Duration,
}

impl std::fmt::Debug for MelDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MelDevice {{ device: {} }}", self.device)
    }
}

/// A feed of waveforms, with the engine that computes mels from them.
pub(super) struct MelFeed {
    own: SharedEngine,
    source: Arc<dyn RecordSource>,
    batches: Arc<Batches>,
    pub start_delay: Duration,
    device: Device,
}

impl HasMelInput for DvaeBatch {
    fn take_mel_input(&mut self) -> Option<ConditioningInput> {
        self.mel_input.take()
    }
}

impl MelFeed {
    /// Sets up the feed as the settings request. If that is not possible, returns the reason, and batches carry their mels.
    pub fn of(
        settings: &DvaeSettings,
        engine: &Engine,
        stats: &[f32],
        train: &[u32],
    ) -> Result<Result<MelFeed, Option<String>>, TrainError> {
        let Some(MelDevice { device, waveforms, start_delay }) = &settings.mels else { return Ok(Err(None)) };
        if settings.feeding.upload == Upload::WithStep && engine.cuda().is_some() {
            return Ok(Err(Some("batches are copied between steps, and carry their mels".to_owned())));
        }
        let frames = settings.frames as usize;
        let own = match ConditioningEngine::from_waveforms(*device, FrontEnd::Dvae, frames, stats) {
            Ok(own) => Arc::new(Mutex::new(own)),
            Err(why) => {
                return Ok(Err(Some(format!(
                    "{device} cannot prepare batches ({why}): they are made on the CPU and buffered"
                ))));
            }
        };
        let (source, part): (Arc<dyn RecordSource>, Part) = match &settings.token_targets {
            Some(spoken) => {
                let per_code = settings.sizes.frames_per_code();
                let tokens = spoken.alignments.clone();
                let source = WithTokens::new(waveforms.clone(), DVAE_AUDIO, tokens, per_code);
                let part = Part::window(AUDIO_WITH_TOKEN, settings.frames);
                (Arc::new(source), Part { pad: NO_TOKEN, ..part })
            }
            None => (waveforms.clone(), Part::window(DVAE_AUDIO, settings.frames)),
        };
        let parts = vec![Part { overlap: AUDIO_OVERLAP, ..part }];
        let plan = Settings { parts, ..learning(settings) };
        let batches = Arc::new(Batches::new(&*source, train.iter().copied(), plan)?);
        Ok(Ok(MelFeed { own, source, batches, start_delay: *start_delay, device: *device }))
    }

    /// Description for the user.
    pub fn description(&self) -> String {
        let held = self.own.lock().unwrap_or_else(PoisonError::into_inner).held();
        format!("mels are computed on {} from waveforms: {}", self.device, memory_size(held as u64))
    }

    /// Makes batches that carry waveforms.
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
            let valid_frames: &[i32] = bytemuck::cast_slice(field(bytes, info, &counts));
            let mut mel_input =
                ConditioningEngine::wait_for_input(&own, valid_frames.len(), image.range(mel), made)?;
            let mut spoken = Vec::new();
            if column == AUDIO_WITH_TOKEN {
                let frames = bytemuck::cast_slice(held);
                let sound;
                (sound, spoken) =
                    token_targets::split(column, frames, (window, AUDIO_OVERLAP as usize), per_code);
                mel_input.write_waveforms(bytemuck::cast_slice(&sound), valid_frames)?;
                if let Some(tokens) = tokens {
                    image.write_i32(into, tokens, &spoken);
                }
            } else {
                mel_input.write_waveforms(held, valid_frames)?;
            }
            Ok((image.bytes(), DvaeBatch::of(bytes, info, &spoken, Some(mel_input))))
        })
    }

    /// The finisher of a feed: the device adds the mels.
    pub fn finisher(&self) -> Finisher<DvaeBatch> {
        ConditioningEngine::finisher(&self.own)
    }
}
