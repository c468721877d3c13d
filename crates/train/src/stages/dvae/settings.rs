//! The settings of the DVAE stage.

use super::{MelDevice, TokenTargets};
use crate::feed::Feeding;
use crate::stages::ClipOrder;
use myxtts_model::dvae::DvaeSizes;
use myxtts_tensor::Mode;

/// How the stage is set up.
#[derive(Clone, Debug)]
pub struct DvaeSettings {
    /// Sizes of the network.
    pub sizes: DvaeSizes,
    /// Windows in a batch.
    pub rows: u32,
    /// Frames of a window; whole codes.
    pub frames: u32,
    /// The temperature that speakers and languages are balanced by.
    pub balance: f64,
    /// In which order clips come.
    pub order: ClipOrder,
    /// Recorded, or kernel by kernel.
    pub mode: Mode,
    /// How batches come to the device.
    pub feeding: Feeding,
    /// Every draw comes from it.
    pub seed: u64,
    /// Device memory that may be used.
    pub memory_limit: Option<u64>,
    /// The tokens that codes are asked for, if they are.
    pub token_targets: Option<TokenTargets>,
    /// The device that makes the mels of batches, where they do not bring them.
    pub mels: Option<MelDevice>,
}
