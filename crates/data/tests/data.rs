//! Behaviour of the data crate, one module per noun.

#[path = "data/persian.rs"]
mod persian;
#[path = "data/text.rs"]
mod text;
#[path = "data/text_table.rs"]
mod text_table;
