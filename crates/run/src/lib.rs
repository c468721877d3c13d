//! What a run stands on, with no tensor in it: configuration as written and as resolved on this
//! machine, seeds, durable files, the folder of a run with all it keeps, what watches a run, progress
//! and exit codes.
//!
//! In the order a run meets them:
//! [`config`] (what the user wrote) -> [`plan`] (what it means here, and the recipe of each stage) ->
//! [`seed`] -> [`regular`] and [`mapped`] (files that are read), [`durable`], [`destination`] and [`lock`] (files that survive) -> [`folder`] (`runs/NAME`) ->
//! [`schedule`] (the learning rate) -> [`guard`] and [`trend`] (what watches the losses) -> [`events`],
//! [`tensorboard`] (what is told) -> [`checkpoint`] (what is kept) -> [`progress`] -> [`exit`].

pub mod checkpoint;
pub mod config;
pub mod destination;
pub mod durable;
pub mod events;
pub mod exit;
pub mod folder;
pub mod guard;
pub mod lock;
pub mod mapped;
pub mod plan;
pub mod progress;
pub mod regular;
pub mod schedule;
pub mod seed;
pub mod tensorboard;
pub mod trend;
