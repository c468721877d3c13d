//! The settings of the GPT stage.

use super::{Conditioning, Regularization};
use crate::feed::FeedSettings;
use crate::stages::ClipOrder;
use myxtts_data::batch::Rows as BatchRows;
use myxtts_model::{GptSizes, Masks};
use myxtts_tensor::Mode;
use std::time::Duration;

/// Settings of the GPT stage.
#[derive(Clone, Debug)]
pub struct GptSettings {
    /// Sizes of the network.
    pub sizes: GptSizes,
    /// Rows per batch.
    pub rows: BatchRows,
    /// Mel frames of conditioning.
    pub frames: u32,
    /// Temperature of the balance between speakers and languages.
    pub balance: f64,
    /// The order of clips.
    pub order: ClipOrder,
    /// Attention and loss masks.
    pub masks: Masks,
    /// Number of batches per step (gradient accumulation).
    pub accumulate: u64,
    /// Whether steps are captured as graphs or launched kernel by kernel.
    pub mode: Mode,
    /// How batches get to the device.
    pub feeding: FeedSettings,
    /// The source of their conditioning.
    pub conditioning: Conditioning,
    /// Minimum time between the start of the feed and of the model, which also waits until the feed is full; `None` starts
    /// at once.
    pub start_delay: Option<Duration>,
    /// Lengths that batches are padded to.
    pub lengths: Lengths,
    /// Seed of all random streams.
    pub seed: u64,
    /// Limit of device memory, in bytes.
    pub memory_limit: Option<u64>,
    /// Number of first blocks that stay frozen, with everything before them.
    pub freeze_layers: usize,
    /// Rank of adapters that are trained instead of the weights; `None` trains the weights.
    pub lora_rank: Option<usize>,
    /// Measures against overfitting.
    pub regularization: Regularization,
}

/// Lengths that batches are padded to: each is a shape, and each shape is captured once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Maximum number of lengths.
    pub buckets: u32,
    /// Lengths are multiples of this many codes, and of this many tokens.
    pub unit: u32,
}

impl Default for Lengths {
    fn default() -> Self {
        Lengths { buckets: 8, unit: 16 }
    }
}
