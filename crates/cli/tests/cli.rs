//! The program as a user runs it, one module per command.

// Helpers of tests may unwrap like the tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "cli/check.rs"]
mod check;
