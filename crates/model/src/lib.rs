//! XTTS: the networks, their weight files, and how they speak.
//!
//! A clip's mels become 32 conditioning vectors ([`conditioning`]) and codes ([`dvae`]); text, conditioning and codes go
//! through [`gpt`]; its states become sound in [`decoder`], in the voice of [`speaker`]'s vector.

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
pub use generate::{Forced, GenerateError, Generator, SlotId, SlotOptions, Slots, Spoken, Taken};
pub use gpt::{
    Condition, FrameLengths, Gpt, GptInputs, GptLosses, GptOptions, GptOutputs, GptShape, GptSizes,
    GptTargets, LossWeights,
};
pub use lora::LoraSizes;
pub use sampling::{Ended, SamplingOptions};
pub use sequence::{Masks, Rows, SequenceError, Sequences};
