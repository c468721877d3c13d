//! Behaviour of the program, one module per command.

#[path = "cli/tokenizer.rs"]
mod tokenizer;
