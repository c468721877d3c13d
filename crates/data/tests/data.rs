//! Behaviour of the data path, one module per concern.

#[path = "data/coqui_goldens.rs"]
mod coqui_goldens;
#[path = "data/corrections.rs"]
mod corrections;
#[path = "data/persian.rs"]
mod persian;
#[path = "data/text.rs"]
mod text;
#[path = "data/text_table.rs"]
mod text_table;
#[path = "data/tokenizer.rs"]
mod tokenizer;
