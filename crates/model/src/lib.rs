//! XTTS: the networks, their weight files, and how they speak.
//!
//! A clip's mels become 32 conditioning vectors ([`conditioning`]) and codes ([`dvae`]); text, conditioning and codes go
//! through [`gpt`]; its states become sound in [`decoder`], in the voice of [`speaker`]'s vector.

pub mod declare;
pub mod weights;

pub use declare::{Affine, Choice, Declare, Released};
