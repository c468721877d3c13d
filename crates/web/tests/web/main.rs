//! The server over real sockets, with a fake speaker and with a small model.

// Helpers of tests are tests too; clippy only exempts the functions marked so.
#![allow(clippy::unwrap_used)]

mod access;
mod client;
mod fake;
#[cfg(unix)]
mod fuzzed;
mod hostile;
mod load;
mod model;
mod models;
#[cfg(unix)]
#[path = "../../../../fuzz/mutator.rs"]
mod mutator;
mod page;
#[cfg(unix)]
#[path = "../../../../fuzz/parsers/web.rs"]
mod parsers;
mod scheduler;
mod sessions;
mod speech;
#[allow(dead_code)]
#[path = "../../../speak/tests/speak/tiny.rs"]
mod tiny;
mod xtts;
