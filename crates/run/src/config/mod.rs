//! Configuration as the user wrote it: YAML, environment, command line, each value with its origin.
//!
//! All settings are listed in one table, [`keys::KEYS`], which drives parsing, validation, suggestions, display and
//! documentation. A new setting is one entry there and one field in [`crate::plan`].
//!
//! [`keys`] (the table) -> `value` (parsing one value) -> `yaml` and `sources` (all values, by layer) ->
//! [`crate::plan`]. `error` describes mistakes, [`host`] and [`mod@tune`] adapt defaults to this machine, and
//! [`template`] writes a file to start from. `scope` lists the settings that a resumed run may change and those that
//! act in one stage only; `removed_keys` lists settings of older files.

pub mod host;
pub mod keys;
pub mod template;
pub mod tune;

mod error;
mod key;
mod lookup;
mod node;
mod removed_keys;
mod scope;
mod sources;
mod value;
mod yaml;

pub use error::{ConfigError, Mistake, Problem};
pub use host::HostResources;
pub use key::{Key, Section, ValueKind};
pub use keys::KEYS;
pub use lookup::nearest;
pub use removed_keys::{REMOVED_KEYS, RemovedKey};
pub use scope::{CHANGEABLE_ON_RESUME, GPT_ONLY, GPU_ONLY, NOT_IN_DECODER};
pub use sources::{Assignment, Flag, MergedSettings, Origin, Sources};
pub use tune::{Tuned, tune};
pub use value::Value;
pub use yaml::parse_yaml;
