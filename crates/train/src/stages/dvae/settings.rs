//! The settings of the DVAE stage.

use super::{MelDevice, TokenTargets};
use crate::feed::FeedSettings;
use crate::stages::ClipOrder;
use myxtts_model::dvae::DvaeSizes;
use myxtts_tensor::Mode;

/// Settings of the DVAE stage.
#[derive(Clone, Debug)]
pub struct DvaeSettings {
    /// Sizes of the network.
    pub sizes: DvaeSizes,
    /// Windows per batch.
    pub rows: u32,
    /// Mel frames per window; a multiple of the frames per code.
    pub frames: u32,
    /// Temperature of the balance between speakers and languages.
    pub balance: f64,
    /// The order of clips.
    pub order: ClipOrder,
    /// Whether steps are captured as graphs or launched kernel by kernel.
    pub mode: Mode,
    /// How batches get to the device.
    pub feeding: FeedSettings,
    /// Seed of all random streams.
    pub seed: u64,
    /// Limit of device memory, in bytes.
    pub memory_limit: Option<u64>,
    /// The tokens that codes have to predict; `None` if they do not.
    pub token_targets: Option<TokenTargets>,
    /// The device that computes the mels of batches; `None` if batches carry them.
    pub mels: Option<MelDevice>,
}
