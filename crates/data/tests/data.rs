//! Behaviour of the data path, one module per noun.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

#[path = "data/batches.rs"]
mod batches;
#[path = "data/cache.rs"]
mod cache;
#[path = "data/cache_damage.rs"]
mod cache_damage;
#[path = "data/cache_disk.rs"]
mod cache_disk;
#[path = "data/cache_fixture.rs"]
mod cache_fixture;
#[path = "data/cache_kill.rs"]
mod cache_kill;
#[path = "data/cache_prepare.rs"]
mod cache_prepare;
#[path = "data/cache_runtime.rs"]
mod cache_runtime;
#[path = "data/loader.rs"]
mod loader;
#[path = "data/order.rs"]
mod order;
#[path = "data/restores.rs"]
mod restores;
#[path = "data/synthetic.rs"]
mod synthetic;
