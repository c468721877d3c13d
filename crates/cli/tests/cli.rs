//! Behaviour of the program, seen from a shell.

#[path = "cli/demo_corpus.rs"]
mod demo_corpus;
