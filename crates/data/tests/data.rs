//! Behaviour of the crate, one module per noun.

#[path = "data/cache.rs"]
mod cache;
