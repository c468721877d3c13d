//! Training: everything between a prepared corpus and a finished model.
//!
//! In the order of a run: [`strategy`] and [`devices`] (where it trains) -> [`corpus`] (records, vocabulary, split) ->
//! [`overlay`] (records with audio codes) and [`align`] (the token of each code) -> [`feed`] (batches, made ahead) ->
//! [`stages`] (the networks), [`mirrored`] (several devices), [`ranks`] (several processes and machines) -> [`session`] (the
//! loop: steps, guards, checkpoints) and [`samples`] (spoken during training), driven by [`pipeline`] -> [`model`] (the result) ->
//! [`evaluate`] (its quality). [`TrainingRun`] is all of it for one run folder.
//!
//! # Examples
//!
//! Train a model on a corpus, from its settings to the model folder:
//!
//! ```no_run
//! use myxtts_run::config::{Flag, HostResources, Sources};
//! use myxtts_run::plan::Plan;
//! use myxtts_run::progress::Silent;
//! use myxtts_train::TrainingRun;
//! use myxtts_train::devices::DeviceRequest;
//! use myxtts_train::run_request::RunRequest;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let command_line = vec![Flag::Set("data.train_data=recordings".into())];
//! let sources = Sources { command_line, ..Sources::for_host(HostResources::detect()) };
//! let plan = Plan::resolve(&sources)?;
//! let devices = DeviceRequest::default().choose(&plan)?;
//! let mut run = TrainingRun::begin(Some("voice"), plan, RunRequest::default(), devices, &Silent)?;
//! let model = run.train(None, Default::default(), &Silent)?;
//! println!("the model is in {}", model.display());
//! # Ok(())
//! # }
//! ```
//!
//! Choose the devices of a run, here on a simulated machine with two GPUs:
//!
//! ```
//! use myxtts_train::strategy::{AvailableGpus, Strategy, StrategyRequest, strategy};
//!
//! let machine = AvailableGpus::simulated(2);
//! let request = StrategyRequest { multi_gpu: true, ..StrategyRequest::default() };
//! let decision = strategy(&machine, &request)?;
//! assert_eq!(decision.choice, Strategy::Mirrored(vec![0, 1]));
//! println!("{}: {}", decision.choice, decision.reason);
//! # Ok::<(), myxtts_train::strategy::StrategyError>(())
//! ```

pub mod bad_records;
mod error;
mod fault;
mod rank_activity;
mod rank_error;
pub mod replica_slice;
pub mod strategy;

pub mod align;
pub mod feed;
pub mod model;
pub mod overlay;
pub mod stages;

pub mod briefing;
mod follow;
pub mod mirrored;
pub mod ranks;

pub mod samples;
pub mod session;
pub mod sizes;

pub mod job_control;
mod low_data;
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
mod training_run;

pub mod statistics;
mod step_queue;

pub mod bench;
pub mod diagnose;
pub mod tune;

pub mod evaluate;
pub mod resynthesize;

pub use myxtts_speak::compute_device;

pub use compute_device::ComputeDevice;
pub use error::{TrainError, engine_exit};
pub use model::Model;
pub use run_error::RunError;
pub use session::BestValidation;
pub use training_run::TrainingRun;
