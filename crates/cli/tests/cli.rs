//! The program from outside, and the shape of the workspace.

#[path = "cli/edges.rs"]
mod edges;
