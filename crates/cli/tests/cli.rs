//! The program as its users see it, one module per command, and the shape of the workspace.

#[path = "cli/config.rs"]
mod config;
#[path = "cli/edges.rs"]
mod edges;
