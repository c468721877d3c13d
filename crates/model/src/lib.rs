//! XTTS: the networks, their weight files, and autoregressive generation.
//!
//! A clip's mel frames become 32 conditioning vectors ([`conditioning`]) and audio codes ([`dvae`]). [`gpt`] reads
//! text, conditioning and codes. [`decoder`] turns its states into audio, in the voice given by the [`speaker`]
//! embedding.
//!
//! ```
//! use myxtts_model::{Generator, GptSizes, Released, SamplingOptions};
//! use myxtts_tensor::{Device, Error, Precision, random::Stream};
//!
//! // One block of 64 channels and 2 heads, 300 text tokens, 30 audio codes, random weights.
//! let sizes = GptSizes::of(1, 64, 2, 300, 30);
//! let mut generator = Generator::new(Device::Cpu, Precision::F32, &sizes)?;
//! generator.load(|parameter: &Released| {
//!     let values = Stream::new(1).normals(parameter.shape.iter().product());
//!     Ok::<_, Error>(values.into_iter().map(|x| 0.1 * x).collect())
//! })?;
//!
//! // A voice is `[latents, width]`; `Generator::condition` computes it from a recording.
//! let voice = Stream::new(2).normals(sizes.perceiver.latents * sizes.width);
//! let options = SamplingOptions { max_codes: 5, ..SamplingOptions::default() };
//! let spoken = generator.speak(&voice, &[17, 4, 99][..], &options)?;
//! assert!(spoken.codes.len() <= 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod affine;
pub mod codebook;
pub mod conditioning;
pub mod declare;
pub mod decoder;
pub mod discriminator;
pub mod dvae;
pub mod generate;
pub mod gpt;
pub mod lora;
pub mod perceiver;
pub mod presets;
pub mod sampling;
pub mod sequence;
pub mod shapes;
pub mod speaker;
pub mod weight_norm;
pub mod weights;

pub use declare::{Affine, Declare, Released, TrainedFilter};
pub use generate::{Forced, GenerateError, Generator, SlotId, SlotOptions, SlotOutput, Slots, Spoken};
pub use gpt::{
    Condition, FrameLengths, Gpt, GptInputs, GptLosses, GptOptions, GptOutputs, GptShape, GptSizes,
    GptTargets, LossWeights,
};
pub use lora::LoraSizes;
pub use sampling::{SamplingOptions, StopReason};
pub use sequence::{Masks, Rows, SequenceError, Sequences};
