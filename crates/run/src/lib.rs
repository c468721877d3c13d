//! Everything a training run needs that involves no tensors: configuration and its resolved plan, seeds, durable
//! files, the run folder and its contents, loss guards, progress and exit codes.
//!
//! In the order a run uses them:
//! [`config`] (settings as written) -> [`plan`] (settings as resolved on this machine, and the recipe of each stage) ->
//! [`seed`] -> [`regular_file`] and [`mmap`] (reading files), [`durable`], [`output_path`] and [`lock`] (writing
//! files) -> [`folder`] (`runs/NAME`) -> [`schedule`] (learning rate) -> [`guard`] and [`loss_trend`] (loss
//! monitoring) -> [`events`] and [`tensorboard`] (logs) -> [`checkpoint`] -> [`progress`] -> [`exit`].
//! [`procfs`] parses the files of Linux's `/proc`, [`statistics`] has the median, [`memory_size`] formats amounts of memory.

pub mod checkpoint;
pub mod config;
pub mod durable;
pub mod events;
pub mod exit;
pub mod folder;
pub mod guard;
pub mod lock;
pub mod loss_trend;
pub mod memory_size;
pub mod mmap;
pub mod output_path;
pub mod plan;
pub mod procfs;
pub mod progress;
pub mod regular_file;
pub mod schedule;
pub mod seed;
pub mod statistics;
pub mod tensorboard;
