//! Behaviour of the crate as its users see it: one binary, one module per noun.

#[path = "run/config.rs"]
mod config;
#[path = "run/mistakes.rs"]
mod mistakes;
