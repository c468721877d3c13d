//! Configuration as the user wrote it: YAML, environment, command line, each value with its origin.
//!
//! One table, [`keys::KEYS`], is the only place that knows the settings; reading, refusing,
//! suggesting, showing and documenting are all driven by it. A new setting is one entry there and
//! one field in [`crate::plan`].
//!
//! [`keys`] (what exists) -> [`value`] (one value read) -> [`yaml`], [`sources`] (all of them, by
//! layer) -> [`crate::plan`]; [`error`] says what is wrong, [`mod@tune`] what this machine suggests,
//! [`template`] writes the file to start from.

pub mod error;
pub mod key;
pub mod keys;
pub mod sources;
pub mod template;
pub mod tune;
pub mod value;
pub mod yaml;

mod lookup;
mod node;

pub use error::{ConfigError, Mistake, Problem};
pub use key::{Key, Kind, Section};
pub use keys::KEYS;
pub use sources::{Assignment, Flag, Origin, Sources};
pub use tune::{Gpu, Machine, Tuned, tune};
pub use value::Value;
pub use yaml::parse_yaml;
