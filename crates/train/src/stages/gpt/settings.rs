//! The settings of the GPT stage.

use super::{Conditioning, Regularization};
use crate::feed::Feeding;
use crate::stages::ClipOrder;
use myxtts_data::batch::Rows as BatchRows;
use myxtts_model::{GptSizes, Masks};
use myxtts_tensor::Mode;
use std::time::Duration;

/// How the stage is set up.
#[derive(Clone, Debug)]
pub struct GptSettings {
    /// Sizes of the network.
    pub sizes: GptSizes,
    /// Rows of a batch.
    pub rows: BatchRows,
    /// Frames of conditioning.
    pub frames: u32,
    /// The temperature that speakers and languages are balanced by.
    pub balance: f64,
    /// In which order clips come.
    pub order: ClipOrder,
    /// What may be looked at, and what counts.
    pub masks: Masks,
    /// Batches whose gradients make one step.
    pub accumulate: u64,
    /// Recorded, or kernel by kernel.
    pub mode: Mode,
    /// How batches come to the device.
    pub feeding: Feeding,
    /// Where their conditioning comes from.
    pub conditioning: Conditioning,
    /// The model begins not before so long after its feed, and not before the feed is full.
    pub start_delay: Option<Duration>,
    /// Lengths that batches are padded to.
    pub lengths: Lengths,
    /// Every draw comes from it.
    pub seed: u64,
    /// Device memory that may be used.
    pub memory_limit: Option<u64>,
    /// The first so many blocks are left as they are, with everything before them.
    pub freeze_layers: usize,
    /// The rank of adapters that are trained instead of the weights.
    pub lora_rank: Option<usize>,
    /// What keeps it from learning clips by heart.
    pub regularization: Regularization,
}

/// Lengths that batches are padded to: each is a shape, and each shape is recorded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// At most so many.
    pub buckets: u32,
    /// Multiples of so many codes, and of so many tokens.
    pub unit: u32,
}

impl Default for Lengths {
    fn default() -> Self {
        Lengths { buckets: 8, unit: 16 }
    }
}
