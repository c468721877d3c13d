//! Behaviour of the crate, one module per noun.

#[path = "run/durable.rs"]
mod durable;
#[path = "run/lock.rs"]
mod lock;
