//! Training: what stands between a prepared corpus, the networks and a person who waits.
//!
//! In the order of a run: [`strategy`] and [`machine`] (where) -> [`overlay`] (records with codes) -> [`align`] (which token each code says) -> [`feed`] (batches,
//! ahead of time) -> [`stages`] (what is trained), [`mirrored`] (on several devices), [`ranks`] (on several processes and machines) ->
//! [`session`] (the loop: steps, guards, checkpoints), `best` (validation and the weights it prefers) and [`samples`] (what it sounds like on the way),
//! driven by [`pipeline`] -> [`model`] (what comes of it) -> [`evaluate`] (what it sounds like, by `myxtts-speak`).

pub mod error;
mod fault;
pub mod rank_error;
pub mod replica_slice;
pub mod strategy;

pub mod align;
pub mod feed;
pub mod model;
pub mod overlay;
pub mod stages;

pub mod briefing;
pub mod follow;
pub mod mirrored;
pub mod ranks;

pub mod samples;
pub mod session;
pub mod sizes;

pub mod job_control;
pub mod low_data;
pub mod pipeline;
pub mod preview;
pub mod stage_context;
pub(crate) mod stage_settings;
pub mod training_data;

pub mod base_model;
pub mod corpus;
pub mod devices;
pub mod notes;
pub mod preferences;
mod run_error;
pub mod run_request;
pub mod training_run;

pub mod statistics;
mod step_timer;

pub mod bench;
pub mod diagnose;
pub mod tune;

pub mod evaluate;
pub mod resynthesize;

pub use myxtts_speak::compute_device;

pub use compute_device::ComputeDevice;
pub use error::TrainError;
pub use model::Model;
pub use run_error::RunError;
pub use session::BestValidation;
pub use training_run::TrainingRun;
