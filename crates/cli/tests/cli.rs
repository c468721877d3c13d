//! The program as its users see it: one binary, one module per command.

#[path = "cli/config.rs"]
mod config;
