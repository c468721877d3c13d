//! Configuration as the user wrote it: YAML, environment, command line, each value with its origin.
//!
//! One table, [`keys::KEYS`], is the only place that knows the settings; reading, refusing,
//! suggesting, showing and documenting are all driven by it. A new setting is one entry there and
//! one field in [`crate::plan`].
//!
//! [`keys`] (what exists) -> [`value`] (one value read) -> [`yaml`], [`sources`] (all of them, by
//! layer) -> [`crate::plan`]; [`error`] says what is wrong, [`mod@tune`] what this machine suggests,
//! [`template`] writes the file to start from. [`removed`] are settings of older files, [`change`] those that a run which
//! goes on may be told anew.

pub mod change;
pub mod error;
pub mod key;
pub mod keys;
pub mod removed;
pub mod sources;
pub mod template;
pub mod tune;
pub mod value;
pub mod yaml;

mod lookup;
mod node;

pub use change::{CHANGEABLE, GPT_ONLY, GPU_ONLY};
pub use error::{ConfigError, Mistake, Problem};
pub use key::{Key, Kind, Section};
pub use keys::KEYS;
pub use removed::{REMOVED, Removed};
pub use sources::{Assignment, Flag, Origin, Settled, Sources};
pub use tune::{Gpu, Machine, Tuned, tune};
pub use value::Value;
pub use yaml::parse_yaml;
