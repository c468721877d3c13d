//! The cache: always the same bytes, all damage detected, no valid record lost.

mod cache_damage;
mod cache_disk;
pub mod cache_fixture;
mod cache_kill;
mod cache_parts;
mod cache_prepare;
mod cache_runtime;
mod cache_together;
