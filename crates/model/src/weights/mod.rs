//! Weight files: those of Coqui's releases and trainer ([`pth`], parsed without executing anything in them), and our model
//! folder of safetensors or [`compact`] files ([`folder`]).
//!
//! `model.pth` -> [`pth`] (an [`archive`] around a [`pickle`]) -> [`import`] (names and shapes checked against [`expected`]
//! for the [`sizes`]) -> [`folder`] (its manifest's [`claims`] are checked before a network is built) -> [`export`] ->
//! `model.pth`. [`mod@grow`] adds rows for new text tokens.

pub mod archive;
pub mod buffers;
pub mod claims;
pub mod compact;
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

mod element_type;
mod error;
mod map;
mod pickle_machine;
mod pickle_writer;

pub use element_type::ElementType;
pub use error::WeightsError;
pub use expected::{Expected, Mismatch};
pub use folder::{FolderWriter, Manifest, ModelFolder, Part, Reading};
pub use sizes::Sizes;
