//! The cache: the same bytes whatever happens, every damage seen, nothing good lost.

mod cache_damage;
mod cache_disk;
pub mod cache_fixture;
mod cache_kill;
mod cache_parts;
mod cache_prepare;
mod cache_runtime;
mod cache_together;
