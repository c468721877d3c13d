//! Weight files: those of Coqui's releases and trainer ([`pth`], read without running anything in them), and our model
//! folder of safetensors ([`folder`]).
//!
//! `model.pth` -> [`pth`] (an [`archive`] around a [`pickle`]) -> [`import`] (names and shapes against [`expected`] of the
//! [`sizes`]) -> [`folder`] (its manifest's [`claims`] checked by whoever makes a network of it) -> [`export`] -> `model.pth`. [`mod@grow`] makes room for new text tokens on the way.

pub mod archive;
pub mod buffers;
pub mod claims;
pub mod expected;
pub mod export;
pub mod folder;
pub mod grow;
pub mod import;
pub mod pickle;
pub mod pth;
pub mod python_json;
pub mod sizes;
pub mod tensors;

mod error;
mod kind;
mod machine;
mod map;
mod pickle_writer;

pub use error::WeightsError;
pub use expected::{Expected, Mismatch};
pub use folder::{FolderWriter, Manifest, ModelFolder, Part, Reading};
pub use kind::Kind;
pub use sizes::Sizes;
