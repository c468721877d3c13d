//! XTTS: the networks, their weight files, and autoregressive generation.
//!
//! A clip's mel frames become 32 conditioning vectors ([`conditioning`]) and audio codes ([`dvae`]). [`gpt`] reads text,
//! conditioning and codes. [`decoder`] turns its states into audio, in the voice given by the [`speaker`] embedding.

pub mod declare;
pub mod normed;
pub mod shapes;

pub mod codebook;
pub mod dvae;
pub mod speaker;

pub mod decoder;
pub mod discriminator;

mod affine;

pub mod conditioning;
pub mod perceiver;
pub mod sequence;

pub mod lora;

pub mod gpt;

pub mod sampling;

pub mod generate;

pub mod presets;

pub mod weights;

pub use declare::{Affine, Choice, Declare, Released};
pub use generate::{Forced, GenerateError, Generator, SlotId, SlotOptions, SlotOutput, Slots, Spoken};
pub use gpt::{
    Condition, FrameLengths, Gpt, GptInputs, GptLosses, GptOptions, GptOutputs, GptShape, GptSizes,
    GptTargets, LossWeights,
};
pub use lora::LoraSizes;
pub use sampling::{SamplingOptions, StopReason};
pub use sequence::{Masks, Rows, SequenceError, Sequences};
